package clones

import (
	"context"
	"database/sql"
)

// sqlServer is what the server of a plan's DSN needs, whatever its database.
type sqlServer struct {
	plan  *Plan
	names names
	admin *sql.DB
	// session holds the locks of this process. Only open, hold and close use it.
	session *sql.Conn
}

// connect opens the session. stay keeps the server from ending it while it has nothing to do.
func (s *sqlServer) connect(ctx context.Context, stay string) (err error) {
	if s.session, err = s.admin.Conn(ctx); err == nil {
		_, err = s.session.ExecContext(ctx, stay)
	}
	return err
}

// lost closes the session and reports true if the session was lost. err is the end of ctx.
func (s *sqlServer) lost(ctx context.Context) (lost bool, err error) {
	if _, err := s.session.ExecContext(ctx, "SELECT 1"); err == nil || ctx.Err() != nil {
		return false, ctx.Err()
	}
	_ = s.session.Close()
	return true, nil
}

type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// collect runs a query. read scans each row into one element of the result.
func collect[T any](ctx context.Context, from queryer, read func(*sql.Rows, *T) error, query string, args ...any) (all []T, err error) {
	rows, err := from.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var one T
		if err := read(rows, &one); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

func (s *sqlServer) exec(ctx context.Context, text string, args ...any) error {
	_, err := s.admin.ExecContext(ctx, text, args...)
	return err
}

// close ends the session, and its locks with it.
func (s *sqlServer) close() {
	if s.session != nil {
		_ = s.session.Close()
	}
	if s.admin != nil {
		_ = s.admin.Close()
	}
}
