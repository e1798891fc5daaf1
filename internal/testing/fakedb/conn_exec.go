package fakedb

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/pooldriver/pooldriver/internal/driverconn"
)

func (c *conn) Prepare(query string) (driver.Stmt, error) {
	return c.prepare(context.Background(), ConnPrepare, query)
}

func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return c.prepare(ctx, ConnPrepareCtx, query)
}

func (c *conn) prepare(ctx context.Context, call Call, query string) (driver.Stmt, error) {
	s := &stmt{conn: c}
	err := c.call(ctx, call, query, nil, func() (err error) {
		if s.parsed, err = parse(query); err != nil {
			return err
		}
		c.session.server.mu.Lock()
		defer c.session.server.mu.Unlock()
		c.session.prepared[s] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	return stmtShapes[c.variant.Features&StmtFeatures](s), nil
}

func (c *conn) Exec(query string, args []driver.Value) (driver.Result, error) {
	return c.execText(context.Background(), ConnExec, query, positional(args))
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.execText(ctx, ConnExecCtx, query, args)
}

func (c *conn) Query(query string, args []driver.Value) (driver.Rows, error) {
	return c.queryText(context.Background(), ConnQuery, query, positional(args))
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.queryText(ctx, ConnQueryCtx, query, args)
}

func (c *conn) execText(ctx context.Context, call Call, query string, args []driver.NamedValue) (res driver.Result, err error) {
	err = c.call(ctx, call, query, args, func() error {
		p, err := c.direct(query, args)
		if err != nil {
			return err
		}
		res, err = c.exec(ctx, p, args)
		return err
	})
	return res, err
}

func (c *conn) queryText(ctx context.Context, call Call, query string, args []driver.NamedValue) (rows driver.Rows, err error) {
	err = c.call(ctx, call, query, args, func() error {
		p, err := c.direct(query, args)
		if err != nil {
			return err
		}
		rows, err = c.query(ctx, p, args)
		return err
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// direct parses a text that is executed without having been prepared.
func (c *conn) direct(query string, args []driver.NamedValue) (*parsed, error) {
	if c.variant.Quirks&SkipWithArgs != 0 && len(args) > 0 {
		return nil, driver.ErrSkip
	}
	p, err := parse(query)
	if err != nil {
		return nil, err
	}
	if p.inputs != len(args) {
		return nil, fmt.Errorf("fakedb: the statement takes %d arguments, not %d", p.inputs, len(args))
	}
	return p, nil
}

func (c *conn) exec(ctx context.Context, p *parsed, args []driver.NamedValue) (driver.Result, error) {
	outcomes, err := c.run(ctx, p, args)
	if err != nil {
		return nil, err
	}
	last := outcomes[len(outcomes)-1].result
	if r, ok := last.(result); ok {
		r.noLastID = c.variant.Quirks&NoLastInsertID != 0
		last = r
	}
	return last, nil
}

func (c *conn) query(ctx context.Context, p *parsed, args []driver.NamedValue) (driver.Rows, error) {
	outcomes, err := c.run(ctx, p, args)
	if err != nil {
		return nil, err
	}
	var sets []*resultSet
	for _, out := range outcomes {
		if out.set != nil {
			sets = append(sets, out.set)
		}
	}
	if len(sets) == 0 {
		sets = []*resultSet{{breakAt: -1}}
	}
	return c.open(ctx, sets...), nil
}

// open makes rows of at least one result set.
func (c *conn) open(ctx context.Context, sets ...*resultSet) driver.Rows {
	r := &rows{conn: c, ctx: ctx, sets: sets}
	c.session.server.mu.Lock()
	defer c.session.server.mu.Unlock()
	c.session.openRows++
	c.session.server.changedLocked()
	shape := rowsShapes[c.variant.Features&RowsFeatures](r)
	r.scans = driverconn.ColumnScannerOf(shape) != nil
	return shape
}
