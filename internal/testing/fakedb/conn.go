package fakedb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// conn is the client's side of a session, with every optional interface. What
// database/sql sees of it is one of connShapes.
type conn struct {
	session *session
	variant Variant
	inUse   atomic.Bool
	closed  atomic.Bool
}

var (
	_ driver.Pinger             = (*conn)(nil)
	_ driver.Execer             = (*conn)(nil) //nolint:staticcheck // Deprecated, and drivers with it exist.
	_ driver.ExecerContext      = (*conn)(nil)
	_ driver.Queryer            = (*conn)(nil) //nolint:staticcheck // Deprecated, and drivers with it exist.
	_ driver.QueryerContext     = (*conn)(nil)
	_ driver.ConnPrepareContext = (*conn)(nil)
	_ driver.ConnBeginTx        = (*conn)(nil)
	_ driver.SessionResetter    = (*conn)(nil)
	_ driver.Validator          = (*conn)(nil)
	_ driver.NamedValueChecker  = (*conn)(nil)
)

// ErrBusy is the answer to a statement while rows are open, under
// BusyWhileRowsOpen.
var ErrBusy = errors.New("fakedb: the connection is busy: rows are open")

// use marks the connection as used by one call; the caller must call the
// function that it returns. Two uses at once are a violation.
func (c *conn) use(call Call) func() {
	if c.closed.Load() {
		c.session.server.violation("%s on closed connection %d", call, c.session.id)
	}
	if !c.inUse.CompareAndSwap(false, true) {
		c.session.server.violation("%s while another call runs on connection %d", call, c.session.id)
		return func() {}
	}
	return func() { c.inUse.Store(false) }
}

// call wraps every method that talks to the server: it logs, lets faults act,
// and notices that the session is gone.
func (c *conn) call(
	ctx context.Context, call Call, text string, args []driver.NamedValue, do func() error,
) error {
	defer c.use(call)()
	after, err := c.session.server.enter(ctx, c.session, call, text, args)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.dead() {
		return driver.ErrBadConn
	}
	return c.session.server.finish(after, c.session.id, do())
}

func (c *conn) dead() bool {
	c.session.server.mu.Lock()
	defer c.session.server.mu.Unlock()
	return c.session.dead
}

// ID tells which connection this is, as SHOW connection_id does. It is for
// tests that reach the driver's connection through sql.Conn.Raw.
func (c *conn) ID() int { return c.session.id }

func (c *conn) Close() error {
	done := c.use(ConnClose)
	defer done()
	after, err := c.session.server.enter(context.Background(), c.session, ConnClose, "", nil)
	if c.closed.Swap(true) {
		c.session.server.violation("connection %d closed twice", c.session.id)
	}
	c.session.server.Kill(c.session.id)
	return c.session.server.finish(after, c.session.id, err)
}

func (c *conn) Ping(ctx context.Context) error {
	return c.call(ctx, ConnPing, "", nil, func() error { return nil })
}

func (c *conn) ResetSession(ctx context.Context) error {
	return c.call(ctx, ConnReset, "", nil, func() error {
		if c.variant.Quirks&ResetFails != 0 {
			return errors.New("fakedb: reset failed")
		}
		return nil
	})
}

func (c *conn) IsValid() bool {
	defer c.use(ConnValid)()
	_, err := c.session.server.enter(context.Background(), c.session, ConnValid, "", nil)
	return err == nil && !c.dead()
}

func (c *conn) Begin() (driver.Tx, error) {
	return c.begin(context.Background(), ConnBegin, driver.TxOptions{})
}

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.begin(ctx, ConnBeginCtx, opts)
}

func (c *conn) begin(ctx context.Context, call Call, opts driver.TxOptions) (driver.Tx, error) {
	err := c.call(ctx, call, "", nil, func() error {
		c.session.server.mu.Lock()
		defer c.session.server.mu.Unlock()
		if c.session.dead { // since we were asked
			return driver.ErrBadConn
		}
		return c.session.beginLocked(opts)
	})
	if err != nil {
		return nil, err
	}
	return &tx{c}, nil
}

