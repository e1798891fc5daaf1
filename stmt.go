package pooldriver

import (
	"context"
	"database/sql/driver"
	"slices"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
)

// stmt is a virtual prepared statement: a text, and the virtual connection on
// whose checkouts it runs. The driver's statement is found or made on whatever
// real connection serves the checkout.
type stmt struct {
	conn       *conn
	query      string
	generation uint64 // see stmtcache.Generations; 0 where it does not matter
	checkout   uint64 // of its connection, in which it was prepared; 0 when it is closed

	plain bool // not the program's: the text of a query with arguments
}

var (
	_ driver.Stmt              = (*stmt)(nil)
	_ driver.StmtExecContext   = (*stmt)(nil)
	_ driver.StmtQueryContext  = (*stmt)(nil)
	_ driver.NamedValueChecker = (*stmt)(nil)
)

// CheckNamedValue accepts everything, see conn.CheckNamedValue.
func (s *stmt) CheckNamedValue(*driver.NamedValue) error { return nil }

// NumInput leaves the counting to conn.convert: the driver's checker may remove
// arguments, and it runs after database/sql has counted.
func (s *stmt) NumInput() int { return -1 }

// Close sends nothing: the driver's statements are the cache's, and
// database/sql may call this under its own lock, where I/O has no place.
func (s *stmt) Close() error {
	if s.checkout == s.conn.checkouts {
		s.conn.fresh--
	}
	s.checkout = 0
	if s.generation != 0 {
		s.conn.connector.generations.Close(s.query)
		s.generation = 0
		s.conn.aging = slices.DeleteFunc(s.conn.aging, func(other *stmt) bool { return other == s })
	}
	return nil
}

// ExecContext executes the statement.
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	var res driver.Result
	err := s.run(ctx, args, func(_ *operation, r *stmtcache.Stmt, args []driver.NamedValue) (err error) {
		res, err = driverconn.ExecStmt(ctx, r.Driver, args)
		return err
	}, nil)
	return res, err
}

// QueryContext executes the statement and returns its rows.
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	var real driver.Rows
	var res *rows
	err := s.run(ctx, args, func(t *operation, r *stmtcache.Stmt, args []driver.NamedValue) (err error) {
		if real, err = driverconn.QueryStmt(ctx, r.Driver, args); err == nil {
			t.columns = columnsOf(real)
		}
		return err
	}, func(t *operation, r *stmtcache.Stmt) {
		res = s.conn.openRows(t, real, r)
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

// run finds the driver's statement and calls it: on another connection if this
// one turned out dead before anything was sent, and once more if the statement
// is stale, for then nothing was executed. In a transaction a stale statement
// is the program's affair: the error may have failed the transaction. open, for
// rows, is called after success, and is the last: who needs the connection may
// take open rows from it at once.
func (s *stmt) run(ctx context.Context, args []driver.NamedValue, call func(*operation, *stmtcache.Stmt, []driver.NamedValue) error, open func(*operation, *stmtcache.Stmt)) error {
	c := s.conn
	t := operation{returns: s.plain && open == nil}
	t.init(c, s.query, args)
	defer c.done(&t)
	for {
		if err := c.start(ctx, &t); err != nil {
			return err
		}
		rs, again, err := c.prepare(ctx, &t, s)
		if again {
			continue
		}
		if err != nil {
			return err
		}
		r := t.real
		again, err = c.convert(&t, rs)
		if again {
			continue
		}
		if err != nil {
			return err
		}
		if c.refits(&t, rs) {
			continue
		}
		r.recordStatement(&t, s.query)
		t.call()
		err = call(&t, rs, t.args)
		again, err = c.finish(ctx, &t, err, true)
		if again {
			continue
		}
		if t.said&dialects.StaleStatement != 0 {
			r.stmts.MarkStale(rs)
		}
		again = c.renews(&t, s.query)
		opens := err == nil && open != nil
		if opens {
			rs.Open++
		}
		r.stmts.Done(rs) // while we hold the lock
		if again {
			c.unlock(&t)
			continue
		}
		r.recordResult(t.effect, err)
		if opens {
			open(&t, rs)
		}
		return err
	}
}

// maxRenewals is how often a statement is prepared anew that nothing executes:
// once, and again for each further ALTER TABLE that comes between its preparing and
// its execution. On two busy processors, with an ALTER TABLE every 18 ms, three were not
// enough for 14 statements of 15,700. A server that goes on calling it stale has the
// last word.
const maxRenewals = 10

// renews lets t run once more if its statement was stale, and it may. Unlocking is the
// caller's.
func (c *conn) renews(t *operation, query string) bool {
	return t.said&dialects.StaleStatement != 0 && c.renew(t, query)
}

func (c *conn) renew(t *operation, query string) bool {
	if t.renewed == maxRenewals || !c.mayRenew(t.real, t.effect, query) {
		return false
	}
	t.renewed++
	return true
}

// mayRenew reports whether a statement that turned out stale can be prepared
// and executed again. Not in a transaction, and not where it may have called
// code on the server that has done something before it failed. Nor a script that
// writes: SQLite's driver runs its statements one after the other, each prepared and
// committed by itself.
func (c *conn) mayRenew(r *realConn, effect dialects.Effect, query string) bool {
	if c.tx != nil || r.begun() || effect&(dialects.Suspect|dialects.TxControl) != 0 {
		return false
	}
	if effect&dialects.Writes != 0 && dialects.MayBeScript(query) {
		return false
	}
	switch r.session.TxStatus() {
	case dialects.TxOpen, dialects.TxFailed, dialects.TxImplicit:
		return false
	}
	return true
}

// Exec is ExecContext without a context.
func (s *stmt) Exec(args []driver.Value) (driver.Result, error) {
	return s.ExecContext(context.Background(), named(args))
}

// Query is QueryContext without a context.
func (s *stmt) Query(args []driver.Value) (driver.Rows, error) {
	return s.QueryContext(context.Background(), named(args))
}

func named(args []driver.Value) []driver.NamedValue {
	n := make([]driver.NamedValue, len(args))
	for i, v := range args {
		n[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return n
}
