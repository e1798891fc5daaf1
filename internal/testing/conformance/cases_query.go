package conformance

import (
	"database/sql"
	"errors"
	"time"

	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// scanner counts what it is given and may refuse it.
type scanner struct {
	got any
	err error
}

func (s *scanner) Scan(v any) error {
	s.got = v
	return s.err
}

var queryCases = []Case{
	{"QueriesGiveColumnsAndRows", 0, func(e *Env) {
		e.Table("t", "a INT, b TEXT")
		e.Query("empty", e.DB, "SELECT a, b FROM t")
		e.Do(e.DB, "INSERT INTO t VALUES (1, 'one'), (2, NULL), (3, '')")
		e.Query("all", e.DB, "SELECT a, b FROM t")
		e.Query("some", e.DB, "SELECT b FROM t WHERE a = ?", 2)
		e.Query("none", e.DB, "SELECT b FROM t WHERE a = ?", 99)
	}},
	{"LiteralsHaveTheirTypes", 0, func(e *Env) {
		e.Query("integer", e.DB, "SELECT 1")
		e.Query("aliases", e.DB, "SELECT 1 AS one, 'x' AS two, NULL AS three, 1.5 AS four")
		e.Query("same name twice", e.DB, "SELECT 1 AS a, 2 AS a")
	}},
	{"QueryRowHasItsErrors", 0, func(e *Env) {
		e.Table("t", "a INT, b TEXT")
		e.Do(e.DB, "INSERT INTO t VALUES (1, 'one'), (2, NULL)")
		var n int
		var s string
		var raw sql.RawBytes
		row := func() *sql.Row { return e.DB.QueryRow("SELECT a, b FROM t WHERE a = 1") }
		e.Err("no rows", e.DB.QueryRow("SELECT a FROM t WHERE a = 99").Scan(&n))
		e.Err("too few", row().Scan(&n))
		e.Err("too many", row().Scan(&n, &s, &s))
		e.Err("no pointer", row().Scan(n, s))
		e.Err("nil", row().Scan(nil, nil))
		e.Err("nil pointer", row().Scan((*int)(nil), &s))
		e.Err("wrong type", row().Scan(&n, &n))
		e.Err("NULL", e.DB.QueryRow("SELECT b FROM t WHERE a = 2").Scan(&s))
		e.Err("RawBytes", row().Scan(&n, &raw))
		e.Err("fine", row().Scan(&n, &s))
		e.Value("values", n, s)
		r := row()
		e.Err("row error", r.Err())
		e.Err("row error leaves the row", r.Scan(&n, &s))
		e.Err("row error of a bad query", e.DB.QueryRow("SELECT a FROM missing").Err())
		e.Idle()
	}},
	{"ScannersGetWhatTheDriverGave", 0, func(e *Env) {
		e.Table("t", "a INT, b TEXT, c BLOB")
		e.Do(e.DB, "INSERT INTO t VALUES (?, ?, ?)", 1, "one", []byte("blob"))
		var a, b, c scanner
		e.Err("scan", e.DB.QueryRow("SELECT a, b, c FROM t").Scan(&a, &b, &c))
		e.Value("given", a.got, b.got, c.got)
		refusing := scanner{err: errBoom}
		e.Err("refused", e.DB.QueryRow("SELECT a FROM t").Scan(&refusing))
		e.Idle()
	}},
	{"ConversionsOnScanAreAlike", 0, func(e *Env) {
		e.Table("t", "a INT, b TEXT, c FLOAT")
		e.Do(e.DB, "INSERT INTO t VALUES (?, ?, ?)", 300, "12", 1.5)
		for _, dest := range []any{
			new(int), new(int8), new(uint8), new(int64), new(float64), new(string), new(bool), new([]byte),
			new(any), new(time.Time), new(time.Duration), new(myInt), new(myString), new(myBytes),
			new(*int), new(*string), new(sql.NullInt64), new(sql.NullString), new(sql.Null[int]),
		} {
			for _, column := range []string{"a", "b", "c"} {
				err := e.DB.QueryRow("SELECT " + column + " FROM t").Scan(dest)
				e.Value("scan "+column, pointee(dest), err)
			}
		}
	}},
	{"QueryOfANonQueryExecutesOnce", 0, func(e *Env) {
		e.Table("t", "a INT")
		e.Query("insert", e.DB, "INSERT INTO t VALUES (1)")
		e.Query("insert with an argument", e.DB, "INSERT INTO t VALUES (?)", 2)
		e.Count("rows", e.DB, "t")
	}},
	{"ResultsLongerThanABufferAreWhole", Series, func(e *Env) {
		rows, err := e.DB.Query(e.SQL.Series)
		e.Must(err)
		sum, n := 0, 0
		for rows.Next() {
			var v int
			e.Must(rows.Scan(&v))
			sum, n = sum+v, n+1
		}
		e.Value("rows and sum", n, sum)
		e.Err("end", rows.Err())
		e.Idle()
	}},
	{"ErrorsInMidStreamComeAfterTheRows", Breaking, func(e *Env) {
		e.Query("direct", e.DB, e.SQL.Breaking)
		s := e.Prepare(e.DB, e.SQL.Breaking)
		rows, err := s.Query()
		e.Rows("prepared", rows, err)
		e.Err("close", s.Close())
		tx := e.Begin(e.Ctx)
		e.Query("in a transaction", tx, e.SQL.Breaking)
		e.Err("rollback", tx.Rollback())
		e.Idle()
		e.Alive()
	}},
	{"ErrorsBeforeTheFirstRowReachQueryRow", OnFake, func(e *Env) {
		e.Err("scan", e.DB.QueryRow("SELECT 1 /*+ break 0 'early' */").Scan(new(int)))
		e.Query("query", e.DB, "SELECT 1 /*+ break 0 'early' */")
		e.Err("bad connection", e.DB.QueryRow("SELECT 1 /*+ breakconn 0 */").Scan(new(int)))
		e.Alive()
	}},
	{"BadConnectionInMidStreamIsReportedAndNotRetried", OnFake, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		e.Query("query", e.DB, "SELECT * FROM numbers LIMIT 5 /*+ breakconn 2 */")
		e.Value("executed", e.Server.Executed("numbers"))
		e.Alive()
	}},
	{"ErrorOfRowsCloseIsReported", OnFake, func(e *Env) {
		e.Server.Inject(fakedb.Fault{Call: fakedb.RowsClose, Always: true, Err: errBoom})
		rows, err := e.DB.Query("SELECT 1")
		e.Must(err)
		e.Err("close", rows.Close())
		e.Err("close again", rows.Close())
		e.Err("query row", e.DB.QueryRow("SELECT 1").Scan(new(int)))
		e.Query("to the end", e.DB, "SELECT 1")
		e.Server.Heal()
		e.Idle()
		e.Alive()
	}},
	{"DatabaseErrorsCanBeFoundWithErrorsAs", OnFake, func(e *Env) {
		_, err := e.DB.Exec("SELEC 1")
		var syntax *fakedb.SyntaxError
		e.Value("found", errors.As(err, &syntax))
		if syntax != nil {
			e.Value("near", syntax.Near)
		}
	}},
}
