package conformance

import (
	"context"
	"fmt"
	"sync"

	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// panicCases have one connection only where database/sql gives it back: a slot
// that a wrapper lost would show.
var panicCases = []Case{
	{"PanicsOfTheDriverReachTheCallerAndLeaveTheDatabaseUsable", OnFake, func(e *Env) {
		e.Leaks()
		for _, op := range e.operations() {
			for _, call := range firstCalls {
				e.Server.Inject(fakedb.Fault{Call: call, Panic: "driver"})
			}
			e.Panics(op.name, func() { e.Err(op.name, op.do(e.Ctx)) })
			e.Server.Heal()
			e.Alive()
		}
	}},
	{"PanicsOfStatementsReachTheCaller", OnFake, func(e *Env) {
		e.Leaks()
		e.Panics("exec", func() { _, _ = e.DB.Exec("SELECT ? /*+ panic 'exec' */", 1) })
		e.Panics("query", func() { _, _ = e.DB.Query("SELECT ? /*+ panic 'query' */", 1) })
		s := e.Prepare(e.DB, "SELECT 1 /*+ panic 'statement' */")
		e.Panics("prepared", func() { _, _ = s.Exec() })
		e.Err("close", s.Close())
		e.Alive()
	}},
	{"PanicsInATransactionReachTheCaller", OnFake, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		e.Table("t", "a INT")
		tx := e.Begin(e.Ctx)
		e.Exec("insert", tx, "INSERT INTO t VALUES (1)")
		e.Panics("exec", func() { _, _ = tx.Exec("INSERT INTO t VALUES (2) /*+ panic 'tx' */") })
		e.Err("rollback", tx.Rollback())
		e.Idle()
		e.Count("rows", e.DB, "t")
	}},
	{"PanicsOfRowsReachTheCaller", OnFake, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		rows, err := e.DB.Query("SELECT * FROM numbers LIMIT 5")
		e.Must(err)
		e.Value("next", rows.Next())
		e.Server.Inject(fakedb.Fault{Call: fakedb.RowsNext, Panic: "next"})
		e.Panics("next", func() { rows.Next() })
		e.Err("close", rows.Close())
		e.Idle()
		e.Alive()
	}},
	{"PanicsOfCheckersReachTheCaller", OnFake, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		e.Server.Inject(fakedb.Fault{Call: fakedb.ConnCheck, Panic: "check"})
		e.Panics("exec", func() { e.Exec("exec", e.DB, "SELECT ?", 1) })
		e.Idle()
		e.Alive()
	}},
	{"PanicsOfExecGiveTheConnectionBack", OnFake, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		for range 3 {
			e.Panics("exec", func() { _, _ = e.DB.Exec("SELECT 1 /*+ panic 'exec' */") })
			e.Idle()
		}
		e.Alive()
	}},
	{"PanicsBetweenCheckoutsLeaveTheDatabaseUsable", OnFake, func(e *Env) {
		e.Leaks()
		for _, call := range []fakedb.Call{fakedb.ConnReset, fakedb.ConnValid, fakedb.Connect} {
			e.Alive()
			e.Server.Inject(fakedb.Fault{Call: call, Panic: "between"})
			if call == fakedb.Connect {
				e.Server.KillAll()
			}
			e.Outcome(string(call), func() error {
				_, err := e.DB.Exec("SELECT 1")
				return err
			})
			e.Server.Heal()
			e.Alive()
		}
	}},
	{"PanicsOfCommitReachTheCaller", OnFake, func(e *Env) {
		e.Leaks()
		tx := e.Begin(e.Ctx)
		e.Server.Inject(fakedb.Fault{Call: fakedb.TxCommit, Panic: "commit"})
		e.Panics("commit", func() { e.Err("commit", tx.Commit()) })
		e.Alive()
	}},
}

var concurrencyCases = []Case{
	{"ManyGoroutinesGetTheirOwnAnswers", 0, func(e *Env) {
		e.DB.SetMaxOpenConns(4)
		e.Table("t", "a INT, b TEXT")
		var wg sync.WaitGroup
		var mu sync.Mutex
		var wrong []string
		fail := func(g int, err error) {
			mu.Lock()
			defer mu.Unlock()
			wrong = append(wrong, fmt.Sprint(g, err))
		}
		for g := range 8 {
			wg.Go(func() {
				for i := range 5 {
					want := fmt.Sprint(g, "-", i)
					if err := e.goroutine(g*100+i, want); err != nil {
						fail(g, err)
					}
				}
			})
		}
		wg.Wait()
		e.Value("wrong", wrong)
		e.Count("rows", e.DB, "t")
		e.Idle()
	}},
	{"ManyGoroutinesShareAConn", OnFake, func(e *Env) {
		e.Table("t", "a INT")
		c := e.Conn()
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for g := range errs {
			wg.Go(func() { _, errs[g] = c.ExecContext(e.Ctx, "INSERT INTO t VALUES (?)", g) })
		}
		wg.Wait()
		for _, err := range errs {
			e.Err("insert", err)
		}
		e.Count("rows", c, "t")
	}},
	{"ManyCancelsLeaveNothingBehind", Series, func(e *Env) {
		e.DB.SetMaxOpenConns(3)
		var wg sync.WaitGroup
		for g := range 6 {
			wg.Go(func() {
				for i := range 10 {
					e.cancelAfter((g + i) % 4)
				}
			})
		}
		wg.Wait()
		e.Idle()
		e.Alive()
		if e.Server != nil {
			e.Await("nothing is left", func() bool {
				s := e.Server.State()
				return s.InTx() == 0 && s.OpenRows() == 0
			})
		}
	}},
	{"ManyGoroutinesShareATransaction", OnFake, func(e *Env) {
		e.Table("t", "a INT")
		tx := e.Begin(e.Ctx)
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for g := range errs {
			wg.Go(func() { _, errs[g] = tx.ExecContext(e.Ctx, "INSERT INTO t VALUES (?)", g) })
		}
		wg.Wait()
		for _, err := range errs {
			e.Err("insert", err)
		}
		e.Err("commit", tx.Commit())
		e.Count("rows", e.DB, "t")
	}},
}

// goroutine writes in a transaction, commits every other one, and reads back.
func (e *Env) goroutine(id int, text string) error {
	tx, err := e.DB.BeginTx(e.Ctx, nil)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(e.Ctx, e.SQL.rebind("INSERT INTO t VALUES (?, ?)"), id, text); err != nil {
		_ = tx.Rollback()
		return err
	}
	var got string
	err = tx.QueryRowContext(e.Ctx, e.SQL.rebind("SELECT b FROM t WHERE a = ?"), id).Scan(&got)
	if err != nil {
		_ = tx.Rollback()
		return err
	}
	if got != text {
		_ = tx.Rollback()
		return fmt.Errorf("got %q, want %q", got, text)
	}
	if id%2 == 0 {
		return tx.Commit()
	}
	return tx.Rollback()
}

// cancelAfter cancels a transaction that reads rows after so many steps.
func (e *Env) cancelAfter(steps int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	step := func() {
		if steps == 0 {
			cancel()
		}
		steps--
	}
	tx, err := e.DB.BeginTx(ctx, nil)
	if err != nil {
		return
	}
	// The context's watcher may have been first.
	defer func() { _ = tx.Rollback() }()
	step()
	rows, err := tx.QueryContext(ctx, e.SQL.Series)
	if err != nil {
		return
	}
	defer func() { _ = rows.Close() }()
	step()
	for range 2 {
		rows.Next()
		step()
	}
	_ = rows.Err()
}
