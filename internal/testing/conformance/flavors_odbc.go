package conformance

import (
	"database/sql"
	"encoding/json"
	"math"
	"testing"
	"time"
)

// The flavors over ODBC, through alexbrainman/odbc. That driver has neither
// isolation levels, nor read-only transactions, nor named arguments. It reads
// numbers with a point as float64 and times without their zone.

// OverODBC is a target of the driver, with what is different of it on every
// database, and what it cannot be put through.
func OverODBC(f Flavor, bare, wrapped func(t testing.TB) *sql.DB) Target {
	const kept = "the driver promises another result set without end, and database/sql keeps its connection"
	omit := map[string]string{
		"BigArgumentsAndResultsAreWhole":   "the driver panics at a text that is longer than its column is said to be",
		"QueryOfANonQueryExecutesOnce":     "the driver executes it and makes an error of it; here it gives no rows",
		"ResultsLongerThanABufferAreWhole": kept,
	}
	if f.Sleep != "" {
		omit["CancelEndsALongStatement"] = "the driver cannot cancel Exec"
		omit["CancelInsideATransactionEndsTheStatement"] = "the driver cannot cancel Exec"
	}
	return Target{
		Name: f.Name, SQL: f, Bare: bare, Wrapped: wrapped,
		Differences: []Difference{
			{Case: "RowsReleaseTheirConnectionAtTheEnd", Label: "in use at the end",
				Reason: "rows that are read to their end let go of their connection", Permits: becomes(describe(0))},
			{Case: "ColumnTypesAreKnownAfterTheLastRow", Label: "after the last",
				Reason: "rows that are read to their end are closed", Permits: failing},
			{Case: "WrongNumbersOfArgumentsAreRefusedAlike", Label: "query",
				Reason: "a statement is kept for the query, and database/sql counts its arguments", Permits: holding("sql: expected 2 arguments, got ")},
		},
		Omit: omit,
	}
}

// SQLiteOverODBC is SQLite through libsqliteodbc.
func SQLiteOverODBC() Flavor {
	f := SQLite()
	f.Name = "sqlite over ODBC"
	f.Multi, f.MultiExec = "", "" // "only one SQL statement allowed"
	f.Named, f.Isolations, f.ReadOnly = "", nil, false
	f.Sleep = "" // statements run to their end, also when their context has ended
	f.Values = []TypedValue{
		{"INTEGER", int64(math.MaxInt32), into[int64]()},
		{"BIGINT", int64(math.MaxInt64), into[int64]()},
		{"DOUBLE", math.Pi, into[float64]()},
		{"VARCHAR(20)", "it's äöü", into[sql.NullString]()},
		{"TEXT", bigText[:200], into[string]()}, // longer ones make the driver panic
		{"BLOB", []byte{0, 1, 255}, into[[]byte]()},
		{"BLOB", []byte(bigText[:200]), into[sql.RawBytes]()}, // as for TEXT
		{"DATE", time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC), into[time.Time]()},
		{"TIMESTAMP", leapDay, into[time.Time]()},
	}
	return f
}

// PostgresOverODBC is PostgreSQL through psqlODBC.
func PostgresOverODBC() Flavor {
	f := Postgres()
	f.Name = "postgres over ODBC"
	f.Dollar = false
	f.Insert = "INSERT INTO t VALUES (?, ?)"
	f.Multi = "SELECT 1 AS a; SELECT 2 AS b, 'x' AS c; SELECT 3 AS d UNION SELECT 4 ORDER BY 1"
	f.Types = map[string]string{"BLOB": "BYTEA", "FLOAT": "DOUBLE PRECISION"}
	f.Isolations, f.ReadOnly = nil, false
	f.Values = []TypedValue{
		{"SMALLINT", int64(math.MinInt16), into[int16]()},
		{"INTEGER", int64(math.MaxInt32 - 1), into[int32]()},
		{"BIGINT", int64(math.MaxInt64), into[int64]()},
		{"DOUBLE PRECISION", math.Pi, into[float64]()},
		{"NUMERIC(20,5)", "12345678901.50000", into[string]()},
		{"BOOLEAN", true, into[bool]()},
		{"TEXT", "it's äöü", into[string]()},
		{"TEXT", bigText[:8000], into[string]()},
		{"VARCHAR(20)", "short", into[sql.NullString]()},
		{"CHAR(5)", "ab", into[string]()},
		{"BYTEA", []byte{0, 1, 255}, into[[]byte]()},
		{"DATE", time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC), into[time.Time]()},
		{"TIMESTAMP", leapDay, into[time.Time]()},
		{"UUID", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", into[string]()},
		{"JSON", `{"a": [1, null]}`, into[json.RawMessage]()},
	}
	return f
}

// MariaDBOverODBC is MariaDB through its Connector/ODBC. Multi statements need
// OPTION=67108864 in the connection string.
func MariaDBOverODBC() Flavor {
	f := MySQL()
	f.Name = "mariadb over ODBC"
	f.Isolations, f.ReadOnly = nil, false
	f.Values = []TypedValue{
		{"TINYINT", int64(-128), into[int8]()},
		{"INT", int64(math.MaxInt32 - 1), into[int32]()},
		{"BIGINT", int64(math.MaxInt64), into[int64]()},
		{"DOUBLE", math.Pi, into[float64]()},
		{"DECIMAL(20,5)", "12345678901.50000", into[string]()},
		{"VARCHAR(20)", "it's", into[sql.NullString]()},
		{"LONGTEXT", bigText, into[string]()},
		{"CHAR(5)", "ab", into[string]()},
		{"VARBINARY(10)", []byte{0, 1, 255}, into[[]byte]()},
		{"LONGBLOB", []byte(bigText), into[sql.RawBytes]()},
		{"DATE", time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC), into[time.Time]()},
		{"DATETIME(6)", leapDay, into[time.Time]()},
		{"ENUM('a','b')", "b", into[string]()},
		{"JSON", `{"a": [1, null]}`, into[json.RawMessage]()},
	}
	return f
}
