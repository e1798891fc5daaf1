package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// answer is what a call with the context of a task that has ended returns.
type answer uint8

const (
	ours   answer = iota // errors.Is finds ErrTaskEnded, and the error and the cause of the context
	bare                 // database/sql answers by itself: the context's error
	either               // ours if the task has ended its context, bare if another context has ended it
	txDone               // database/sql answers by itself: sql.ErrTxDone
	none                 // no error: what was asked for has happened
)

// call is a call of a program. The handle was made in the task.
type call func(ctx context.Context) error

// inTask makes the handle of a call in a task.
type inTask func(t *testing.T, ctx context.Context, db *sql.DB) call

func onDB(use func(ctx context.Context, db *sql.DB) error) inTask {
	return func(_ *testing.T, _ context.Context, db *sql.DB) call {
		return func(ctx context.Context) error { return use(ctx, db) }
	}
}

func onTaskConn(use func(ctx context.Context, conn *sql.Conn) error) inTask {
	return func(t *testing.T, ctx context.Context, db *sql.DB) call {
		conn := takeConn(t, ctx, db)
		return func(ctx context.Context) error { return use(ctx, conn) }
	}
}

func onTx(use func(ctx context.Context, tx *sql.Tx) error) inTask {
	return func(t *testing.T, ctx context.Context, db *sql.DB) call {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback() })
		return func(ctx context.Context) error { return use(ctx, tx) }
	}
}

func onRows(t *testing.T, ctx context.Context, db *sql.DB) call {
	rows, err := db.QueryContext(ctx, "SELECT n FROM numbers LIMIT 100")
	require.NoError(t, err)
	require.True(t, rows.Next())
	t.Cleanup(func() { _ = rows.Close() })
	return func(context.Context) error {
		for rows.Next() {
		}
		return rows.Err()
	}
}

func onStmt(t *testing.T, ctx context.Context, db *sql.DB) call {
	stmt, err := db.PrepareContext(ctx, insertThree)
	require.NoError(t, err)
	t.Cleanup(func() { _ = stmt.Close() })
	return func(ctx context.Context) error { return errorOf(stmt.ExecContext(ctx)) }
}

func errorOf(_ any, err error) error { return err }

