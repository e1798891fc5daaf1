package sandbox

import (
	"context"
	"database/sql/driver"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/direct"
)

// Statements of module pgxpooldriver, which are sent by the driver's own connection. In a sandbox each of them is a
// function of Raw: it stands in a savepoint.

var (
	_ direct.Conn = (*route)(nil)
	_ direct.Conn = (*frontConn)(nil)
)

// toDirect is to for such a statement.
func (r *route) toDirect(ctx context.Context) (direct.Conn, error) {
	c, err := r.to(ctx)
	if err != nil {
		return nil, err
	}
	return c.(direct.Conn), nil
}

func (r *route) Attach(ctx context.Context) error {
	c, err := r.toDirect(ctx)
	if err != nil {
		return err
	}
	return c.Attach(ctx)
}

func (r *route) Execute(ctx context.Context, call *direct.Call) (driver.Rows, error) {
	c, err := r.toDirect(ctx)
	if err != nil {
		return nil, err
	}
	ctx, b := r.watchBeside(ctx, call.Text)
	rows, err := c.Execute(ctx, call)
	return rows, r.endBeside(ctx, b, nil, err)
}

func (r *route) Start(ctx, lifetime context.Context, opts driver.TxOptions, nested bool) (driver.Tx, error) {
	c, err := r.toDirect(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := c.Start(ctx, lifetime, opts, nested)
	if err != nil || r.now != r.own || nested {
		return tx, err
	}
	r.inTx = true
	return &routeTx{r, tx}, nil
}

func (r *route) Lend(ctx context.Context, effect dialects.Effect) (direct.Loan, error) {
	c, err := r.toDirect(ctx)
	if err != nil {
		return nil, err
	}
	return c.Lend(ctx, effect)
}

func (c *frontConn) direct() direct.Conn { return c.virtual.(direct.Conn) }

func (c *frontConn) Attach(ctx context.Context) error {
	return c.do(ctx, usePing, "", func() error { return c.direct().Attach(ctx) })
}

func (c *frontConn) Execute(ctx context.Context, call *direct.Call) (driver.Rows, error) {
	use := useExec
	if call.Queries {
		use = useQuery
	}
	return doing(ctx, c, use, call.Text, func() (driver.Rows, error) { return c.direct().Execute(ctx, call) })
}

func (c *frontConn) Start(ctx, lifetime context.Context, opts driver.TxOptions, nested bool) (driver.Tx, error) {
	tx, err := doing(ctx, c, useBegin, "", func() (driver.Tx, error) { return c.direct().Start(ctx, lifetime, opts, nested) })
	if err != nil || nested {
		return tx, err
	}
	return c.begun(lifetime, tx), nil
}

func (c *frontConn) Lend(ctx context.Context, effect dialects.Effect) (direct.Loan, error) {
	return doing(ctx, c, useExec, "", func() (direct.Loan, error) { return c.direct().Lend(ctx, effect) })
}
