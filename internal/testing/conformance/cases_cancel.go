package conformance

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// atTheGate runs f with a context that is cancelled once the call, which never
// answers by itself, is in the driver.
func (e *Env) atTheGate(label string, calls []fakedb.Call, f func(ctx context.Context) error) {
	gate := fakedb.NewGate()
	for _, call := range calls {
		e.Server.Inject(fakedb.Fault{Call: call, Gate: gate})
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	var err error
	select {
	case <-gate.Entered():
		cancel()
		// A legacy driver never learns of it and ends when it ends.
		select {
		case err = <-done:
		case <-time.After(10 * time.Millisecond):
			gate.Open()
			err = <-done
		}
	case err = <-done:
	}
	e.Err(label, err)
	gate.Open()
	e.Server.Heal()
	e.Idle()
}

var cancelCases = []Case{
	{"CancelReachesTheRunningCall", OnFake, func(e *Env) {
		e.atTheGate("exec", []fakedb.Call{fakedb.ConnExecCtx, fakedb.ConnExec, fakedb.StmtExecCtx, fakedb.StmtExec},
			func(ctx context.Context) error {
				_, err := e.DB.ExecContext(ctx, "SET a = 1")
				return err
			})
		e.atTheGate("query", []fakedb.Call{fakedb.ConnQueryCtx, fakedb.ConnQuery, fakedb.StmtQueryCtx, fakedb.StmtQuery},
			func(ctx context.Context) error {
				rows, err := e.DB.QueryContext(ctx, "SELECT 1")
				if err == nil {
					_ = rows.Close()
				}
				return err
			})
		e.atTheGate("prepare", []fakedb.Call{fakedb.ConnPrepareCtx, fakedb.ConnPrepare},
			func(ctx context.Context) error {
				s, err := e.DB.PrepareContext(ctx, "SELECT 2 AS fresh")
				if err == nil {
					_ = s.Close()
				}
				return err
			})
		e.atTheGate("begin", []fakedb.Call{fakedb.ConnBeginCtx, fakedb.ConnBegin},
			func(ctx context.Context) error {
				_, err := e.DB.BeginTx(ctx, nil)
				return err
			})
		e.atTheGate("ping", []fakedb.Call{fakedb.ConnPing},
			func(ctx context.Context) error { return e.DB.PingContext(ctx) })
		e.Await("no transaction is left", func() bool { return e.Server.State().InTx() == 0 })
		e.Alive()
	}},
	{"CancelReachesTheRunningStatement", OnFake, func(e *Env) {
		s := e.Prepare(e.DB, "SELECT ?")
		e.atTheGate("exec", []fakedb.Call{fakedb.StmtExecCtx, fakedb.StmtExec}, func(ctx context.Context) error {
			_, err := s.ExecContext(ctx, 1)
			return err
		})
		e.atTheGate("query", []fakedb.Call{fakedb.StmtQueryCtx, fakedb.StmtQuery}, func(ctx context.Context) error {
			rows, err := s.QueryContext(ctx, 1)
			if err == nil {
				_ = rows.Close()
			}
			return err
		})
		e.Err("close", s.Close())
		e.Alive()
	}},
	{"CancelReachesTheRowsThatAreBeingRead", OnFake, func(e *Env) {
		e.atTheGate("next", []fakedb.Call{fakedb.RowsNext}, func(ctx context.Context) error {
			rows, err := e.DB.QueryContext(ctx, "SELECT * FROM numbers LIMIT 3")
			if err != nil {
				return err
			}
			for rows.Next() { // to the end, which the context is
				<-ctx.Done()
				// A driver that knows no context reads on. database/sql closes the
				// rows in a goroutine of its own; closed rows have no columns.
				for range 1000 {
					if _, err := rows.Columns(); err != nil {
						break
					}
					time.Sleep(5 * time.Millisecond)
				}
			}
			err = rows.Err()
			return errors.Join(err, rows.Close())
		})
		e.Alive()
	}},
	{"CancelReachesConnect", OnFake, func(e *Env) {
		e.atTheGate("exec", []fakedb.Call{fakedb.Connect}, func(ctx context.Context) error {
			_, err := e.DB.ExecContext(ctx, "SET a = 1")
			return err
		})
		e.Value("executed", e.Server.Executed("SET"))
		e.Alive()
	}},
	{"CancelEndsALongStatement", Sleep, func(e *Env) {
		e.Alive()
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := e.DB.ExecContext(ctx, e.SQL.Sleep)
		e.Is("exec", err, context.DeadlineExceeded)
		e.Value("in time", time.Since(start) < 5*time.Second)
		e.Idle()
		e.Alive()
	}},
	{"CancelEndsALongQuery", Sleep, func(e *Env) {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		start := time.Now()
		e.Is("query row", e.DB.QueryRowContext(ctx, e.SQL.Sleep).Scan(new(any)), context.DeadlineExceeded)
		e.Value("in time", time.Since(start) < 5*time.Second)
		e.Idle()
		e.Alive()
	}},
	{"CancelInMidStreamEndsTheRows", Series, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		ctx, cancel := context.WithCancel(context.Background())
		rows, err := e.DB.QueryContext(ctx, e.SQL.Series)
		e.Must(err)
		e.Value("next", rows.Next())
		cancel()
		e.Idle()
		e.Value("next", rows.Next())
		e.Is("error", rows.Err(), context.Canceled)
		e.Value("scan fails", rows.Scan(new(int)) != nil)
		e.Err("close", rows.Close())
		e.Alive()
	}},
	{"CancelInsideATransactionEndsTheStatement", Sleep, func(e *Env) {
		e.Table("t", "a INT")
		tx := e.Begin(e.Ctx)
		e.Exec("insert", tx, "INSERT INTO t VALUES (1)")
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_, err := tx.ExecContext(ctx, e.SQL.Sleep)
		e.Is("exec", err, context.DeadlineExceeded)
		_ = tx.Rollback()
		e.Idle()
		e.Count("rows", e.DB, "t")
	}},
	{"CancelAfterQueryRowChangesNothing", 0, func(e *Env) {
		ctx, cancel := context.WithCancel(context.Background())
		var n int
		err := e.DB.QueryRowContext(ctx, "SELECT 1").Scan(&n)
		cancel()
		e.Value("value", n, err)
		e.Idle()
		e.Alive()
	}},
	{"CancelWhileWaitingForAConnection", 0, func(e *Env) {
		e.DB.SetMaxOpenConns(1)
		held := e.Conn()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		_, err := e.DB.ExecContext(ctx, "SELECT 1")
		e.Err("exec", err)
		_, err = e.DB.BeginTx(ctx, nil)
		e.Err("begin", err)
		e.Err("give back", held.Close())
		e.Alive()
	}},
}