// afterTheEnd has each call that a program can make, and what it returns when the task has ended: with
// the task's context, and with a context that outlives the task (context.WithoutCancel), with
// which the handle was made, too.
var afterTheEnd = map[string]struct {
	make             inTask
	within, outlives answer
}{
	"DB.Exec":  {onDB(func(ctx context.Context, db *sql.DB) error { return execThree(db, ctx) }), bare, ours},
	"DB.Query": {onDB(func(ctx context.Context, db *sql.DB) error { return errorOf(db.QueryContext(ctx, "SELECT 1")) }), bare, ours},
	"Row.Scan": {onDB(func(ctx context.Context, db *sql.DB) error {
		return db.QueryRowContext(ctx, "SELECT 1").Scan(new(int))
	}), bare, ours},
	"DB.Prepare": {onDB(func(ctx context.Context, db *sql.DB) error { return errorOf(db.PrepareContext(ctx, "SELECT 1")) }), bare, ours},
	"DB.BeginTx": {onDB(func(ctx context.Context, db *sql.DB) error { return beginIn(db, ctx) }), bare, ours},
	"DB.Ping":    {onDB(func(ctx context.Context, db *sql.DB) error { return db.PingContext(ctx) }), bare, ours},
	"Stmt.Exec":  {onStmt, bare, ours},
	"Rows.Err":   {onRows, bare, ours},

	"Conn.Exec":  {onTaskConn(func(ctx context.Context, c *sql.Conn) error { return errorOf(c.ExecContext(ctx, insertThree)) }), ours, ours},
	"Conn.Query": {onTaskConn(func(ctx context.Context, c *sql.Conn) error { return errorOf(c.QueryContext(ctx, "SELECT 1")) }), ours, ours},
	"Conn.Prepare": {onTaskConn(func(ctx context.Context, c *sql.Conn) error {
		return errorOf(c.PrepareContext(ctx, "SELECT 1"))
	}), ours, ours},
	"Conn.BeginTx": {onTaskConn(func(ctx context.Context, c *sql.Conn) error { return errorOf(c.BeginTx(ctx, nil)) }), ours, ours},
	"Conn.Ping":    {onTaskConn(func(ctx context.Context, c *sql.Conn) error { return c.PingContext(ctx) }), ours, ours},
	"Raw": {onTaskConn(func(ctx context.Context, c *sql.Conn) error {
		return pooldriver.Raw(ctx, c, func(driver.Conn) error { return nil })
	}), ours, ours},

	"Tx.Exec":     {onTx(func(ctx context.Context, tx *sql.Tx) error { return errorOf(tx.ExecContext(ctx, insertThree)) }), bare, ours},
	"Tx.Query":    {onTx(func(ctx context.Context, tx *sql.Tx) error { return errorOf(tx.QueryContext(ctx, "SELECT 1")) }), bare, ours},
	"Tx.Prepare":  {onTx(func(ctx context.Context, tx *sql.Tx) error { return errorOf(tx.PrepareContext(ctx, "SELECT 1")) }), bare, ours},
	"Tx.Commit":   {onTx(func(_ context.Context, tx *sql.Tx) error { return tx.Commit() }), txDone, ours},
	"Tx.Rollback": {onTx(func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() }), txDone, none},

	"InTx": {onDB(func(ctx context.Context, db *sql.DB) error {
		return inTransaction(ctx, db, func(context.Context) error { return nil })
	}), either, ours},
}

// TestWhatAProgramGetsOfATaskThatHasEnded is the table of docs/tasks.md.
func TestWhatAProgramGetsOfATaskThatHasEnded(t *testing.T) {
	for ending, makes := range contextEndings {
		for name, tc := range afterTheEnd {
			for _, outlives := range []bool{false, true} {
				t.Run(ending+"/"+name+map[bool]string{true: ", outliving"}[outlives], func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						server, db, c := openTasks(t, 2, quiet, func(c *pooldriver.Config) {
							if ending == "pool_task_timeout" {
								c.TaskTimeout = endsAfter
							}
						})
						ctx, end := pooldriver.WithTask(makes(t.Context()))
						defer end()
						require.NoError(t, db.PingContext(ctx))
						used, want := ctx, tc.within
						if outlives {
							used, want = context.WithoutCancel(ctx), tc.outlives
						}
						use := tc.make(t, used, db)
						<-ctx.Done()
						synctest.Wait()
						require.Contains(t, []error{context.Canceled, context.DeadlineExceeded}, ctx.Err(), "the rest of the program compares it")
						requireAnswer(t, ctx, want, use(used))
						require.Empty(t, server.Table("t"))
						atRest(t, c)
					})
				})
			}
		}
	}
}

func requireAnswer(t *testing.T, ctx context.Context, want answer, err error) {
	t.Helper()
	if want == either {
		if want = bare; errors.Is(context.Cause(ctx), pooldriver.ErrTaskEnded) {
			want = ours
		}
	}
	switch want {
	case ours:
		require.ErrorIs(t, err, ctx.Err())
		require.ErrorIs(t, err, context.Cause(ctx))
		require.ErrorIs(t, err, pooldriver.ErrTaskEnded)
	case bare:
		require.Equal(t, ctx.Err(), err)
	case txDone:
		require.Equal(t, sql.ErrTxDone, err)
	case none:
		require.NoError(t, err)
	}
}

