// Package anysqlite is the dialect of SQLite without a driver. It serves the connections that a program's
// connector makes, by whatever driver; package dialects/sqlite adds one driver and its DSN. It
// links no driver, so that a program has only its own.
package anysqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
	classifier "github.com/pooldriver/pooldriver/dialects/internal/classify/sqlite"
)

// Dialect is SQLite's dialect, for connectors only.
type Dialect struct{ classifier.Texts }

var (
	_ dialects.Dialect     = Dialect{}
	_ dialects.StateTeller = Dialect{}
)

// Name is "sqlite".
func (Dialect) Name() string { return "sqlite" }

// Claim claims nothing.
func (Dialect) Claim(string) dialects.Claim { return dialects.NotMine }

// Parse is an error: there is no driver to open a DSN with.
func (Dialect) Parse(string) (dialects.Template, error) {
	return nil, errors.New("this dialect of SQLite has no driver; wrap the connector of a driver")
}

// Wrap takes a connector of a driver of SQLite.
func (Dialect) Wrap(c driver.Connector) (dialects.Template, error) { return wrap(c) }

// SQLite's result codes.
const (
	busy          = 5 // with SQLITE_BUSY_SNAPSHOT and others in its higher bits
	locked        = 6
	interrupted   = 9
	schemaChanged = 17
)

// states are the SQLSTATEs of result codes, as other databases give them.
var states = map[int]string{
	1: "42000", 3: "42501", busy: "55P03", locked: "55P03", 7: "53200", 8: "25006", interrupted: "57014", 10: "58030", 11: "XX001", 13: "53100", 14: "58030", 18: "54000", 19: "23000", 20: "22000", 23: "42501", 26: "XX001",
}

// SQLState implements dialects.StateTeller.
func (Dialect) SQLState(err error) string { return states[resultOf(err)] }

// results are the texts of these codes, with which the errors of most drivers begin.
var results = map[string]int{"database is locked": busy, "database table is locked": locked, "interrupted": interrupted, "database schema has changed": schemaChanged,
	"database or disk is full": 13, "disk I/O error": 10, "attempt to write a readonly database": 8}

// resultOf returns the result code of a driver's error; 0: no known code.
func resultOf(err error) int {
	var coded interface {
		error
		Code() int // modernc.org/sqlite, glebarez/go-sqlite
	}
	if errors.As(err, &coded) {
		return coded.Code() & 0xff
	}
	text := strings.TrimPrefix(err.Error(), "sqlite3: ") // ncruces/go-sqlite3
	for begin, code := range results {
		if strings.HasPrefix(text, begin) {
			return code
		}
	}
	return 0
}

// Diagnose knows five errors. When a schema has changed, the driver itself prepares the statement
// again, several times; if the error still comes, nothing was executed. A write that is interrupted
// (its context has ended) rolls the whole transaction back. A COMMIT that finds the database busy
// leaves the transaction open. In a shared cache SQLite ends the wait of a transaction if the other
// transaction waits for it.
func (Dialect) Diagnose(err error) dialects.Diagnosis {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return dialects.TxEnded // the driver's word for interrupted
	case classifier.SaysUnknown(err):
		return dialects.UnknownName
	}
	switch resultOf(err) {
	case busy:
		return dialects.Conflict
	case locked:
		if strings.Contains(err.Error(), "deadlocked") { // otherwise the lock belongs to a statement of the same connection
			return dialects.Conflict
		}
	case schemaChanged:
		return dialects.StaleStatement
	case interrupted:
		return dialects.TxEnded
	}
	return 0
}
