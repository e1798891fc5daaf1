package conformance

import (
	"database/sql/driver"

	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

var execCases = []Case{
	{"ExecReportsRowsAffectedAndLastInsertID", 0, func(e *Env) {
		e.Table("t", "a INT, b TEXT")
		e.Exec("insert", e.DB, "INSERT INTO t VALUES (1, 'one'), (2, 'two')")
		e.Exec("update none", e.DB, "UPDATE t SET b = 'x' WHERE a = 99")
		e.Exec("update all", e.DB, "UPDATE t SET b = 'y'")
		e.Exec("with arguments", e.DB, "INSERT INTO t VALUES (?, ?)", 3, "three")
		e.Exec("delete", e.DB, "DELETE FROM t WHERE a = ?", 1)
		e.Query("what is left", e.DB, "SELECT a, b FROM t")
	}},
	{"ExecOfDDLHasTheDriversResult", 0, func(e *Env) {
		e.Table("t", "a INT")
		e.Exec("drop", e.DB, "DROP TABLE t")
		e.Exec("create", e.DB, "CREATE TABLE t (a INT)")
	}},
	{"ExecOfAQueryDiscardsItsRows", 0, func(e *Env) {
		e.Exec("select", e.DB, "SELECT 1")
		e.Alive()
	}},
	{"ErrorsKeepTextTypeAndChain", 0, func(e *Env) {
		e.Exec("exec", e.DB, "INSERT INTO missing VALUES (1)")
		e.Query("query", e.DB, "SELECT * FROM missing")
		var v any
		e.Err("query row", e.DB.QueryRow("SELECT a FROM missing").Scan(&v))
		e.Alive()
	}},
	{"ConstraintErrorsKeepTextTypeAndChain", 0, func(e *Env) {
		e.Table("t", "a INT NOT NULL")
		e.Exec("direct", e.DB, "INSERT INTO t VALUES (NULL)")
		e.Exec("with an argument", e.DB, "INSERT INTO t VALUES (?)", nil)
		s := e.Prepare(e.DB, "INSERT INTO t VALUES (?)")
		res, err := s.Exec(nil)
		e.Result("prepared", res, err)
		e.Err("close", s.Close())
		e.Count("rows", e.DB, "t")
	}},
	{"SyntaxErrorsComeAtOnce", 0, func(e *Env) {
		e.Exec("exec", e.DB, e.SQL.Syntax)
		e.Query("query", e.DB, e.SQL.Syntax)
		_, err := e.DB.Prepare(e.SQL.Syntax)
		e.Err("prepare", err)
		e.Exec("exec with an argument", e.DB, e.SQL.Syntax+" ?", 1)
		e.Alive()
	}},
	{"EmptyStatementsAreTheDriversBusiness", 0, func(e *Env) {
		// At least one real driver panics here.
		e.Leaks()
		e.Panics("exec", func() { e.Exec("exec", e.DB, "") })
		e.Panics("query", func() { e.Query("query", e.DB, "") })
		e.Panics("prepare", func() {
			s, err := e.DB.Prepare("")
			e.Err("prepare", err)
			if err == nil {
				e.Err("close", s.Close())
			}
		})
		e.Panics("comment", func() { e.Exec("comment", e.DB, "-- nothing") })
		e.Alive()
	}},
	{"SeveralStatementsInOneExec", MultiExec, func(e *Env) {
		e.Table("t", "a INT")
		e.Exec("two inserts", e.DB, e.SQL.MultiExec)
		e.Query("rows", e.DB, "SELECT a FROM t")
		e.Alive()
	}},
	{"StatementsThatSkipAreExecutedOnce", OnFake, func(e *Env) {
		// Under SkipWithArgs the direct way answers ErrSkip, and the statement
		// is prepared instead.
		e.Table("t", "a INT")
		e.Exec("insert", e.DB, "INSERT INTO t VALUES (?)", 1)
		e.Query("select", e.DB, "SELECT * FROM t WHERE a = ?", 1)
		e.Value("inserts executed", e.Server.Executed("INSERT"))
		e.Value("selects executed", e.Server.Executed("SELECT"))
	}},
	{"ErrSkipFromTheDriverIsNotAnAnswer", OnFake, func(e *Env) {
		e.Server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Err: driver.ErrSkip})
		e.Server.Inject(fakedb.Fault{Call: fakedb.ConnExec, Err: driver.ErrSkip})
		e.Server.Inject(fakedb.Fault{Call: fakedb.ConnQueryCtx, Err: driver.ErrSkip})
		e.Server.Inject(fakedb.Fault{Call: fakedb.ConnQuery, Err: driver.ErrSkip})
		e.Exec("exec", e.DB, "SET a = 1")
		e.Query("query", e.DB, "SELECT 1")
		e.Value("executed", e.Server.Executed("SET"), e.Server.Executed("SELECT"))
	}},
	{"DriversErrorsGoThroughUnchanged", OnFake, func(e *Env) {
		for _, call := range []fakedb.Call{
			fakedb.ConnExec, fakedb.ConnExecCtx, fakedb.ConnQuery, fakedb.ConnQueryCtx,
			fakedb.ConnPrepare, fakedb.ConnPrepareCtx, fakedb.StmtExec, fakedb.StmtExecCtx,
			fakedb.StmtQuery, fakedb.StmtQueryCtx,
		} {
			// Texts of their own: none is prepared already.
			e.Server.Inject(fakedb.Fault{Call: call, Err: errBoom})
			e.Exec(string(call)+" exec", e.DB, "SET a = 1 -- "+string(call))
			e.Query(string(call)+" query", e.DB, "SELECT 1 -- "+string(call))
			e.Server.Heal()
		}
		e.Value("executed", e.Server.Executed("SET"), e.Server.Executed("SELECT"))
	}},
	{"ErrorsAfterExecutionAreNotRetried", OnFake, func(e *Env) {
		e.Server.Inject(fakedb.Fault{Text: "INSERT", Call: fakedb.ConnExecCtx, After: true, Err: errBoom})
		e.Server.Inject(fakedb.Fault{Text: "INSERT", Call: fakedb.ConnExec, After: true, Err: errBoom})
		e.Server.Inject(fakedb.Fault{Text: "INSERT", Call: fakedb.StmtExecCtx, After: true, Err: errBoom})
		e.Server.Inject(fakedb.Fault{Text: "INSERT", Call: fakedb.StmtExec, After: true, Err: errBoom})
		e.Table("t", "a INT")
		e.Exec("insert", e.DB, "INSERT INTO t VALUES (1)")
		e.Value("executed", e.Server.Executed("INSERT"))
	}},
	{"ContextValuesReachTheDriver", OnFake, func(e *Env) {
		ctx := tagged()
		_, err := e.DB.ExecContext(ctx, "SET a = 1")
		e.Err("exec", err)
		_, err = e.DB.ExecContext(ctx, "SET a = ?", 1)
		e.Err("exec with arguments", err)
		rows, err := e.DB.QueryContext(ctx, "SELECT 1")
		e.Rows("query", rows, err)
		s, err := e.DB.PrepareContext(ctx, "SELECT 2")
		e.Must(err)
		rows, err = s.QueryContext(ctx)
		e.Rows("prepared", rows, err)
		e.Err("close", s.Close())
		tx, err := e.DB.BeginTx(ctx, nil)
		e.Must(err)
		e.Err("commit", tx.Commit())
		for _, event := range e.Server.Events(
			fakedb.ConnExecCtx, fakedb.ConnQueryCtx, fakedb.ConnPrepareCtx, fakedb.ConnBeginCtx,
			fakedb.StmtExecCtx, fakedb.StmtQueryCtx,
		) {
			e.Value(string(event.Call)+" "+event.Text, event.Tag)
		}
	}},
}
