//go:build odbc && cgo

package odbc

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/classify/postgres"
)

// postgresql is PostgreSQL by psqlODBC.
//
// With autocommit on, psqlODBC commits after every statement, also in a transaction that the text
// BEGIN has begun. Such a transaction lasts until the next statement, here and over the bare
// driver.
type postgresql struct {
	defaults
	postgres.Texts
}

func (postgresql) name() string { return "PostgreSQL" }

func (postgresql) remote() bool { return true }

func (postgresql) traits(common dialects.Traits) dialects.Traits {
	common.PreparedAges = true
	return common
}

// diagnose uses SQLSTATE if psqlODBC passes it on. For a refused connection psqlODBC says 08001,
// and gives the reason only in words.
func (postgresql) diagnose(err error) dialects.Diagnosis {
	var ended *endedError
	switch {
	case serverLost(err), hasState(err, "57P01", "57P02", "57P03"):
		return dialects.ServerLeaving
	case errors.As(err, &ended):
		return dialects.TxEnded
	case hasState(err, "40001", "40P01"):
		return dialects.Conflict
	case hasState(err, "53300"), saysAny(err, "too many clients already", "remaining connection slots", "too many connections for role"):
		return dialects.ServerFull
	case hasState(err, "28P01", "28000"), saysAny(err, "password authentication failed"):
		return dialects.AuthFailed
	}
	return 0
}

// stale: PostgreSQL plans a prepared statement anew when its tables change, but cannot change its
// columns. psqlODBC does not pass on whether an error comes from a function. In a statement that
// cannot commit, the error undoes everything.
func (postgresql) stale(err error, query string) bool {
	gone := hasState(err, "0A000") && saysAny(err, "cached plan must not change result type") ||
		hasState(err, "26000") && saysAny(err, `prepared statement "_PLAN`)
	return gone && postgres.Classify(query)&dialects.TxControl == 0
}

var planExists = regexp.MustCompile(`prepared statement "(_PLAN[0-9A-Za-z]+)" already exists`)

// mend: psqlODBC names plans by the addresses of its statements, and does not always end a plan on
// the server before another statement has the address.
func (postgresql) mend(ctx context.Context, c *conn, err error) bool {
	if !hasState(err, "42P05") {
		return false
	}
	plan := planExists.FindStringSubmatch(err.Error())
	return plan != nil && c.execute(ctx, `DEALLOCATE "`+plan[1]+`"`) == nil
}

// begin: the first statement sets the transaction's properties. PostgreSQL calls LevelSnapshot
// repeatable read (13.2.2).
func (postgresql) begin(opts driver.TxOptions) (before, inside string, err error) {
	if sql.IsolationLevel(opts.Isolation) == sql.LevelSnapshot {
		opts.Isolation = driver.IsolationLevel(sql.LevelRepeatableRead)
	}
	inside, err = characteristics(opts, " ")
	return "", inside, err
}

// learn also asks for the settings that psqlODBC has made by SET (DateStyle,
// extra_float_digits, the DSN's ConnSettings): RESET ALL does not know them.
func (postgresql) learn(ctx context.Context, s *session) error {
	row, err := s.askRow(ctx, "SELECT pid, "+begun+" FROM pg_stat_activity WHERE pid = pg_backend_pid()", 2)
	if err != nil {
		return err
	}
	s.number, _ = strconv.ParseInt(row[0], 10, 64)
	s.mark = row[1]
	if s.conn.mode, err = s.how.template.errorMode(ctx, s.conn); err != nil {
		return err
	}
	settings, err := s.conn.ask(ctx, "SELECT name, setting FROM pg_settings WHERE source = 'session' "+
		"UNION ALL SELECT 'role', current_setting('role') WHERE current_setting('role') <> 'none' ORDER BY 1")
	if err != nil {
		return err
	}
	for _, setting := range settings {
		s.home = append(s.home, fmt.Sprintf("set_config('%s', '%s', false)", quoted(setting[0]), quoted(setting[1])))
	}
	return nil
}

