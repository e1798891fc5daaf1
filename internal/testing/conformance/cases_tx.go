package conformance

import (
	"context"
	"database/sql"

	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// ended observes that every method of an ended transaction says so.
func (e *Env) ended(label string, tx *sql.Tx) {
	e.Err(label+" commit", tx.Commit())
	e.Err(label+" rollback", tx.Rollback())
	_, err := tx.Exec("SELECT 1")
	e.Err(label+" exec", err)
	_, err = tx.Query("SELECT 1")
	e.Err(label+" query", err)
	e.Err(label+" query row", tx.QueryRow("SELECT 1").Scan(new(int)))
	_, err = tx.Prepare("SELECT 1")
	e.Err(label+" prepare", err)
}

var txCases = []Case{
	{"CommitKeepsAndRollbackUndoes", 0, func(e *Env) {
		e.Table("t", "a INT")
		tx := e.Begin(e.Ctx)
		e.Exec("insert", tx, "INSERT INTO t VALUES (1)")
		e.Count("inside", tx, "t")
		e.Err("commit", tx.Commit())
		e.ended("committed", tx)
		tx = e.Begin(e.Ctx)
		e.Exec("insert", tx, "INSERT INTO t VALUES (2)")
		e.Exec("delete", tx, "DELETE FROM t WHERE a = ?", 1)
		e.Query("inside", tx, "SELECT a FROM t")
		e.Err("rollback", tx.Rollback())
		e.ended("rolled back", tx)
		e.Query("outside", e.DB, "SELECT a FROM t")
		e.Idle()
	}},
	{"TransactionsKeepTheirConnection", ConnectionID, func(e *Env) {
		tx := e.Begin(e.Ctx)
		id := e.ID(tx)
		other := e.Begin(e.Ctx)
		e.Value("same", e.ID(tx) == id, e.ID(tx) == id)
		e.Value("two transactions share", e.ID(other) == id)
		e.Err("commit", tx.Commit())
		e.Err("commit", other.Commit())
	}},
	{"TransactionsOfTwoConnectionsAreIndependent", OnFake, func(e *Env) {
		e.Table("t", "a INT")
		one, two := e.Begin(e.Ctx), e.Begin(e.Ctx)
		e.Exec("one", one, "INSERT INTO t VALUES (1)")
		e.Exec("two", two, "INSERT INTO t VALUES (2)")
		e.Value("open on the server", e.Server.State().InTx())
		e.Err("rollback", one.Rollback())
		e.Err("commit", two.Commit())
		e.Value("open on the server", e.Server.State().InTx())
		e.Query("rows", e.DB, "SELECT a FROM t")
	}},
	{"IsolationLevelsReachTheServer", Isolation, func(e *Env) {
		for _, level := range e.SQL.Isolations {
			tx, err := e.DB.BeginTx(e.Ctx, &sql.TxOptions{Isolation: level})
			e.Err(level.String(), err)
			if err == nil {
				e.Query(level.String(), tx, e.SQL.Isolation)
				e.Err("rollback", tx.Rollback())
			}
		}
		e.Alive()
	}},
	{"IsolationAndReadOnlyAreTheServersBusiness", OnFake, func(e *Env) {
		for _, opts := range []*sql.TxOptions{
			nil, {}, {ReadOnly: true}, {Isolation: sql.LevelSerializable},
			{Isolation: sql.LevelSerializable, ReadOnly: true}, {Isolation: 99}, {Isolation: -1},
		} {
			tx, err := e.DB.BeginTx(e.Ctx, opts)
			e.Err("begin", err)
			if err != nil {
				continue
			}
			e.Query("isolation", tx, "SHOW isolation")
			e.Query("read only", tx, "SHOW read_only")
			e.Err("rollback", tx.Rollback())
		}
		e.Value("open on the server", e.Server.State().InTx())
		e.Idle()
	}},
	{"ReadOnlyTransactionsRefuseWrites", ReadOnly, func(e *Env) {
		e.Table("t", "a INT")
		tx, err := e.DB.BeginTx(e.Ctx, &sql.TxOptions{ReadOnly: true})
		e.Err("begin", err)
		e.Must(err)
		e.Count("read", tx, "t")
		e.Exec("write", tx, "INSERT INTO t VALUES (1)")
		e.Err("rollback", tx.Rollback())
		e.Exec("write outside", e.DB, "INSERT INTO t VALUES (2)")
		e.Count("rows", e.DB, "t")
	}},
	{"ErrorInATransactionLeavesItToTheCaller", 0, func(e *Env) {
		e.Table("t", "a INT NOT NULL")
		for range 2 {
			tx := e.Begin(e.Ctx)
			e.Exec("insert", tx, "INSERT INTO t VALUES (1)")
			e.Exec("error", tx, "INSERT INTO t VALUES (NULL)")
			e.Exec("insert", tx, "INSERT INTO t VALUES (2)")
			e.Err("commit", tx.Commit())
			e.Query("rows", e.DB, "SELECT a FROM t")
		}
	}},
	{"SavepointsAreTheServersBusiness", 0, func(e *Env) {
		e.Table("t", "a INT")
		tx := e.Begin(e.Ctx)
		e.Exec("insert", tx, "INSERT INTO t VALUES (1)")
		e.Exec("savepoint", tx, "SAVEPOINT one")
		e.Exec("insert", tx, "INSERT INTO t VALUES (2)")
		e.Exec("rollback to", tx, "ROLLBACK TO SAVEPOINT one")
		e.Exec("insert", tx, "INSERT INTO t VALUES (3)")
		e.Exec("release", tx, "RELEASE SAVEPOINT one")
		e.Exec("unknown", tx, "ROLLBACK TO SAVEPOINT two")
		e.Err("rollback", tx.Rollback())
		e.Count("rows", e.DB, "t")
	}},
	{"TemporaryTablesLiveThroughTheTransaction", TempTable, func(e *Env) {
		tx := e.Begin(e.Ctx)
		e.Exec("create", tx, e.SQL.TempTable)
		e.Exec("insert", tx, "INSERT INTO tmp VALUES (1)")
		e.Count("rows", tx, "tmp")
		e.Err("rollback", tx.Rollback())
	}},
	{"RowsOpenInATransactionMeetTheNextStatement", OnFake, func(e *Env) {
		// The driver's answer counts: a busy connection says so.
		tx := e.Begin(e.Ctx)
		rows, err := tx.Query("SELECT * FROM numbers LIMIT 3")
		e.Must(err)
		e.Value("next", rows.Next())
		_, err = tx.Exec("SET a = 1")
		e.Err("exec", err)
		e.Err("query", tx.QueryRow("SELECT 1").Scan(new(int)))
		e.Row("row", rows, 1)
		e.Value("next", rows.Next())
		e.Row("row", rows, 1)
		e.Err("close", rows.Close())
		e.Err("commit", tx.Commit())
	}},
	{"RowsOpenAtTheEndOfATransactionAreClosed", Series, func(e *Env) {
		for _, commit := range []bool{true, false} {
			tx := e.Begin(e.Ctx)
			rows, err := tx.Query(e.SQL.Series)
			e.Must(err)
			e.Value("next", rows.Next())
			if commit {
				e.Err("commit", tx.Commit())
			} else {
				e.Err("rollback", tx.Rollback())
			}
			e.Value("next", rows.Next())
			e.Err("error", rows.Err())
			e.Err("close", rows.Close())
		}
		e.Idle()
		e.Alive()
	}},
	{"StatementsContextDoesNotEndTheTransaction", OnFake, func(e *Env) {
		e.Table("t", "a INT")
		tx := e.Begin(e.Ctx)
		_, err := tx.ExecContext(cancelled(), "INSERT INTO t VALUES (1)")
		e.Err("cancelled", err)
		e.Exec("insert", tx, "INSERT INTO t VALUES (2)")
		e.Err("commit", tx.Commit())
		e.Query("rows", e.DB, "SELECT a FROM t")
	}},
	{"BareBeginWithoutContextWorks", 0, func(e *Env) {
		tx, err := e.DB.Begin()
		e.Err("begin", err)
		e.Must(err)
		e.Query("query", tx, "SELECT 1")
		e.Err("commit", tx.Commit())
	}},
	{"BeginErrorsGoThroughUnchanged", OnFake, func(e *Env) {
		e.Server.Inject(fakedb.Fault{Call: fakedb.ConnBeginCtx, Err: errBoom})
		e.Server.Inject(fakedb.Fault{Call: fakedb.ConnBegin, Err: errBoom})
		_, err := e.DB.BeginTx(e.Ctx, nil)
		e.Err("begin", err)
		e.Idle()
		e.Alive()
	}},
}

var txEndCases = []Case{
	{"CommitAndRollbackErrorsGoThroughUnchanged", OnFake, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		for _, fault := range []error{errBoom, badConn} {
			e.Server.Inject(fakedb.Fault{
				Call: fakedb.TxCommit, After: true, Err: fault, Kill: fault == badConn,
			})
			tx := e.Begin(e.Ctx)
			e.Err("commit", tx.Commit())
			e.Err("commit again", tx.Commit())
			e.Server.Inject(fakedb.Fault{
				Call: fakedb.TxRollback, After: true, Err: fault, Kill: fault == badConn,
			})
			tx = e.Begin(e.Ctx)
			e.Err("rollback", tx.Rollback())
			e.Err("rollback again", tx.Rollback())
			e.Server.Heal()
			e.Idle()
		}
		e.Alive()
		e.Await("no transaction is left", func() bool { return e.Server.State().InTx() == 0 })
	}},
	{"CommitReachesTheServerOnce", OnFake, func(e *Env) {
		tx := e.Begin(e.Ctx)
		e.Exec("set", tx, "SET a = 1")
		e.Err("commit", tx.Commit())
		tx = e.Begin(e.Ctx)
		e.Err("rollback", tx.Rollback())
		e.Value("commits and rollbacks",
			len(e.Server.Events(fakedb.TxCommit)), len(e.Server.Events(fakedb.TxRollback)))
	}},
	{"ContextThatEndsRollsTheTransactionBack", 0, func(e *Env) {
		e.Table("t", "a INT")
		ctx, cancel := context.WithCancel(context.Background())
		tx := e.Begin(ctx)
		e.Exec("insert", tx, "INSERT INTO t VALUES (1)")
		cancel()
		e.Idle()
		_, err := tx.ExecContext(e.Ctx, "INSERT INTO t VALUES (2)")
		e.Err("exec", err)
		e.Err("rollback", tx.Rollback())
		e.Is("commit", tx.Commit(), sql.ErrTxDone, context.Canceled)
		e.Count("rows", e.DB, "t")
		e.Alive()
	}},
	{"ContextThatEndsBeforeCommitIsTold", 0, func(e *Env) {
		e.Table("t", "a INT")
		ctx, cancel := context.WithCancel(context.Background())
		tx := e.Begin(ctx)
		e.Exec("insert", tx, "INSERT INTO t VALUES (1)")
		cancel()
		err := tx.Commit()
		e.Value("commit fails", err != nil)
		e.Idle()
		e.Count("rows", e.DB, "t")
	}},
	{"RollbackAfterItsContextEndedRollsBack", OnFake, func(e *Env) {
		e.Table("t", "a INT")
		ctx, cancel := context.WithCancel(context.Background())
		tx := e.Begin(ctx)
		e.Exec("insert", tx, "INSERT INTO t VALUES (1)")
		cancel()
		// Either this call or the context's watcher gets there first.
		_ = tx.Rollback()
		e.Idle()
		e.Await("no transaction is left", func() bool { return e.Server.State().InTx() == 0 })
		e.Count("rows", e.DB, "t")
		e.Value("rollbacks on the server", len(e.Server.Events(fakedb.TxRollback)))
	}},
	{"RowsEndWithTheContextOfTheirTransaction", Series, func(e *Env) {
		ctx, cancel := context.WithCancel(context.Background())
		tx := e.Begin(ctx)
		rows, err := tx.QueryContext(e.Ctx, e.SQL.Series)
		e.Must(err)
		e.Value("next", rows.Next())
		cancel()
		e.Idle()
		e.Value("next", rows.Next())
		e.Is("error", rows.Err(), context.Canceled)
		e.Err("close", rows.Close())
		e.Alive()
	}},
	{"TransactionOnALostConnectionFails", OnFake, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		e.Table("t", "a INT")
		tx := e.Begin(e.Ctx)
		e.Exec("insert", tx, "INSERT INTO t VALUES (1)")
		e.Server.KillAll()
		e.Exec("exec", tx, "INSERT INTO t VALUES (2)")
		e.Query("query", tx, "SELECT 1")
		e.Err("commit", tx.Commit())
		e.Idle()
		e.Count("rows", e.DB, "t")
	}},
	{"ConnectionAfterACancelledTransactionIsKeptOrDropped", OnFake, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		ctx, cancel := context.WithCancel(context.Background())
		tx := e.Begin(ctx)
		id := e.ID(tx)
		cancel()
		e.Idle()
		e.Value("same connection afterwards", e.ID(e.DB) == id)
	}},
	{"PanicBetweenBeginAndCommitIsTheCallersBusiness", 0, func(e *Env) {
		e.Table("t", "a INT")
		e.DB.SetMaxOpenConns(1)
		e.Panics("caller", func() {
			tx := e.Begin(e.Ctx)
			defer func() { _ = tx.Rollback() }()
			e.Do(tx, "INSERT INTO t VALUES (1)")
			panic("the caller's")
		})
		e.Count("rows", e.DB, "t")
	}},
}
