//go:build odbc && cgo

package odbc

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
)

// database is what differs between the databases behind ODBC. Its values have no state: what was
// learned of a connection is in its session.
type database interface {
	name() string
	// remote: a server exists, which can be lost and can be asked.
	remote() bool
	traits(common dialects.Traits) dialects.Traits
	Effect(query string) dialects.Effect
	OnlyReads(query string) bool
	AsksBack(query string) bool
	diagnose(err error) dialects.Diagnosis
	// harmless: err has cost the connection, and the statement may be executed again on another
	// connection without harm.
	harmless(err error, query string) bool
	// renewsQueries: a query must be prepared for each execution.
	renewsQueries() bool
	// refuses returns why a statement must not be executed in the present state.
	refuses(c *conn, query string) error
	// stale: err says that the statement must be prepared again, and that no part of it was
	// executed.
	stale(err error, query string) bool

	// mend removes what has prevented the execution of a statement, if possible. true: the
	// statement can be executed now.
	mend(ctx context.Context, c *conn, err error) bool

	// begin returns the statements that give a transaction the properties of opts: one before the
	// transaction, and one as its first statement.
	begin(opts driver.TxOptions) (before, inside string, err error)

	// learn asks a new connection what the session needs to know.
	learn(ctx context.Context, s *session) error
	// status asks whether a transaction is open that the driver does not know.
	status(ctx context.Context, s *session) dialects.TxStatus
	// rollback rolls this transaction back.
	rollback(ctx context.Context, s *session) error
	clean(ctx context.Context, s *session, effect dialects.Effect) (kept bool, err error)
	// kill returns the query that ends the session's connection from another connection; empty: no
	// such query exists. inDatabase: the other connection needs the database. If sure is not empty
	// and has no row, the connection is not on that server.
	kill(s *session) (sure, query string, inDatabase bool)
}

// defaults is what holds for most databases.
type defaults struct{}

func (defaults) harmless(error, string) bool { return false }

func (defaults) renewsQueries() bool { return false }

func (defaults) refuses(*conn, string) error { return nil }

func (defaults) mend(context.Context, *conn, error) bool { return false }

// begin says what database/sql says for a driver without options.
func (defaults) begin(opts driver.TxOptions) (before, inside string, err error) {
	switch {
	case sql.IsolationLevel(opts.Isolation) != sql.LevelDefault:
		err = errIsolation
	case opts.ReadOnly:
		err = errReadOnly
	}
	return "", "", err
}

func (defaults) learn(context.Context, *session) error { return nil }

func (defaults) rollback(ctx context.Context, s *session) error {
	return s.conn.execute(ctx, "ROLLBACK")
}

// clean: the changes cannot be undone.
func (defaults) clean(_ context.Context, _ *session, effect dialects.Effect) (kept bool, err error) {
	if effect.Dirty() {
		return false, dialects.ErrCannotClean
	}
	return true, nil
}

func (defaults) kill(*session) (sure, query string, inDatabase bool) { return "", "", false }

// findDatabase asks which database this is. On another database each question is only an error.
func (s *session) findDatabase(ctx context.Context) error {
	found := database(unknown{})
	var version string
	version, err := s.askOne(ctx, "SELECT version()")
	switch {
	case err == nil:
		found = byVersion(version)
	case s.conn.lost != nil || ctx.Err() != nil:
		return err
	default:
		if version, err = s.askOne(ctx, "SELECT sqlite_version()"); err == nil && version != "" {
			found = sqlite3{}
		} else if s.conn.lost != nil || ctx.Err() != nil {
			return err
		}
	}
	s.version = version
	s.database, s.conn.database = found, found
	s.conn.strict = found == unknown{}
	return found.learn(ctx, s)
}

// byVersion finds the database by its answer to SELECT version(). A database that descends from
// PostgreSQL but lacks what the cleaning needs (Redshift), or that only speaks PostgreSQL's
// language (CockroachDB), does not count as PostgreSQL here.
func byVersion(version string) database {
	rest, postgres := strings.CutPrefix(version, "PostgreSQL ")
	number, _, _ := strings.Cut(version, ".")
	switch {
	case postgres && len(rest) >= 2 && rest[0] == '1' && rest[1] >= '0' && rest[1] <= '9' && !strings.Contains(rest, "-YB-"):
		return postgresql{} // 10 and later
	case strings.Contains(version, "MariaDB"):
		return mariadb{}
	case number == "8" || number == "9":
		return mariadb{asMySQL: true}
	}
	return unknown{}
}

var (
	errIsolation = errors.New("sql: driver does not support non-default isolation level")
	errReadOnly  = errors.New("sql: driver does not support read-only transactions")
)

// characteristics are the characteristics of SET TRANSACTION, in the standard's words.
func characteristics(opts driver.TxOptions, separator string) (string, error) {
	var parts []string
	switch level := sql.IsolationLevel(opts.Isolation); level {
	case sql.LevelDefault:
	case sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable:
		parts = append(parts, "ISOLATION LEVEL "+strings.ToUpper(level.String()))
	default:
		return "", errIsolation
	}
	if opts.ReadOnly {
		parts = append(parts, "READ ONLY")
	}
	if len(parts) == 0 {
		return "", nil
	}
	return "SET TRANSACTION " + strings.Join(parts, separator), nil
}