// errorMode is what psqlODBC does in a transaction after an error, as Protocol=7.4-N
// in the connection string says.
type errorMode int32

const (
	serverMode      errorMode = iota + 1 // N 0: psqlODBC does nothing; the server refuses later statements
	transactionMode                      // N 1: psqlODBC rolls the transaction back, and begins another
	statementMode                        // N 2, the default: psqlODBC rolls the statement back
)

// errorMode finds out, once for all connections of the template.
func (t *template) errorMode(ctx context.Context, c *conn) (errorMode, error) {
	if mode := errorMode(t.mode.Load()); mode != 0 {
		return mode, nil
	}
	tx, err := c.BeginTx(ctx, driver.TxOptions{})
	if err != nil {
		return 0, err
	}
	const transaction = "SELECT transaction_timestamp()::text" // not a transaction's number: on a standby there is none
	before, err := c.ask(ctx, transaction)
	if err != nil {
		return 0, errors.Join(err, tx.Rollback())
	}
	_ = c.execute(ctx, "SELECT 1/0")
	after, err := c.ask(ctx, transaction)
	mode := statementMode
	switch {
	case hasState(err, "25P02"):
		mode, err = serverMode, nil
	case err == nil && after[0][0] != before[0][0]:
		mode = transactionMode
	}
	if err = errors.Join(err, tx.Rollback()); err == nil {
		t.mode.Store(int32(mode))
	}
	return mode, err
}

var errSavepoint = errors.New("a savepoint (also a transaction begun inside another) cannot be had: psqlODBC rolls back statement by statement, " +
	"by savepoints of its own that end the program's; add Protocol=7.4-0 to the connection string, with which an error fails the transaction as PostgreSQL has it")

var savepointWord = regexp.MustCompile(`(?i)^\s*SAVEPOINT\s`)

func (postgresql) refuses(c *conn, query string) error {
	if c.mode == statementMode && c.tx != nil && savepointWord.MatchString(query) {
		return errSavepoint
	}
	return nil
}

func quoted(s string) string { return strings.ReplaceAll(s, "'", "''") }

const (
	savepoint      = "SAVEPOINT pooldriver_question"
	endOfSavepoint = "RELEASE SAVEPOINT pooldriver_question"
)

// status: outside of a transaction a savepoint is an error, and PostgreSQL has no function that
// tells whether a transaction is open. psqlODBC commits after the savepoint: an open transaction is
// over then.
func (postgresql) status(ctx context.Context, s *session) dialects.TxStatus {
	for _, query := range []string{savepoint, endOfSavepoint} {
		err := s.conn.execute(ctx, query)
		switch {
		case err == nil:
		case hasState(err, "25P01"):
			return dialects.TxNone
		case hasState(err, "25P02"):
			return dialects.TxFailed
		case s.conn.lost != nil:
			return dialects.TxLost
		default:
			return dialects.TxUnknown
		}
	}
	return dialects.TxOpen
}

func (postgresql) clean(ctx context.Context, s *session, effect dialects.Effect) (kept bool, err error) {
	kept = postgres.KeepsPrepared(effect)
	if !kept {
		s.conn.closeStatements()
	}
	if effect&dialects.NamedPrepared != 0 {
		if err := s.conn.execute(ctx, "DEALLOCATE ALL"); err != nil {
			return false, err
		}
	}
	all := postgres.Cleaning(effect)
	if len(s.home) > 0 {
		all += "; SELECT " + strings.Join(s.home, ", ")
	}
	if err := s.conn.execute(ctx, all); err != nil {
		return false, err
	}
	return kept, nil
}

// begun is when a backend has begun, in a form that no setting changes.
const begun = "CAST(extract(epoch FROM backend_start) AS text)"

// kill: if the DSN now leads to another server, the number may belong to another backend, which has
// begun at another time.
func (postgresql) kill(s *session) (sure, query string, inDatabase bool) {
	return "", fmt.Sprintf("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %d AND %s = '%s'", s.number, begun, s.mark), true
}
