package replica

import (
	"context"
	"database/sql/driver"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/direct"
	"github.com/pooldriver/pooldriver/internal/floor"
)

// The calls of package direct go to the primary. What they write raises the floor of their context.

var _ direct.Conn = (*conn)(nil)

func (c *conn) direct() direct.Conn { return c.primary.conn.(direct.Conn) }

// Attach implements direct.Conn.
func (c *conn) Attach(ctx context.Context) error { return c.direct().Attach(ctx) }

// Execute implements direct.Conn.
func (c *conn) Execute(ctx context.Context, call *direct.Call) (driver.Rows, error) {
	rows, err := c.direct().Execute(ctx, call)
	f := c.raises(ctx, call.Text, routed{link: &c.primary})
	for _, text := range call.More {
		if f == nil {
			f = c.raises(ctx, text, routed{link: &c.primary})
		}
	}
	if f == nil || err != nil || rows == nil {
		c.raise(ctx, f, err)
		return rows, err
	}
	return &raisingDirect{rows.(direct.Rows), raiser{conn: c, ctx: ctx, floor: f}}, nil
}

// raisingDirect are raisingRows of package direct.
type raisingDirect struct {
	direct.Rows
	raiser
}

func (r *raisingDirect) Next(dest []driver.Value) error { return r.read(r.Rows.Next(dest)) }

func (r *raisingDirect) Close() error { return r.closed(r.Rows.Close()) }

// Start implements direct.Conn.
func (c *conn) Start(ctx, lifetime context.Context, opts driver.TxOptions, nested bool) (driver.Tx, error) {
	t, err := c.direct().Start(ctx, lifetime, opts, nested)
	if err != nil {
		return t, err
	}
	return c.opened(ctx, t, routed{link: &c.primary}, opts.ReadOnly), nil
}

// Lend implements direct.Conn.
func (c *conn) Lend(ctx context.Context, effect dialects.Effect) (direct.Loan, error) {
	l, err := c.direct().Lend(ctx, effect)
	if err != nil {
		return nil, err
	}
	loan := raisingLoan{Loan: l, conn: c, ctx: ctx}
	if c.tx == nil {
		loan.floor = c.floorOf(ctx)
	}
	return loan, nil
}

// raisingLoan raises a floor when it ends: its borrower may have written.
type raisingLoan struct {
	direct.Loan
	conn  *conn
	ctx   context.Context
	floor *floor.Floor // nil: none
}

func (l raisingLoan) End(err error) {
	l.Loan.End(err)
	l.conn.raise(l.ctx, l.floor, err)
}
