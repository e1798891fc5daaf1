package main

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"

	"github.com/jackc/puddle/v2"
)

// puddleClient lends bare connections of a driver from puddle: what a program
// without database/sql would do. It wants a driver that has these interfaces, and
// that takes its arguments as they are.
type puddleClient struct {
	pool  *puddle.Pool[bareConn]
	texts texts
}

type bareConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
}

func openPuddleOver(c driver.Connector, conns int, t texts) (client, error) {
	pool, err := puddle.NewPool(&puddle.Config[bareConn]{
		Constructor: func(ctx context.Context) (bareConn, error) {
			conn, err := c.Connect(ctx)
			if err != nil {
				return nil, err
			}
			return conn.(bareConn), nil
		},
		Destructor: func(conn bareConn) { _ = conn.Close() },
		MaxSize:    int32(conns),
	})
	if err != nil {
		return nil, err
	}
	return puddleClient{pool, t}, nil
}

// with lends a connection to a function.
func (c puddleClient) with(ctx context.Context, use func(bareConn) error) error {
	r, err := c.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer r.Release()
	return use(r.Value())
}

func argument(n int64) []driver.NamedValue { return []driver.NamedValue{{Ordinal: 1, Value: n}} }

// first reads one row.
func (c puddleClient) first(ctx context.Context, text string, n int64) error {
	return c.with(ctx, func(conn bareConn) error {
		rows, err := conn.QueryContext(ctx, text, argument(n))
		if err != nil {
			return err
		}
		var row [1]driver.Value
		err = rows.Next(row[:])
		return errors.Join(err, rows.Close())
	})
}

func (c puddleClient) query(ctx context.Context, n int64) error {
	return c.first(ctx, c.texts.query, n)
}

func (c puddleClient) balance(ctx context.Context, account int64) error {
	return c.first(ctx, c.texts.balance, account)
}

func (c puddleClient) exec(ctx context.Context, account int64) error {
	return c.with(ctx, func(conn bareConn) error {
		_, err := conn.ExecContext(ctx, c.texts.exec, argument(account))
		return err
	})
}

func (c puddleClient) transaction(ctx context.Context, account int64, statements int) error {
	return c.with(ctx, func(conn bareConn) error {
		tx, err := conn.BeginTx(ctx, driver.TxOptions{})
		if err != nil {
			return err
		}
		for range statements {
			if _, err := conn.ExecContext(ctx, c.texts.exec, argument(account)); err != nil {
				return errors.Join(err, tx.Rollback())
			}
		}
		return tx.Commit()
	})
}

func (c puddleClient) list(ctx context.Context) ([]int64, error) {
	ids := make([]int64, 0, listed)
	err := c.with(ctx, func(conn bareConn) error {
		rows, err := conn.QueryContext(ctx, c.texts.list, nil)
		if err != nil {
			return err
		}
		var row [1]driver.Value
		for err = rows.Next(row[:]); err == nil; err = rows.Next(row[:]) {
			ids = append(ids, row[0].(int64))
		}
		if err == io.EOF {
			err = nil
		}
		return errors.Join(err, rows.Close())
	})
	return ids, err
}

func (c puddleClient) hold(ctx context.Context) (func(), error) {
	r, err := c.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return r.Release, nil
}

func (c puddleClient) close() { c.pool.Close() }
