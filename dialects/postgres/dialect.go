// Package postgres is the dialect of PostgreSQL 13 and later, by
// github.com/jackc/pgx/v5. A blank import registers it:
//
//	import _ "github.com/pooldriver/pooldriver/dialects/postgres"
//
// # DSN
//
//	postgres://user:password@host:port/database?PARAMETERS
//	postgres:host=… user=… dbname=…      libpq's keywords and values
//
// Both forms may name several hosts, separated by commas as in libpq. target_session_attrs says
// which hosts fit: any, read-write, read-only, primary, standby or prefer-standby. Each dial tries
// the servers in the list's order, but last the servers that could not be reached lately. It asks
// each server for its role.
//
// Everything that pgx knows holds here too: its parameters, the environment (PGHOST, …), the
// password file and the service file. Each parameter reaches every real connection.
//
// A user or a database with one of : = & ; , in its name is refused, and a user
// with / ? #: a mistyped DSN has its password there, and errors show user, host and database.
package postgres

import (
	"database/sql/driver"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pooldriver/pooldriver/dialects"
	classifier "github.com/pooldriver/pooldriver/dialects/internal/classify/postgres"
)

func init() { dialects.Register(dialect{}) }

type dialect struct{ classifier.Texts }

var (
	_ dialects.Dialect = dialect{}
)

func (dialect) Name() string { return "postgres" }

func (dialect) Claim(dsn string) dialects.Claim { return claim(dsn) }

func (dialect) Parse(dsn string) (dialects.Template, error) {
	t, err := parse(dsn)
	if err != nil {
		return nil, err // a nil *template would be no nil Template
	}
	return t, nil
}

func (dialect) Wrap(c driver.Connector) (dialects.Template, error) { return wrap(c) }

// Diagnose goes by SQLSTATE and the name of the server's routine, which no
// translation of its messages changes. If err has the errors of several servers, Diagnose diagnoses
// the first, and adds whether one of the servers refused the credential or is full.
func (dialect) Diagnose(err error) dialects.Diagnosis {
	var first *pgconn.PgError
	if !errors.As(err, &first) {
		return 0
	}
	said := diagnose(first)
	for _, e := range serverErrors(err) {
		said |= diagnose(e) & (dialects.AuthFailed | dialects.ServerFull)
	}
	return said
}

// meanings are those of codes that have one meaning.
var meanings = map[string]dialects.Diagnosis{
	"28P01": dialects.AuthFailed,    // invalid_password
	"28000": dialects.AuthFailed,    // invalid_authorization_specification
	"57P01": dialects.ServerLeaving, // admin_shutdown
	"57P02": dialects.ServerLeaving, // crash_shutdown
	"57P03": dialects.ServerLeaving, // cannot_connect_now
	"40001": dialects.Conflict,      // serialization_failure
	"40P01": dialects.Conflict,      // deadlock_detected
	"OC000": dialects.Conflict,      // Aurora DSQL's own
	"OC001": dialects.Conflict,
	"53200": dialects.Spent,      // out_of_memory
	"53300": dialects.ServerFull, // too_many_connections
	"25006": dialects.RoleDoubt,  // read_only_sql_transaction
	// A standby says so of a table that is not in the log (UNLOGGED), of a serializable transaction, and of functions
	// that need the log or a transaction's number.
	"0A000": dialects.PrimaryOnly, // feature_not_supported
	"55000": dialects.PrimaryOnly, // object_not_in_prerequisite_state
}

func diagnose(e *pgconn.PgError) dialects.Diagnosis {
	switch e.Code {
	case "08P01": // protocol_violation, also PgBouncer's code for "no more connections"
		if strings.HasPrefix(e.Message, "no more connections allowed") {
			return dialects.ServerFull
		}
	case "26000": // invalid_sql_statement_name
		said := strings.HasPrefix(e.Message, `prepared statement "`) && strings.HasSuffix(e.Message, `" does not exist`)
		if outermost(e) && (e.Routine == "FetchPreparedStatement" || said) {
			return dialects.StaleStatement
		}
	case "0A000": // feature_not_supported, also the code of a plan that no longer fits
		if outermost(e) && (e.Routine == "RevalidateCachedQuery" || strings.HasPrefix(e.Message, "cached plan must not change result type")) {
			return dialects.StaleStatement
		}
	}
	return meanings[e.Code]
}

// outermost reports whether an error is about the statement that was sent, and not about a
// statement within a procedure or function, which may have committed something. The server gives a
// context with errors from within. With log_parameter_max_length_on_error it gives a context with
// other errors too: these then count as errors from within.
func outermost(e *pgconn.PgError) bool { return e.Where == "" }
