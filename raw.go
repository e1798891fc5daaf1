package pooldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
)

// Raw calls fn with the driver's own connection behind conn, for what only the
// driver can do: COPY and LISTEN with pgx, backups with SQLite. (conn.Raw gives
// the virtual connection, on which a type assertion to the driver's type
// fails.)
//
//	err := pooldriver.Raw(ctx, conn, func(dc driver.Conn) error {
//		pg := dc.(*stdlib.Conn).Conn()
//		_, err := pg.CopyFrom(ctx, …)
//		return err
//	})
//
// The connection is fn's until it returns; fn must not keep it, close it, or
// use conn. What fn does is not seen by us, so the session is cleaned
// afterwards, when conn is closed (not with ResetOff). ctx is for taking a
// connection from the pool, where conn has none yet; fn has its own. An error of
// fn is returned as it is; driver.ErrBadConn closes the connection. If fn panics
// the connection is closed, and the panic goes on.
func Raw(ctx context.Context, sqlConn *sql.Conn, fn func(driver.Conn) error) error {
	return sqlConn.Raw(func(dc any) error {
		c, ok := dc.(*conn)
		if !ok {
			return errors.New("pooldriver: Raw was given a connection of another driver")
		}
		return c.raw(ctx, fn)
	})
}

func (c *conn) raw(ctx context.Context, fn func(driver.Conn) error) (err error) {
	t := try{raw: true}
	defer c.done(&t)
	if err := c.start(ctx, &t); err != nil {
		return err
	}
	if !t.turn && (t.real.broken || t.real.cut.Load()) {
		return driver.ErrBadConn // a call that was given up may still be under way on it
	}
	c.touched, c.executed = true, true
	const anything = dialects.Suspect | dialects.TxControl | dialects.ForgetPrepared | dialects.NamedPrepared
	r := t.real
	r.note(anything)
	if !t.turn {
		err = call(r, fn)
		r.settled(anything, err)
		return err
	}
	// fn may use the task. What needs this very connection then waits for a
	// while, and is told. Nobody else calls the driver until fn returns.
	busy := make(chan struct{})
	r.seat.raw = busy
	c.runs(r)
	c.endTurn(&t)
	err = errRawPanicked
	defer func() {
		_ = r.turn.take(context.Background())
		r.broken = r.broken || errors.Is(err, driver.ErrBadConn)
		r.seat.raw = nil
		close(busy)
		t.turn = true
		r.settled(anything, err)
	}()
	err = call(r, fn)
	return err
}

var errRawPanicked = errors.New("pooldriver: the function of Raw panicked")

func call(r *realConn, fn func(driver.Conn) error) error {
	r.running++ // a panic of fn costs the connection
	dc := r.conn
	if f, ok := r.session.(dialects.Fronted); ok {
		dc = f.Bare()
	}
	err := fn(dc)
	r.running--
	return err
}

// rawPatience is how long a statement waits for a function of Raw that has its
// task's session. It may be called by that very function.
const rawPatience = 500 * time.Millisecond

// awaitRaw waits, without a turn, for the end of a function of Raw.
func (b *binding) awaitRaw(ctx context.Context, busy <-chan struct{}) error {
	timer := time.NewTimer(rawPatience)
	defer timer.Stop()
	select {
	case <-busy:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fmt.Errorf("pooldriver: the session of %s has been lent to a function of Raw for more than %v; let that function use the connection it was given", b.task.name(), rawPatience)
	}
}
