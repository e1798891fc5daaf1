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

// database is what differs between the databases behind ODBC. Its values hold
// nothing; what was learned of a connection is its session's.
type database interface {
	name() string
	// remote: there is a server, which can be lost and asked.
	remote() bool
	traits(common dialects.Traits) dialects.Traits
	Effect(query string) dialects.Effect
	OnlyReads(query string) bool
	AsksBack(query string) bool
	diagnose(err error) dialects.Diagnosis
	// harmless: err has cost the connection, and executing the statement again
	// elsewhere does no harm.
	harmless(err error, query string) bool
	// renewsQueries: a query has to be prepared for each execution.
	renewsQueries() bool
	// refuses: why a statement must not be executed as things are.
	refuses(c *conn, query string) error
	// stale: err says that the statement has to be prepared anew, and that
	// nothing of it was executed.
	stale(err error, query string) bool

	// mend removes what has kept a statement from being executed, if that can be
	// done: then it can be executed now.
	mend(ctx context.Context, c *conn, err error) bool

	// begin returns the statements that make a transaction what opts ask for:
	// one before it and one that is its first.
	begin(opts driver.TxOptions) (before, inside string, err error)

	// learn asks a new connection what the session needs to know.
	learn(ctx context.Context, s *session) error
	// status asks whether a transaction is open that the driver knows nothing of.
	status(ctx context.Context, s *session) dialects.TxStatus
	// rollback rolls it back.
	rollback(ctx context.Context, s *session) error
	clean(ctx context.Context, s *session, effect dialects.Effect) (kept bool, err error)
	// kill is the query that ends the session's connection from another, and
	// whether that one needs the database. Empty: there is none. Where sure, if
	// there is one, has no row, the connection is not to be found there.
	kill(s *session) (sure, query string, inDatabase bool)
}

// findDatabase asks which database this is. Each question is an error, and no
// more than that, where it is another's.
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

// byVersion finds the database by its answer to SELECT version(). A database that
// descends from PostgreSQL but lacks what cleaning needs (Redshift), or that only
// speaks PostgreSQL's language (CockroachDB), is not PostgreSQL here.
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

// defaultsOnly is what database/sql says for a driver without options.
func defaultsOnly(opts driver.TxOptions) error {
	switch {
	case sql.IsolationLevel(opts.Isolation) != sql.LevelDefault:
		return errIsolation
	case opts.ReadOnly:
		return errReadOnly
	}
	return nil
}

// characteristics are those of SET TRANSACTION, in the standard's words.
func characteristics(opts driver.TxOptions, separator string) (string, error) {
	var parts []string
	switch sql.IsolationLevel(opts.Isolation) {
	case sql.LevelDefault:
	case sql.LevelReadUncommitted:
		parts = append(parts, "ISOLATION LEVEL READ UNCOMMITTED")
	case sql.LevelReadCommitted:
		parts = append(parts, "ISOLATION LEVEL READ COMMITTED")
	case sql.LevelRepeatableRead:
		parts = append(parts, "ISOLATION LEVEL REPEATABLE READ")
	case sql.LevelSerializable:
		parts = append(parts, "ISOLATION LEVEL SERIALIZABLE")
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
