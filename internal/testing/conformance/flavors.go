package conformance

import (
	"database/sql"
	"encoding/json"
	"math"
	"strings"
	"time"
)

var bigText = strings.Repeat("0123456789äöü", 20_000)

// fakeFlavor is the toy language of internal/testing/fakedb. Long statements are done
// with gates there: a driver without contexts would really take that long.
var fakeFlavor = Flavor{
	Name:         "fake",
	ConnectionID: "SHOW connection_id",
	Syntax:       "SELEC 1",
	Series:       "SELECT * FROM numbers LIMIT 1000",
	Breaking:     "SELECT * FROM numbers LIMIT 9 /*+ break 3 'broken' */",
	Multi:        "SELECT 1 AS a; SELECT 2 AS b, 'x' AS c; SELECT * FROM numbers LIMIT 2",
	MultiExec:    "INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)",
	SetVar:       "SET lang = 'x'",
	ShowVar:      "SHOW lang",
	TempTable:    "CREATE TEMP TABLE tmp (a INT)",
	Isolation:    "SHOW isolation",
	Named:        "SELECT :arg",
	Insert:       "INSERT INTO t VALUES (?, ?)",
	Isolations: []sql.IsolationLevel{
		sql.LevelDefault, sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelWriteCommitted,
		sql.LevelRepeatableRead, sql.LevelSnapshot, sql.LevelSerializable, sql.LevelLinearizable,
	},
	ReadOnly: true,
	Values: []TypedValue{
		{"INT", 7, into[int]()},
		{"BIGINT", int64(math.MaxInt64), into[int64]()},
		{"FLOAT", 1.5, into[float64]()},
		{"BOOL", true, into[bool]()},
		{"TEXT", "it's äöü", into[string]()},
		{"VARCHAR(20)", "short", into[sql.NullString]()},
		{"DECIMAL(10,2)", "12.30", into[string]()},
		{"BLOB", []byte{0, 1, 255}, into[[]byte]()},
		{"TIMESTAMP", leapDay.In(time.FixedZone("", 3600)), into[time.Time]()},
	},
}

// Postgres is PostgreSQL through jackc/pgx. Own is the caller's to fill.
func Postgres() Flavor {
	return Flavor{
		Name:         "postgres",
		Dollar:       true,
		Types:        map[string]string{"BLOB": "BYTEA", "TIMESTAMP": "TIMESTAMPTZ"},
		ConnectionID: "SELECT pg_backend_pid()",
		Sleep:        "SELECT pg_sleep(10)",
		Syntax:       "SELEC 1",
		Series:       "SELECT n FROM generate_series(0, 999) AS n",
		Breaking:     "SELECT 10 / (3 - n) FROM generate_series(0, 9) AS n",
		MultiExec:    "INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)",
		SetVar:       "SET application_name = 'x'",
		ShowVar:      "SHOW application_name",
		TempTable:    "CREATE TEMP TABLE tmp (a INT)",
		Isolation:    "SHOW transaction_isolation",
		Insert:       "INSERT INTO t VALUES ($1, $2)",
		Isolations: []sql.IsolationLevel{
			sql.LevelDefault, sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelWriteCommitted,
			sql.LevelRepeatableRead, sql.LevelSnapshot, sql.LevelSerializable, sql.LevelLinearizable,
		},
		ReadOnly: true,
		Values: []TypedValue{
			{"SMALLINT", int64(math.MinInt16), into[int16]()},
			{"INTEGER", int64(math.MaxInt32), into[int32]()},
			{"BIGINT", int64(math.MaxInt64), into[int64]()},
			{"REAL", 1.5, into[float32]()},
			{"DOUBLE PRECISION", math.Pi, into[float64]()},
			{"NUMERIC(20,5)", "12345678901234.50000", into[string]()},
			{"BOOLEAN", true, into[bool]()},
			{"TEXT", "it's äöü", into[string]()},
			{"TEXT", bigText, into[string]()},
			{"VARCHAR(20)", "short", into[sql.NullString]()},
			{"CHAR(5)", "ab", into[string]()},
			{"BYTEA", []byte{0, 1, 255}, into[[]byte]()},
			{"BYTEA", []byte(bigText), into[sql.RawBytes]()},
			{"DATE", time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC), into[time.Time]()},
			{"TIMESTAMP", leapDay, into[time.Time]()},
			{"TIMESTAMPTZ", leapDay.In(time.FixedZone("", 19800)), into[time.Time]()},
			{"TIME", "13:14:15.123456", into[string]()},
			{"INTERVAL", "1 day 02:00:00", into[string]()},
			{"TIMESTAMP(3)", leapDay, into[time.Time]()},
			{"TIMESTAMPTZ(0)", leapDay, into[time.Time]()},
			{"TIME(2)", "13:14:15.12", into[string]()},
			{"INTERVAL SECOND(1)", "02:00:00.5", into[string]()},
			{"NUMERIC", "12345678901234.5", into[string]()}, // no precision, and below no length
			{"VARCHAR", "as long as it likes", into[string]()},
			{"BIT VARYING", "10110", into[string]()},
			{"UUID", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", into[string]()},
			{"JSON", `{"a": [1, null]}`, into[json.RawMessage]()},
			{"JSONB", []byte(`{"a": [1, null]}`), into[[]byte]()},
			{"INET", "10.0.0.1/32", into[string]()},
			{"INTEGER[]", "{1,2,NULL}", into[string]()},
			{"INTEGER[]", []int32{1, 2, 3}, into[[]int32]()},
			{"TEXT[]", []string{"a", "b c"}, into[[]string]()},
			{"INT4RANGE", "[1,5)", into[string]()},
		},
	}
}

