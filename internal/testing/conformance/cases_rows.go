package conformance

import (
	"context"
	"database/sql"
	"strings"

	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

var rowsCases = []Case{
	{"RowsReleaseTheirConnectionAtTheEnd", 0, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		rows, err := e.DB.Query("SELECT 1")
		e.Must(err)
		e.Value("in use while open", e.DB.Stats().InUse)
		e.Value("next", rows.Next(), rows.Next(), rows.Next())
		e.Value("in use at the end", e.DB.Stats().InUse)
		e.Err("close", rows.Close())
		e.Alive()
	}},
	{"RowsCloseMayBeRepeated", 0, func(e *Env) {
		rows, err := e.DB.Query("SELECT 1")
		e.Must(err)
		e.Err("close", rows.Close())
		e.Err("close again", rows.Close())
		e.Value("next", rows.Next())
		e.Err("error", rows.Err())
		e.Idle()
	}},
	{"RowsClosedHaveTheirErrors", 0, func(e *Env) {
		rows, err := e.DB.Query("SELECT 1")
		e.Must(err)
		var n int
		e.Err("scan before next", rows.Scan(&n))
		e.Value("next", rows.Next())
		e.Err("scan", rows.Scan(&n))
		e.Err("close", rows.Close())
		e.Err("scan after close", rows.Scan(&n))
		_, err = rows.Columns()
		e.Err("columns after close", err)
		_, err = rows.ColumnTypes()
		e.Err("column types after close", err)
		e.Value("next result set after close", rows.NextResultSet())
	}},
	{"RowsClosedEarlyLeaveTheConnectionUsable", Series, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		for range 3 {
			rows, err := e.DB.Query(e.SQL.Series)
			e.Must(err)
			e.Value("next", rows.Next())
			e.Err("close", rows.Close())
			e.Err("error", rows.Err())
		}
		e.Alive()
	}},
	{"RowsOnTwoConnectionsDoNotMeet", Series, func(e *Env) {
		one, err := e.DB.Query(e.SQL.Series)
		e.Must(err)
		two, err := e.DB.Query(e.SQL.Series)
		e.Must(err)
		same := true
		for one.Next() && two.Next() {
			var a, b int
			e.Must(one.Scan(&a))
			e.Must(two.Scan(&b))
			same = same && a == b
		}
		e.Value("in step", same)
		e.Err("close", one.Close())
		e.Err("close", two.Close())
	}},
	{"NestedQueriesInARowsLoopSeeTheirRows", 0, func(e *Env) {
		e.Table("t", "a INT, b TEXT")
		e.Do(e.DB, "INSERT INTO t VALUES (1, 'one'), (2, 'two')")
		rows, err := e.DB.Query("SELECT a FROM t")
		e.Must(err)
		for rows.Next() {
			var a int
			e.Must(rows.Scan(&a))
			e.Query("inner", e.DB, "SELECT b FROM t WHERE a = ?", a)
		}
		e.Err("end", rows.Err())
		e.Err("close", rows.Close())
	}},
	{"ResultSetsComeInOrder", Multi, func(e *Env) {
		rows, err := e.DB.Query(e.SQL.Multi)
		e.Err("query", err)
		e.Must(err)
		for {
			e.Set("set", rows)
			if !rows.NextResultSet() {
				break
			}
		}
		e.Value("no more", rows.NextResultSet(), rows.Next())
		e.Err("close", rows.Close())
		e.Idle()
		e.Alive()
	}},
	{"ResultSetsCanBeSkipped", Multi, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		rows, err := e.DB.Query(e.SQL.Multi)
		e.Must(err)
		e.Value("skip", rows.NextResultSet(), rows.NextResultSet())
		e.Set("last", rows)
		e.Value("no more", rows.NextResultSet())
		e.Err("close", rows.Close())
		rows, err = e.DB.Query(e.SQL.Multi)
		e.Must(err)
		e.Err("close at once", rows.Close())
		e.Alive()
	}},
	{"ErrorsInALaterResultSetAreReported", OnFake, func(e *Env) {
		rows, err := e.DB.Query("SELECT 1; SELECT * FROM numbers LIMIT 3 /*+ break 1 'second' */; SELECT 3")
		e.Must(err)
		e.Set("first", rows)
		e.Value("second", rows.NextResultSet())
		e.Set("second", rows)
		e.Value("third", rows.NextResultSet())
		e.Err("end", rows.Err())
		e.Err("close", rows.Close())
		e.Server.Fail(fakedb.RowsNextSet, 1, errBoom)
		rows, err = e.DB.Query("SELECT 1; SELECT 2")
		e.Must(err)
		e.Value("next result set fails", rows.NextResultSet())
		e.Err("error", rows.Err())
		e.Err("close", rows.Close())
		e.Idle()
	}},
	{"RowsHoldTheConnectionWhileResultSetsAreLeft", Multi, func(e *Env) {
		rows, err := e.DB.Query(e.SQL.Multi)
		e.Must(err)
		for rows.Next() {
			e.Row("row", rows, 1)
		}
		e.Value("in use", e.DB.Stats().InUse)
		e.Err("close", rows.Close())
		e.Idle()
	}},
	{"RawBytesAreValidUntilTheNextRow", 0, func(e *Env) {
		e.Table("t", "a INT, b BLOB")
		for i, s := range []string{"first", "second one", "3"} {
			e.Do(e.DB, e.SQL.rebind("INSERT INTO t VALUES (?, ?)"), i, []byte(s))
		}
		rows, err := e.DB.Query("SELECT b, a FROM t")
		e.Must(err)
		var raw sql.RawBytes
		var n int
		for rows.Next() {
			err := rows.Scan(&raw, &n)
			e.Value("row", string(raw), n, err)
		}
		e.Err("end", rows.Err())
		e.Err("close", rows.Close())
	}},
	{"BytesScannedBelongToTheCaller", 0, func(e *Env) {
		e.Table("t", "a INT, b BLOB")
		for i := range 4 {
			e.Do(e.DB, "INSERT INTO t VALUES (?, ?)", i, []byte(strings.Repeat(string(rune('a'+i)), 5)))
		}
		rows, err := e.DB.Query("SELECT b, b FROM t")
		e.Must(err)
		var kept []any
		for rows.Next() {
			var b []byte
			var v any
			e.Must(rows.Scan(&b, &v))
			kept = append(kept, b, v)
		}
		e.Err("close", rows.Close())
		e.Value("kept", kept...)
	}},
	{"BytesSurviveANestedQueryBetweenNextAndScan", 0, func(e *Env) {
		e.Table("t", "a INT, b BLOB")
		for i, s := range []string{"first", "second", "third"} {
			e.Do(e.DB, "INSERT INTO t VALUES (?, ?)", i, []byte(s))
		}
		rows, err := e.DB.Query("SELECT a, b FROM t")
		e.Must(err)
		for rows.Next() {
			e.Query("inner", e.DB, "SELECT b FROM t WHERE a = ?", 2)
			e.Row("outer", rows, 2)
		}
		e.Err("end", rows.Err())
		e.Err("close", rows.Close())
	}},
	{"ContextThatEndsAfterCloseLeavesNoError", 0, func(e *Env) {
		ctx, cancel := context.WithCancel(context.Background())
		rows, err := e.DB.QueryContext(ctx, "SELECT 1")
		e.Must(err)
		e.Value("next", rows.Next(), rows.Next())
		e.Err("close", rows.Close())
		cancel()
		e.Err("error", rows.Err())
		e.Value("next result set", rows.NextResultSet())
	}},
	{"CancelledRawBytesStayWhatTheyWere", OnFake, func(e *Env) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		rows, err := e.DB.QueryContext(ctx, "SELECT x'616263'")
		e.Must(err)
		e.Value("next", rows.Next())
		var raw sql.RawBytes
		e.Err("scan", rows.Scan(&raw))
		cancel()
		// database/sql keeps the rows open while RawBytes are held.
		e.Value("bytes", string(raw))
		e.Value("next", rows.Next())
		e.Err("close", rows.Close())
		e.Idle()
	}},
	{"CursorsInARowAreRows", OnFake, func(e *Env) {
		rows, err := e.DB.Query("SELECT cursor(3) AS c, 7 AS n")
		e.Must(err)
		e.Value("next", rows.Next())
		var inner sql.Rows
		var n int
		e.Err("scan", rows.Scan(&inner, &n))
		e.Value("beside it", n)
		for inner.Next() {
			var v int
			err := inner.Scan(&v)
			e.Value("inner row", v, err)
		}
		e.Err("inner end", inner.Err())
		e.Err("inner close", inner.Close())
		e.Value("next", rows.Next())
		e.Err("close", rows.Close())
		e.Idle()
	}},
	{"OpenRowsLeaveTheServerWhenClosed", OnFake, func(e *Env) {
		rows, err := e.DB.Query("SELECT * FROM numbers LIMIT 9")
		e.Must(err)
		e.Value("open", e.Server.State().OpenRows())
		e.Err("close", rows.Close())
		e.Value("open", e.Server.State().OpenRows())
	}},
}
