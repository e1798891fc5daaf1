package pooldriver

import (
	"context"
	"database/sql/driver"
	"slices"

	"github.com/pooldriver/pooldriver/dialects"
)

// stmt is a virtual prepared statement: a text, and the virtual connection on
// whose checkouts it runs. The driver's statement is found or made on whatever
// real connection serves the checkout.
type stmt struct {
	conn    *conn
	query   string
	edition uint64 // see editions; 0 where it does not matter
}

var (
	_ driver.Stmt              = (*stmt)(nil)
	_ driver.StmtExecContext   = (*stmt)(nil)
	_ driver.StmtQueryContext  = (*stmt)(nil)
	_ driver.NamedValueChecker = (*stmt)(nil)
)

// CheckNamedValue accepts everything, see conn.CheckNamedValue.
func (s *stmt) CheckNamedValue(*driver.NamedValue) error { return nil }

// NumInput leaves the counting to convertArgs: the driver's checker may remove
// arguments, and it runs after database/sql has counted.
func (s *stmt) NumInput() int { return -1 }

// Close sends nothing: the driver's statements are the cache's, and
// database/sql may call this under its own lock, where I/O has no place.
func (s *stmt) Close() error {
	if s.edition != 0 {
		s.conn.connector.editions.close(s.query)
		s.edition = 0
		s.conn.aging = slices.DeleteFunc(s.conn.aging, func(other *stmt) bool { return other == s })
	}
	return nil
}

// ExecContext executes the statement.
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	var res driver.Result
	err := s.run(ctx, args, func(t *try, r *realStmt, args []driver.NamedValue) (err error) {
		res, err = execStmt(ctx, r.si, args)
		return err
	})
	return res, err
}

// QueryContext executes the statement and returns its rows.
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	var res *rows
	err := s.run(ctx, args, func(t *try, r *realStmt, args []driver.NamedValue) error {
		real, err := queryStmt(ctx, r.si, args)
		if err == nil {
			r.open++
			res = &rows{real: real, owner: t.real, stmt: r}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

// run finds the driver's statement and calls it: on another connection if this
// one turned out dead before anything was sent, and once more if the statement
// is stale, for then nothing was executed. In a transaction a stale statement
// is the program's affair: the error may have failed the transaction.
func (s *stmt) run(ctx context.Context, args []driver.NamedValue, call func(*try, *realStmt, []driver.NamedValue) error) error {
	c := s.conn
	converted, renewed := false, false
	var t try
	defer c.escape(&t)
	for {
		if err := c.binding.start(ctx, c.connector, &t); err != nil {
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
		if !converted {
			if args, err = convertArgs(r.checker, rs.si, args); err != nil {
				r.stmts.done(rs)
				return err
			}
			converted = true
		}
		effect := r.note(s.query)
		t.call()
		err = call(&t, rs, args)
		again, err = c.binding.finish(ctx, c.connector, &t, err, true)
		if again {
			continue
		}
		if err != nil && c.connector.dialect.Diagnose(err)&dialects.StaleStatement != 0 {
			r.stmts.expire(rs)
			if !renewed && c.mayRenew(r, effect) {
				renewed = true
				r.stmts.done(rs)
				continue
			}
		}
		r.stmts.done(rs)
		r.settled(effect, err)
		return err
	}
}

// mayRenew reports whether a statement that turned out stale can be prepared
// and executed again. Not in a transaction, and not where it may have called
// code on the server that has done something before it failed.
func (c *conn) mayRenew(r *realConn, effect dialects.Effect) bool {
	if c.inTx || effect&(dialects.Suspect|dialects.TxControl) != 0 {
		return false
	}
	status := r.session.TxStatus()
	return status != dialects.TxOpen && status != dialects.TxFailed
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
