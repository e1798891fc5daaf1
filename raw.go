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
// The connection is fn's until it returns; fn must not keep it, or close it. What
// else is done with conn until then, by fn or by another goroutine, is an error at
// once: a statement, a BeginTx, another Raw, reading rows that conn has open. A
// transaction of conn's that is to end meanwhile is rolled back when fn returns. What
// fn does is not seen by us, so the session is cleaned
// afterwards, when conn is closed (not with ResetOff). ctx is for taking a
// connection from the pool, where conn has none yet; fn has its own. An error of
// fn is returned as it is; driver.ErrBadConn closes the connection. If fn panics
// the connection is closed, and the panic goes on.
func Raw(ctx context.Context, sqlConn *sql.Conn, fn func(driver.Conn) error) (err error) {
	switch {
	case sqlConn == nil:
		return errors.New("pooldriver: Raw was given no *sql.Conn")
	case fn == nil:
		return errors.New("pooldriver: Raw was given no function")
	}
	// database/sql's Raw holds a lock, in which all that fn tried with sqlConn would
	// wait for ever. So fn is called between two of them.
	var l *loan
	if err := sqlConn.Raw(func(dc any) (err error) {
		c, ok := dc.(*conn)
		if !ok {
			return errors.New("pooldriver: Raw was given a connection of another driver")
		}
		l, err = c.lend(ctx)
		return err
	}); err != nil {
		return err
	}
	err = errRawPanicked
	defer func() {
		ended := false
		_ = sqlConn.Raw(func(any) error {
			ended = true
			l.end(err)
			if err == errRawPanicked {
				return driver.ErrBadConn // database/sql closes sqlConn
			}
			return err
		})
		if !ended {
			l.endUnheld(err)
		}
	}()
	err = l.real.Guard(func() error { return fn(l.real.DriverConn()) }) // a panic costs the connection
	return err
}

// loan is a session that a function of Raw has. What belongs to its conn is protected as
// that is, by database/sql's lock.
type loan struct {
	conn  *conn
	bound *binding
	real  *realConn
	busy  chan struct{} // closed when the function has returned
	later []func()      // what is to be done with the session then; without a task
}

// anything is what a function of Raw may have done.
const anything = dialects.Suspect | dialects.TxControl | dialects.ForgetPrepared | dialects.NamedPrepared

// lend finds the session for a function of Raw. From here on c refuses everything.
func (c *conn) lend(ctx context.Context) (*loan, error) {
	if err := c.do(ctx, &operation{kind: lending, kept: true}); err != nil {
		return nil, err
	}
	return c.lent, nil
}

// lendTo is lend, under the lock. The function may use its task. What needs this very
// session then waits for a while, and is told. Nobody else calls the driver until it
// returns.
func (c *conn) lendTo(op *operation) error {
	r := op.real
	if c.bound.isPrivate() && (r.Unusable() || r.Severed()) {
		return driver.ErrBadConn // a call that was given up may still be under way on it
	}
	c.touched, c.executed = true, true
	r.RecordEffect(anything)
	c.lent = &loan{conn: c, bound: c.bound, real: r, busy: make(chan struct{})}
	c.refusal = errLent
	r.use.raw = c.lent.busy
	c.ran(r)
	return nil
}

// end takes the session back into its conn.
func (l *loan) end(err error) {
	c, r := l.conn, l.real
	c.lent, c.refusal = nil, nil
	l.giveBack(err, func() {
		if (l.bound.isPrivate() || !r.Begun()) && err != errRawPanicked && !errors.Is(err, driver.ErrBadConn) && !r.Left() {
			c.refusal = errRawClosed
		}
	})
	if err != errRawPanicked { // else nobody asks the driver anything
		for _, do := range l.later {
			do()
		}
	}
}

// endUnheld is end where conn was closed meanwhile, and is not ours any more. Without a
// task the connection ends, for what is open on it cannot be known.
func (l *loan) endUnheld(err error) {
	l.giveBack(err, func() {
		if l.bound.isPrivate() {
			l.real.MarkUnusable()
		}
	})
}

// giveBack lets others have the session again. look is called under its lock.
func (l *loan) giveBack(err error, look func()) {
	r := l.real
	_ = r.Lock(context.Background())
	if errors.Is(err, driver.ErrBadConn) {
		r.MarkUnusable()
	}
	r.use.raw = nil
	close(l.busy)
	r.RecordResult(anything, err)
	look()
	l.bound.release(r)
}

var (
	errRawPanicked = errors.New("pooldriver: the function of Raw panicked")
	errLent        = errors.New("pooldriver: this *sql.Conn is lent to a function of Raw until that returns: let the function use the driver.Conn that it was given, or take another *sql.Conn")
	errEndInRaw    = errors.New("pooldriver: a transaction was to be committed while a function of Raw has its connection: it is rolled back when that returns; commit after it")
	// errRawClosed makes database/sql close the *sql.Conn.
	errRawClosed = fmt.Errorf("pooldriver: the function of Raw has closed the connection of this *sql.Conn, or left it unusable, and its session is gone: take another *sql.Conn, and let the function return driver.ErrBadConn where it ends a connection on purpose: %w", driver.ErrBadConn)
)

// rawPatience is how long a statement waits for a function of Raw that has its
// task's session. It may be called by that very function.
const rawPatience = 500 * time.Millisecond

// awaitRaw waits, without a lock, for the end of a function of Raw.
func (b *binding) awaitRaw(ctx context.Context, busy <-chan struct{}) error {
	timer := time.NewTimer(rawPatience)
	defer timer.Stop()
	select {
	case <-busy:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fmt.Errorf("pooldriver: the session of %s has been lent to a function of Raw for more than %v; let that function use the connection it was given", b.task.Name(), rawPatience)
	}
}