// MySQL is MySQL and MariaDB through go-sql-driver. Multi statements need the
// parameter multiStatements=true; the times need parseTime=true.
func MySQL() Flavor {
	return Flavor{
		Name:         "mysql",
		Types:        map[string]string{"FLOAT": "DOUBLE", "TIMESTAMP": "DATETIME(6)"},
		ConnectionID: "SELECT connection_id()",
		Sleep:        "SELECT sleep(10)",
		Syntax:       "SELEC 1",
		Series: "WITH RECURSIVE s AS (SELECT 0 AS n UNION ALL SELECT n + 1 FROM s WHERE n < 999) " +
			"SELECT n FROM s ORDER BY n",
		Multi:     "SELECT 1 AS a; SELECT 2 AS b, 'x' AS c; SELECT 3 AS d UNION SELECT 4",
		MultiExec: "INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)",
		SetVar:    "SET @lang = 'x'",
		ShowVar:   "SELECT @lang",
		TempTable: "CREATE TEMPORARY TABLE tmp (a INT)",
		Insert:    "INSERT INTO t VALUES (?, ?)",
		// No variable tells the level of one transaction. What shows is which
		// levels the driver refuses, and how.
		Isolation: "SELECT 1",
		Isolations: []sql.IsolationLevel{
			sql.LevelDefault, sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelWriteCommitted,
			sql.LevelRepeatableRead, sql.LevelSnapshot, sql.LevelSerializable, sql.LevelLinearizable,
		},
		ReadOnly: true,
		Values: []TypedValue{
			{"TINYINT", int64(-128), into[int8]()},
			{"INT", int64(math.MaxInt32), into[int32]()},
			{"BIGINT", int64(math.MaxInt64), into[int64]()},
			{"BIGINT UNSIGNED", uint64(math.MaxUint64), into[uint64]()},
			{"FLOAT", 1.5, into[float32]()},
			{"DOUBLE", math.Pi, into[float64]()},
			{"DECIMAL(20,5)", "12345678901234.50000", into[string]()},
			{"BOOLEAN", true, into[bool]()},
			{"VARCHAR(20)", "it's", into[sql.NullString]()},
			{"LONGTEXT", bigText, into[string]()},
			{"CHAR(5)", "ab", into[string]()},
			{"VARBINARY(10)", []byte{0, 1, 255}, into[[]byte]()},
			{"LONGBLOB", []byte(bigText), into[sql.RawBytes]()},
			{"DATE", time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC), into[time.Time]()},
			{"DATETIME(6)", leapDay, into[time.Time]()},
			{"TIMESTAMP(6) NULL", leapDay.In(time.FixedZone("", 19800)), into[time.Time]()},
			{"TIME(6)", "13:14:15.123456", into[string]()},
			{"YEAR", int64(2024), into[int]()},
			{"BIT(8)", []byte{5}, into[[]byte]()},
			{"ENUM('a','b')", "b", into[string]()},
			{"JSON", `{"a": [1, null]}`, into[json.RawMessage]()},
			{"JSON", json.RawMessage(`{"b": 2}`), into[json.RawMessage]()},
		},
	}
}

// SQLite is SQLite through modernc.org/sqlite.
func SQLite() Flavor {
	return Flavor{
		Name:   "sqlite",
		Syntax: "SELEC 1",
		Series: "WITH RECURSIVE s (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < 999) " +
			"SELECT n FROM s",
		Sleep: "WITH RECURSIVE s (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < 100000000) " +
			"SELECT count(*) FROM s",
		Breaking:  "SELECT abs(-9223372036854775807 - v) FROM (SELECT 0 AS v UNION ALL SELECT 1)",
		Multi:     "SELECT 1 AS a; SELECT 2 AS b, 'x' AS c; SELECT 3 AS d UNION SELECT 4",
		MultiExec: "INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)",
		SetVar:    "PRAGMA cache_size = 77",
		ShowVar:   "PRAGMA cache_size",
		TempTable: "CREATE TEMP TABLE tmp (a INT)",
		Named:     "SELECT :arg",
		Insert:    "INSERT INTO t VALUES (?, ?)",
		// As for MySQL.
		Isolation: "SELECT 1",
		Isolations: []sql.IsolationLevel{
			sql.LevelDefault, sql.LevelSerializable, sql.LevelReadUncommitted, sql.LevelSnapshot,
		},
		ReadOnly: true,
		Values: []TypedValue{
			{"INTEGER", int64(math.MaxInt64), into[int64]()},
			{"REAL", math.Pi, into[float64]()},
			{"NUMERIC", "12.50", into[string]()},
			{"BOOLEAN", true, into[bool]()},
			{"TEXT", "it's äöü", into[string]()},
			{"TEXT", bigText, into[string]()},
			{"BLOB", []byte{0, 1, 255}, into[[]byte]()},
			{"BLOB", []byte(bigText), into[sql.RawBytes]()},
			{"DATE", time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC), into[time.Time]()},
			{"DATETIME", leapDay, into[time.Time]()},
			{"TIMESTAMP", leapDay.In(time.FixedZone("", 19800)), into[time.Time]()},
		},
	}
}
