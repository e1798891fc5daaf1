//go:build odbc && cgo

package odbc

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/classify/sqlite"
)

// sqlite3 is SQLite by libsqliteodbc, in this process.
type sqlite3 struct{ sqlite.Texts }

func (sqlite3) name() string { return "SQLite" }

func (sqlite3) remote() bool { return false }

func (sqlite3) traits(common dialects.Traits) dialects.Traits {
	common.WritesAlone, common.PreparingActs = true, true
	return common
}

func (sqlite3) harmless(error, string) bool { return false }

// renewsQueries: libsqliteodbc gives the columns that existed when the query was prepared. A
// prepare costs microseconds.
func (sqlite3) renewsQueries() bool { return true }

// SQLite's own result codes.
const (
	sqliteBusy        = 5
	sqliteInterrupted = 9
	sqliteSchema      = 17
)

func (sqlite3) diagnose(err error) dialects.Diagnosis {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || hasNative(err, sqliteInterrupted) {
		return dialects.TxEnded
	}
	if hasNative(err, sqliteBusy) {
		return dialects.Conflict
	}
	if sqlite.SaysUnknown(err) {
		return dialects.UnknownName
	}
	return 0
}

func (sqlite3) refuses(*conn, string) error { return nil }

// stale: libsqliteodbc counts the columns of a result only when it has the result.
func (sqlite3) stale(err error, query string) bool {
	return hasNative(err, sqliteSchema) || saysAny(err, "broken result set") && sqlite.Classify(query)&dialects.Writes == 0
}

func (sqlite3) mend(context.Context, *conn, error) bool { return false }

// begin: SQLite has no levels, and no statement for one transaction's rights.
func (sqlite3) begin(opts driver.TxOptions) (before, inside string, err error) {
	return "", "", defaultsOnly(opts)
}

func (sqlite3) learn(context.Context, *session) error { return nil }

// question always fails, and its error tells whether a transaction is open: see
// dialects/internal/anysqlite, status.go.
const question = "VACUUM INTO NULL"

func (sqlite3) status(_ context.Context, s *session) dialects.TxStatus {
	err := s.conn.execute(context.Background(), question) // in this process: nothing to wait for
	switch {
	case err == nil:
	case saysAny(err, "cannot VACUUM from within a transaction"):
		return dialects.TxOpen
	case saysAny(err, "cannot VACUUM - SQL statements in progress", "non-text filename"):
		return dialects.TxNone
	}
	return dialects.TxUnknown
}

func (sqlite3) rollback(ctx context.Context, s *session) error {
	err := s.conn.execute(ctx, "ROLLBACK")
	if err != nil && strings.Contains(err.Error(), "no transaction is active") {
		return nil
	}
	return err
}

// clean: see dialects/internal/anysqlite, Session.Clean.
func (sqlite3) clean(_ context.Context, _ *session, effect dialects.Effect) (bool, error) {
	if effect.Dirty() {
		return false, dialects.ErrCannotClean
	}
	return true, nil
}

func (sqlite3) kill(*session) (sure, query string, inDatabase bool) { return "", "", false }