// TestATaskThatEndsInItsFunctionSaysSo: database/sql answers by itself, but Do and InTx return last.
func TestATaskThatEndsInItsFunctionSaysSo(t *testing.T) {
	failed := errors.New("of the program")
	for name, tc := range map[string]struct {
		fn    func(ctx context.Context, tx *sql.Tx) error
		ended bool
	}{
		"a statement":                {func(ctx context.Context, tx *sql.Tx) error { return errorOf(tx.ExecContext(ctx, insertThree)) }, true},
		"another context":            {func(_ context.Context, tx *sql.Tx) error { return errorOf(tx.Exec(insertThree)) }, true},
		"no statement":               {func(context.Context, *sql.Tx) error { return nil }, true},
		"an error of something else": {func(context.Context, *sql.Tx) error { return failed }, false},
	} {
		for _, inTx := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server, db, _ := openTasks(t, 1, quiet, func(c *pooldriver.Config) { c.TaskTimeout = endsAfter })
					fn := func(ctx context.Context, tx *sql.Tx) error {
						<-ctx.Done()
						synctest.Wait()
						return tc.fn(ctx, tx)
					}
					var err error
					if inTx {
						err = pooldriver.InTx(t.Context(), db, nil, fn)
					} else {
						err = pooldriver.Do(t.Context(), func(ctx context.Context) error {
							tx, err := db.BeginTx(ctx, nil)
							require.NoError(t, err)
							return errors.Join(fn(ctx, tx), tx.Commit())
						})
					}
					require.Error(t, err)
					require.Empty(t, server.Table("t"))
					if !tc.ended {
						require.ErrorIs(t, err, failed)
						require.Equal(t, !inTx, errors.Is(err, pooldriver.ErrTaskEnded), "that of the Commit is joined")
						return
					}
					require.ErrorIs(t, err, pooldriver.ErrTaskEnded)
					require.ErrorIs(t, err, context.Canceled)
					require.ErrorContains(t, err, "pool_task_timeout")
				})
			})
		}
	}
	_, db, _ := openTasks(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	require.Equal(t, context.Canceled, pooldriver.InTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}), "the program's own context ended it")
}

// TestWhatATasksEndCutsSaysSo: calls of the driver that outlive the end of their task are cut off.
func TestWhatATasksEndCutsSaysSo(t *testing.T) {
	for name, tc := range map[string]struct {
		hangs fakedb.Call
		make  inTask
	}{
		"Exec": {fakedb.ConnExecCtx, onDB(func(ctx context.Context, db *sql.DB) error { return execThree(db, ctx) })},
		"Query": {fakedb.ConnQueryCtx, onDB(func(ctx context.Context, db *sql.DB) error {
			return db.QueryRowContext(ctx, "SELECT 1").Scan(new(int))
		})},
		"Rows":    {fakedb.RowsNext, onRows},
		"Prepare": {fakedb.ConnPrepareCtx, onDB(func(ctx context.Context, db *sql.DB) error { return errorOf(db.PrepareContext(ctx, "SELECT 1")) })},
		"Stmt":    {fakedb.StmtExecCtx, onStmt},
		"Commit":  {fakedb.TxCommit, onTx(func(_ context.Context, tx *sql.Tx) error { return tx.Commit() })},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, db, c := openTasks(t, 2, quiet, func(c *pooldriver.Config) { c.CleanTimeout = time.Second })
				ctx, end := pooldriver.WithTask(t.Context())
				mustExec(t, ctx, db, "SET a = 1") // the task keeps its connection
				outliving := context.WithoutCancel(ctx)
				use := tc.make(t, outliving, db)
				gate := fakedb.NewGate()
				server.Inject(fakedb.Fault{Call: tc.hangs, Gate: gate, Err: io.ErrClosedPipe})
				done := make(chan error, 1)
				go func() { done <- use(outliving) }()
				<-gate.Entered()
				end()
				synctest.Wait()
				gate.Open()
				err := <-done
				require.ErrorIs(t, err, io.ErrClosedPipe)
				requireAnswer(t, ctx, ours, err)
				atRest(t, c)
			})
		})
	}
}