type tx struct{ conn *conn }

func (t *tx) Commit() error   { return t.end(TxCommit, (*session).commitLocked) }
func (t *tx) Rollback() error { return t.end(TxRollback, (*session).rollbackLocked) }

func (t *tx) end(call Call, end func(*session)) error {
	return t.conn.call(context.Background(), call, "", nil, func() error {
		t.conn.session.server.mu.Lock()
		defer t.conn.session.server.mu.Unlock()
		if t.conn.session.dead { // since we were asked; its transaction is rolled back
			return driver.ErrBadConn
		}
		end(t.conn.session)
		return nil
	})
}

func (c *conn) CheckNamedValue(nv *driver.NamedValue) error { return c.check(ConnCheck, "conn", nv) }

// check is what CheckNamedValue does for connections and statements; by says
// which of them it was.
func (c *conn) check(call Call, by string, nv *driver.NamedValue) error {
	defer c.use(call)()
	if _, err := c.session.server.enter(context.Background(), c.session, call, "", []driver.NamedValue{*nv}); err != nil {
		return err
	}
	switch v := nv.Value.(type) {
	case Option:
		c.session.server.mu.Lock()
		defer c.session.server.mu.Unlock()
		c.session.option = string(v)
		return driver.ErrRemoveArgument
	case Point:
		nv.Value = fmt.Sprintf("%s(%d,%d)", by, v.X, v.Y)
		return nil
	case Refused:
		return errors.New("fakedb: type Refused is not accepted")
	case sql.Out:
		return nil
	}
	return driver.ErrSkip
}

// run executes a parsed text and returns what each statement gave.
func (c *conn) run(ctx context.Context, p *parsed, args []driver.NamedValue) ([]outcome, error) {
	x := c.session
	if c.variant.Quirks&BusyWhileRowsOpen != 0 {
		x.server.mu.Lock()
		open := x.openRows
		x.server.mu.Unlock()
		if open > 0 {
			return nil, ErrBusy
		}
	}
	var outcomes []outcome
	for i := range p.statements {
		out, err := c.runOne(ctx, &p.statements[i], p.text, args)
		if err != nil {
			return outcomes, err
		}
		outcomes = append(outcomes, out)
	}
	return outcomes, nil
}

func (c *conn) runOne(ctx context.Context, s *statement, text string, args []driver.NamedValue) (outcome, error) {
	if err := c.before(ctx, s.hints); err != nil {
		return outcome{}, err
	}
	x := c.session
	x.server.mu.Lock()
	defer x.server.mu.Unlock()
	if x.dead {
		return outcome{}, driver.ErrBadConn
	}
	out, err := x.executeLocked(s, text, args)
	if err != nil {
		return out, err
	}
	for _, h := range s.hints {
		switch {
		case h.word == "badconn":
			x.server.endLocked(x)
			return outcome{}, driver.ErrBadConn
		case h.word == "break" && out.set != nil:
			out.set.breakAt, out.set.breakErr = h.count, errors.New("fakedb: "+h.text)
		case h.word == "breakconn" && out.set != nil:
			out.set.breakAt, out.set.breakErr = h.count, driver.ErrBadConn
		}
	}
	return out, nil
}

// before obeys the hints that act before a statement is executed.
func (c *conn) before(ctx context.Context, hints []hint) error {
	for _, h := range hints {
		switch h.word {
		case "panic":
			panic("fakedb: " + h.text)
		case "error":
			return errors.New("fakedb: " + h.text)
		case "sleep":
			timer := time.NewTimer(h.wait)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		case "badconn":
			if h.text == "before" {
				c.session.server.Kill(c.session.id)
				return driver.ErrBadConn
			}
		}
	}
	return nil
}

func positional(args []driver.Value) []driver.NamedValue {
	named := make([]driver.NamedValue, 0, len(args))
	for i, a := range args {
		named = append(named, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return slices.Clip(named)
}
