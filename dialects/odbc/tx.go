//go:build odbc && cgo

package odbc

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/pooldriver/pooldriver/dialects"
)

// tx is the driver's transaction: autocommit is off until it ends.
type tx struct {
	conn  *conn
	real  driver.Tx
	erred bool // a statement in it has failed
	over  bool // the server, or its ODBC driver, has rolled it back
}

// Begin is BeginTx without a context and options.
func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

// BeginTx switches autocommit off, and sets the properties of opts by statements of the database.
// After a failure the driver believes that a transaction is open, and the session may have got
// properties for the next transaction. So the connection ends then. Nothing was executed on it.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	before, inside, err := c.database.begin(opts)
	if err != nil {
		return nil, err
	}
	if before != "" {
		if err := c.execute(ctx, before); err != nil {
			return nil, err
		}
	}
	real, err := call(ctx, c, c.bare.Begin) //nolint:staticcheck // the driver has nothing newer
	if err != nil {
		if ctx.Err() != nil {
			c.lost = &lostError{what: "a transaction was cut short when it began", cause: err, ours: true}
			return nil, err
		}
		return nil, c.lose("the ODBC driver has failed to begin a transaction, and its connection is of no more use", err)
	}
	c.tx = &tx{conn: c, real: real}
	if inside != "" {
		if err := c.execute(ctx, inside); err != nil {
			if c.usable() == nil {
				_ = c.tx.Rollback()
			}
			return nil, err
		}
	}
	return c.tx, nil
}

// errFailed: psqlODBC says that a transaction was committed, although the server has said that it
// was rolled back.
var errFailed = errors.New("dialects/odbc: the transaction has failed at an earlier error, and was rolled back")

// Commit commits. For a lost connection, or a failed transaction, psqlODBC would say that the
// commit succeeded.
func (t *tx) Commit() error {
	if t.status() != dialects.TxOpen && t.conn.usable() == nil {
		return errors.Join(errFailed, t.Rollback())
	}
	return t.end(func() error {
		t.conn.executions++
		return t.conn.checkError(t.real.Commit())
	})
}

// status is the status of the driver's transaction. The database is asked only after an error in
// it. Otherwise the transaction is open, whatever a text has done: the next statement is in a
// transaction.
func (t *tx) status() dialects.TxStatus {
	switch {
	case t.over:
		return dialects.TxNone
	case t.erred:
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		defer cancel()
		if err := t.conn.execute(ctx, "SELECT 1"); hasState(err, "25P02") {
			return dialects.TxFailed
		}
		if t.conn.usable() != nil {
			return dialects.TxLost
		}
	}
	return dialects.TxOpen
}

// noteError remembers that an error has happened in a transaction.
func (c *conn) noteError(err error) error {
	if err == nil || c.tx == nil || err.Error() == noRows {
		return err
	}
	c.tx.erred = true
	if c.mode == transactionMode {
		c.tx.over = true
		return &endedError{err}
	}
	return err
}

// endedError is an error at which the whole transaction was rolled back: later statements would be
// in another transaction.
type endedError struct{ error }

func (e *endedError) Unwrap() error { return e.error }

// Rollback rolls back. If the server does not answer, the connection is lost.
func (t *tx) Rollback() error {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	return t.end(func() error { return t.rollback(ctx) })
}

func (t *tx) rollback(ctx context.Context) error {
	_, err := call(ctx, t.conn, func() (struct{}, error) { return struct{}{}, t.real.Rollback() })
	return err
}

// end calls how, which ends the transaction, and looks at the outcome. If how fails, the driver
// gives its connection up.
func (t *tx) end(how func() error) error {
	c := t.conn
	if err := c.usable(); err != nil {
		return err
	}
	err := how()
	if err == nil {
		c.tx = nil
		return nil
	}
	if c.lost == nil {
		_ = c.lose("the ODBC driver has failed to end a transaction, and its connection is of no more use", err)
	}
	return err
}
