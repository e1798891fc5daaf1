package conformance

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

var badConn = driver.ErrBadConn

// operations are what database/sql tries again on a bad connection.
func (e *Env) operations() []operation {
	return []operation{
		{"exec", "SELECT 1 AS exec", func(ctx context.Context) error {
			_, err := e.DB.ExecContext(ctx, "SELECT 1 AS exec")
			return err
		}},
		{"exec with an argument", "AS execarg", func(ctx context.Context) error {
			_, err := e.DB.ExecContext(ctx, "SELECT ? AS execarg", 1)
			return err
		}},
		{"query", "SELECT 1 AS q", func(ctx context.Context) error {
			return e.DB.QueryRowContext(ctx, "SELECT 1 AS q").Scan(new(int))
		}},
		{"prepare", "SELECT 1 AS p", func(ctx context.Context) error {
			s, err := e.DB.PrepareContext(ctx, "SELECT 1 AS p")
			if err != nil {
				return err
			}
			return s.Close()
		}},
		{"begin", "nothing", func(ctx context.Context) error {
			tx, err := e.DB.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			return tx.Rollback()
		}},
		{"ping", "nothing", func(ctx context.Context) error { return e.DB.PingContext(ctx) }},
		{"conn", "nothing", func(ctx context.Context) error {
			c, err := e.DB.Conn(ctx)
			if err != nil {
				return err
			}
			return c.Close()
		}},
	}
}

type operation struct {
	name string
	text string // of what it executes
	do   func(ctx context.Context) error
}

// firstCalls are the driver's methods an operation may begin with.
var firstCalls = []fakedb.Call{
	fakedb.ConnExec, fakedb.ConnExecCtx, fakedb.ConnQuery, fakedb.ConnQueryCtx, fakedb.ConnPrepare,
	fakedb.ConnPrepareCtx, fakedb.ConnBegin, fakedb.ConnBeginCtx, fakedb.ConnPing,
}

var badConnCases = []Case{
	{"LostIdleConnectionsAreReplacedUnseen", OnFake, func(e *Env) {
		for _, op := range e.operations() {
			e.Alive()
			e.Server.KillAll()
			e.Err(op.name, op.do(e.Ctx))
			e.Value(op.name+" executed", e.Server.Executed(op.text))
		}
		e.Idle()
	}},
	{"ManyLostIdleConnectionsAreReplacedUnseen", OnFake, func(e *Env) {
		e.DB.SetMaxIdleConns(5)
		for range 3 {
			one, two, three := e.Conn(), e.Conn(), e.Conn()
			for _, c := range []*sql.Conn{one, two, three} {
				_, err := c.ExecContext(e.Ctx, "SELECT 1 AS a")
				e.Err("first use", err)
			}
			// Closing says whether the use failed, which is known already.
			_, _, _ = one.Close(), two.Close(), three.Close()
			e.Server.KillAll()
			e.Exec("exec", e.DB, "SELECT 1 AS b")
		}
		e.Value("executed", e.Server.Executed("SELECT 1 AS b"))
	}},
	{"OneBadConnectionIsTriedAgain", OnFake, func(e *Env) {
		for _, op := range e.operations() {
			for _, call := range firstCalls {
				e.Server.Inject(fakedb.Fault{Call: call, Err: badConn, Kill: true})
			}
			e.Err(op.name, op.do(e.Ctx))
			e.Value(op.name+" executed", e.Server.Executed(op.text))
			e.Server.Heal()
		}
		e.Idle()
		e.Alive()
	}},
	{"OnlyBadConnectionsAreReported", OnFake, func(e *Env) {
		for _, call := range firstCalls {
			e.Server.Inject(fakedb.Fault{Call: call, Always: true, Err: badConn, Kill: true})
		}
		for _, op := range e.operations() {
			e.Err(op.name, op.do(e.Ctx))
			e.Value(op.name+" executed", e.Server.Executed(op.text))
		}
		e.Idle()
		e.Server.Heal()
		e.Alive()
	}},
	{"BadConnectionsInATransactionAreNotTriedAgain", OnFake, func(e *Env) {
		e.Table("t", "a INT")
		tx := e.Begin(e.Ctx)
		e.Exec("exec", tx, "INSERT INTO t VALUES (1) /*+ badconn before */")
		e.Exec("next", tx, "INSERT INTO t VALUES (2)")
		_ = tx.Rollback()
		e.Idle()
		e.Count("rows", e.DB, "t")
	}},
	{"BadConnectionsOfAConnAreNotTriedAgain", OnFake, func(e *Env) {
		c := e.Conn()
		e.Exec("set", c, "SET a = 1")
		e.Exec("exec", c, "SET b = 1 /*+ badconn before */")
		e.Exec("next", c, "SET c = 1")
		e.Err("close", c.Close())
		e.Value("executed", e.Server.Executed("SET"))
		e.Idle()
	}},
	{"BadConnectionsBehindAStatementAreReplacedUnseen", OnFake, func(e *Env) {
		s := e.Prepare(e.DB, "SELECT 1 AS s")
		for _, call := range []fakedb.Call{fakedb.StmtExec, fakedb.StmtExecCtx, fakedb.StmtQuery, fakedb.StmtQueryCtx} {
			e.Server.Inject(fakedb.Fault{Call: call, Err: badConn, Kill: true})
			res, err := s.Exec()
			e.Result("exec", res, err)
			rows, err := s.Query()
			e.Rows("query", rows, err)
			e.Server.Heal()
		}
		e.Value("executed", e.Server.Executed("SELECT"))
		e.Err("close", s.Close())
	}},
	{"BadConnectionsAfterExecutionShowInTheTable", OnFake, func(e *Env) {
		// The driver breaks its word here: it answers driver.ErrBadConn for
		// what was executed, and database/sql executes it again.
		e.Table("t", "a INT")
		_, err := e.DB.Exec("INSERT INTO t VALUES (1) /*+ badconn after */")
		e.Err("insert", err)
		e.Value("rows", len(e.Server.Table("t")))
	}},
	{"BadConnectionsFromConnectAreReported", OnFake, func(e *Env) {
		e.Server.Inject(fakedb.Fault{Call: fakedb.Connect, Always: true, Err: badConn})
		e.Exec("exec", e.DB, "SET a = 1")
		e.Server.Heal()
		e.Alive()
	}},
	{"BadConnectionsAtTheEndOfRowsAreReported", OnFake, func(e *Env) {
		e.Server.Inject(fakedb.Fault{Call: fakedb.RowsClose, Err: badConn, Kill: true})
		rows, err := e.DB.Query("SELECT 1")
		e.Must(err)
		e.Err("close", rows.Close())
		e.Alive()
		e.Server.Heal()
		e.Server.Inject(fakedb.Fault{Call: fakedb.RowsNextSet, Err: badConn, Kill: true})
		rows, err = e.DB.Query("SELECT 1; SELECT 2")
		e.Must(err)
		e.Value("next result set", rows.NextResultSet())
		e.Err("error", rows.Err())
		e.Err("close", rows.Close())
		e.Server.Heal()
		e.Idle()
		e.Alive()
	}},
	{"BadConnectionsAtTheCloseOfAStatementAreReported", OnFake, func(e *Env) {
		s := e.Prepare(e.DB, "SELECT 1")
		e.Server.Inject(fakedb.Fault{Call: fakedb.StmtClose, Err: badConn, Kill: true})
		e.Err("close", s.Close())
		e.Server.Heal()
		e.Alive()
	}},
	{"BadConnectionsThatBeginOnAConnAreReported", OnFake, func(e *Env) {
		c := e.Conn()
		e.Query("before", c, "SELECT 1")
		e.Server.KillAll()
		_, err := c.BeginTx(e.Ctx, nil)
		e.Err("begin", err)
		e.Err("close", c.Close())
		e.Idle()
		e.Alive()
	}},
}

