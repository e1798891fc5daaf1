package replica

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"

	"github.com/pooldriver/pooldriver/internal/driverconn"
)

// stmt is a prepared statement. It has one of each virtual connection on which it was executed or prepared.
type stmt struct {
	conn  *conn
	query string
	links []prepared
}

// prepared is a statement of one link.
type prepared struct {
	link *link
	virtualStmt
}

// virtualStmt is a prepared statement of package virtual.
type virtualStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
	driver.NamedValueChecker
}

var _ virtualStmt = (*stmt)(nil)

// on returns the statement of l.
func (s *stmt) on(ctx context.Context, l *link) (virtualStmt, error) {
	if i := slices.IndexFunc(s.links, func(p prepared) bool { return p.link == l }); i >= 0 {
		return s.links[i], nil
	}
	found, err := l.conn.PrepareContext(ctx, s.query)
	if err != nil {
		return nil, err
	}
	s.links = append(s.links, prepared{l, found.(virtualStmt)})
	return s.links[len(s.links)-1], nil
}

// Close closes the statements of all links.
func (s *stmt) Close() error {
	var errs []error
	for _, p := range s.links {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// NumInput leaves the counting to the conversion, as that of a virtual statement does.
func (s *stmt) NumInput() int { return -1 }

// CheckNamedValue accepts everything.
func (s *stmt) CheckNamedValue(*driver.NamedValue) error { return nil }

// ExecContext implements driver.StmtExecContext.
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	res, to, err := call(ctx, s.conn, func() (routed, error) { return s.conn.route(ctx, s.query) }, func(l *link) (driver.Result, error) {
		v, err := s.on(ctx, l)
		if err != nil {
			return nil, err
		}
		return v.ExecContext(ctx, args)
	})
	return s.conn.executed(ctx, s.query, to, res, err)
}

// QueryContext implements driver.StmtQueryContext.
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	rows, to, err := call(ctx, s.conn, func() (routed, error) { return s.conn.route(ctx, s.query) }, func(l *link) (driver.Rows, error) {
		v, err := s.on(ctx, l)
		if err != nil {
			return nil, err
		}
		return v.QueryContext(ctx, args)
	})
	return s.conn.asked(ctx, s.query, to, rows, err)
}

// Exec is ExecContext without a context.
func (s *stmt) Exec(args []driver.Value) (driver.Result, error) {
	return s.ExecContext(context.Background(), driverconn.Named(args))
}

// Query is QueryContext without a context.
func (s *stmt) Query(args []driver.Value) (driver.Rows, error) {
	return s.QueryContext(context.Background(), driverconn.Named(args))
}