var cancelledCases = []Case{
	{"EndedContextsReachNoServer", 0, func(e *Env) {
		e.Alive()
		s := e.Prepare(e.DB, "SELECT 1")
		before := 0
		if e.Server != nil {
			before = e.Server.State().Executed
		}
		for range 3 {
			_, err := e.DB.ExecContext(cancelled(), "SELECT 1")
			e.Err("exec", err)
			_, err = e.DB.QueryContext(cancelled(), "SELECT 1")
			e.Err("query", err)
			e.Err("query row", e.DB.QueryRowContext(cancelled(), "SELECT 1").Scan(new(int)))
			_, err = e.DB.PrepareContext(cancelled(), "SELECT 1")
			e.Err("prepare", err)
			_, err = e.DB.BeginTx(cancelled(), nil)
			e.Err("begin", err)
			_, err = e.DB.Conn(cancelled())
			e.Err("conn", err)
			e.Err("ping", e.DB.PingContext(cancelled()))
			_, err = s.ExecContext(cancelled())
			e.Err("statement", err)
		}
		if e.Server != nil {
			e.Value("executed", e.Server.State().Executed-before)
		}
		e.Err("close", s.Close())
		e.Idle()
		e.Alive()
	}},
	{"EndedContextsOnAConnLeaveItUsable", OnFake, func(e *Env) {
		c := e.Conn()
		e.Query("before", c, "SELECT 1")
		_, err := c.ExecContext(cancelled(), "SET a = 1")
		e.Err("exec", err)
		_, err = c.QueryContext(cancelled(), "SELECT 1")
		e.Err("query", err)
		_, err = c.PrepareContext(cancelled(), "SELECT 1")
		e.Err("prepare", err)
		_, err = c.BeginTx(cancelled(), nil)
		e.Err("begin", err)
		e.Query("after", c, "SELECT 1")
		e.Value("executed", e.Server.Executed("SET"))
		e.Value("open transactions", e.Server.State().InTx())
	}},
	{"DeadlinesThatPassedAreTold", 0, func(e *Env) {
		ctx, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
		defer cancel()
		_, err := e.DB.ExecContext(ctx, "SELECT 1")
		e.Err("exec", err)
		_, err = e.DB.BeginTx(ctx, &sql.TxOptions{})
		e.Err("begin", err)
		e.Err("ping", e.DB.PingContext(ctx))
	}},
	{"CausesStayWithTheContext", 0, func(e *Env) {
		ctx, cancel := context.WithCancelCause(context.Background())
		tx := e.Begin(ctx)
		cancel(errBoom)
		e.Idle()
		_, err := tx.ExecContext(ctx, "SELECT 1")
		e.Value("transaction fails", err != nil)
		_, err = e.DB.ExecContext(ctx, "SELECT 1")
		e.Err("exec", err)
		_, err = e.DB.BeginTx(ctx, nil)
		e.Err("begin", err)
	}},
	{"CancelledTransactionsDoNotUseUpTheLimit", 0, func(e *Env) {
		e.DB.SetMaxOpenConns(2)
		for range 5 {
			_, err := e.DB.BeginTx(cancelled(), nil)
			e.Err("begin", err)
		}
		e.Idle()
		e.Alive()
	}},
}