var resetCases = []Case{
	{"ResetThatFindsABadConnectionGetsAnother", OnFake, func(e *Env) {
		e.Alive()
		e.Server.Inject(fakedb.Fault{Call: fakedb.ConnReset, Err: badConn})
		e.Exec("exec", e.DB, "SET a = 1")
		e.Value("executed", e.Server.Executed("SET"))
	}},
	{"ResetErrorsOtherThanBadConnectionAreIgnored", OnFake, func(e *Env) {
		e.Alive()
		e.Server.Inject(fakedb.Fault{Call: fakedb.ConnReset, Err: errBoom})
		e.Exec("exec", e.DB, "SET a = 1")
		e.Alive()
	}},
	{"ResetComesBetweenTwoCheckouts", OnFake, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		e.Alive()
		resets := len(e.Server.Events(fakedb.ConnReset))
		e.Value("before the first", resets)
		e.Alive()
		e.Value("before the second", len(e.Server.Events(fakedb.ConnReset)))
		tx := e.Begin(e.Ctx)
		e.Query("query", tx, "SELECT 1")
		e.Query("query", tx, "SELECT 1")
		e.Err("commit", tx.Commit())
		e.Value("once for a transaction", len(e.Server.Events(fakedb.ConnReset)))
	}},
	{"ResetThatAlwaysFindsABadConnectionEndsWithANewOne", OnFake, func(e *Env) {
		e.Server.Inject(fakedb.Fault{Call: fakedb.ConnReset, Always: true, Err: badConn})
		for range 4 {
			e.Exec("exec", e.DB, "SET a = 1")
		}
		e.Value("executed", e.Server.Executed("SET"))
	}},
	{"ConnectionsThatAreNeverValidStillServe", OnFake, func(e *Env) {
		e.Server.Inject(fakedb.Fault{Call: fakedb.ConnValid, Always: true, Err: errBoom})
		for range 4 {
			e.Alive()
		}
		tx := e.Begin(e.Ctx)
		e.Query("in a transaction", tx, "SELECT 1")
		e.Err("commit", tx.Commit())
		e.Idle()
	}},
}
