package conformance

import (
	"database/sql"

	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// scanCases are what rows that scan their columns themselves can do that others cannot
// (driver.RowsColumnScanner, since Go 1.27). Elsewhere they show that nothing changes. The
// fake driver scans a text with commas into a []string.
var scanCases = []Case{
	{"ColumnsAreScannedByTheDriver", OnFake, func(e *Env) {
		rows, err := e.DB.Query("SELECT 'a,b' AS list, 7 AS n")
		e.Must(err)
		for rows.Next() {
			var list []string
			var n int
			err := rows.Scan(&list, &n)
			e.Value("scan", list, n, err)
			err = rows.Scan(&list, &list)
			e.Value("not a text", list, err)
			e.Row("again", rows, 2)
		}
		e.Err("end", rows.Err())
		e.Err("close", rows.Close())
		e.Idle()
	}},
	{"ColumnsOfEveryResultSetAreScannedByTheDriver", OnFake, func(e *Env) {
		rows, err := e.DB.Query("SELECT 'a,b' AS list; SELECT NULL AS one, 'c' AS two; SELECT 'd' AS three")
		e.Must(err)
		for more := true; more; more = rows.NextResultSet() {
			for rows.Next() {
				columns, err := rows.Columns()
				e.Value("columns", columns, err)
				lists := make([][]string, len(columns))
				dest := make([]any, len(columns))
				for i := range dest {
					dest[i] = &lists[i]
				}
				err = rows.Scan(dest...)
				e.Value("scan", lists, err)
			}
		}
		e.Err("close", rows.Close())
		e.Idle()
	}},
	{"ErrorsOfScanLeaveTheRowsOpen", OnFake, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		rows, err := e.DB.Query("SELECT 'a,b' AS list, 'x' AS n FROM numbers LIMIT 3")
		e.Must(err)
		e.Server.Inject(fakedb.Fault{Call: fakedb.RowsScan, Skip: 2, Err: errBoom})
		for rows.Next() {
			var list []string
			var n any
			err := rows.Scan(&list, &n)
			e.Value("scan", list, n, err)
		}
		e.Err("end", rows.Err())
		e.Err("close", rows.Close())
		e.Server.Heal()
		e.Alive()
	}},
	{"ScannersMayQuery", 0, func(e *Env) {
		rows, err := e.DB.Query("SELECT 1")
		e.Must(err)
		for rows.Next() {
			err := rows.Scan(scanFunc(func(v any) error {
				e.Value("given", v)
				e.Query("inner", e.DB, "SELECT 2")
				return nil
			}))
			e.Err("scan", err)
		}
		e.Err("end", rows.Err())
		e.Err("close", rows.Close())
	}},
	{"RawBytesSurviveANestedQuery", 0, func(e *Env) {
		e.Table("t", "a INT, b BLOB")
		e.Do(e.DB, "INSERT INTO t VALUES (?, ?)", 1, []byte("first"))
		e.Do(e.DB, "INSERT INTO t VALUES (?, ?)", 2, []byte("second"))
		rows, err := e.DB.Query("SELECT b FROM t")
		e.Must(err)
		for rows.Next() {
			var raw sql.RawBytes
			e.Err("scan", rows.Scan(&raw))
			e.Query("inner", e.DB, "SELECT 2")
			e.Value("raw", string(raw))
		}
		e.Err("close", rows.Close())
	}},
}

// scanFunc is a Scanner.
type scanFunc func(any) error

func (f scanFunc) Scan(v any) error { return f(v) }
