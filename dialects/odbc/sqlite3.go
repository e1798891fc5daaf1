//go:build odbc && cgo

package odbc

import (
	"context"
	"errors"
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/classify/sqlite"
)

// sqlite3 is SQLite by libsqliteodbc, in this process.
type sqlite3 struct {
	defaults // SQLite has no levels of isolation, and no statement for one transaction's rights
	sqlite.Texts
}

func (sqlite3) name() string { return "SQLite" }

func (sqlite3) remote() bool { return false }

func (sqlite3) traits(common dialects.Traits) dialects.Traits {
	common.WritesAlone, common.PreparingActs = true, true
	return common
}

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

// stale: libsqliteodbc counts the columns of a result only when it has the result.
func (sqlite3) stale(err error, query string) bool {
	return hasNative(err, sqliteSchema) || saysAny(err, "broken result set") && sqlite.Classify(query)&dialects.Writes == 0
}

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
