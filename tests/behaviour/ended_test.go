package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
)

// errWhy contains what must not come through: database/sql would try again.
var errWhy = errors.Join(errors.New("another goroutine has failed"), driver.ErrBadConn, safeError{errors.New("conn closed")})

const endsAfter = time.Second

// contextEndings are the ways in which the context of a statement may end.
var contextEndings = map[string]func(context.Context) context.Context{
	"cancel": func(ctx context.Context) context.Context {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(endsAfter, cancel)
		return ctx
	},
	"cancel with a cause": func(ctx context.Context) context.Context {
		ctx, cancel := context.WithCancelCause(ctx)
		time.AfterFunc(endsAfter, func() { cancel(errWhy) })
		return ctx
	},
	"deadline": func(ctx context.Context) context.Context {
		ctx, cancel := context.WithTimeout(ctx, endsAfter)
		context.AfterFunc(ctx, cancel) // it passes
		return ctx
	},
	"deadline with a cause": func(ctx context.Context) context.Context {
		ctx, cancel := context.WithTimeoutCause(ctx, endsAfter, errWhy)
		context.AfterFunc(ctx, cancel) // it passes
		return ctx
	},
	"the task's function": func(ctx context.Context) context.Context {
		ctx, end := pooldriver.NewTask(ctx)
		time.AfterFunc(endsAfter, end)
		return ctx
	},
	"pool_task_timeout": func(ctx context.Context) context.Context {
		ctx, _ = pooldriver.NewTask(ctx)
		return ctx
	},
	"a task's context, with a cause": func(ctx context.Context) context.Context {
		ctx, cancel := context.WithCancelCause(ctx)
		time.AfterFunc(endsAfter, func() { cancel(errWhy) })
		ctx, _ = pooldriver.NewTask(ctx)
		return ctx
	},
}

// endingCase is an operation whose context ends while the driver, or we, are at it.
type endingCase struct {
	lazy   bool
	task   bool // for contexts of a task only
	option func(*stubdialect.Stub)
	do     func(t *testing.T, s *stubdialect.Stub, db *sql.DB, ctx context.Context) error
}

// hangs is an operation that hangs in the driver's call.
func hangs(call fakedb.Call, do func(*sql.DB, context.Context) error) endingCase {
	return endingCase{do: func(_ *testing.T, s *stubdialect.Stub, db *sql.DB, ctx context.Context) error {
		s.Server.Inject(fakedb.Fault{Call: call, Gate: fakedb.NewGate()})
		return do(db, ctx)
	}}
}

// sleeper is a Valuer that returns when the context has ended.
type sleeper struct{ ctx context.Context }

func (s sleeper) Value() (driver.Value, error) {
	<-s.ctx.Done()
	synctest.Wait()
	return int64(1), nil
}

const insertThree = "INSERT INTO t VALUES (3)"

func execThree(db *sql.DB, ctx context.Context) error {
	_, err := db.ExecContext(ctx, insertThree)
	return err
}

func beginIn(db *sql.DB, ctx context.Context) error {
	_, err := db.BeginTx(ctx, nil)
	return err
}

// endingCases are the operations that can hang.
var endingCases = map[string]endingCase{
	"exec": hangs(fakedb.ConnExecCtx, execThree),
	"query": hangs(fakedb.ConnQueryCtx, func(db *sql.DB, ctx context.Context) error {
		return db.QueryRowContext(ctx, "SELECT 1").Scan(new(int))
	}),
	"prepare": hangs(fakedb.ConnPrepareCtx, func(db *sql.DB, ctx context.Context) error {
		_, err := db.PrepareContext(ctx, "SELECT 1")
		return err
	}),
	"statement": hangs(fakedb.StmtExecCtx, func(db *sql.DB, ctx context.Context) error {
		stmt, err := db.PrepareContext(ctx, "INSERT INTO t VALUES (?)")
		if err != nil {
			return err
		}
		defer stmt.Close()
		_, err = stmt.ExecContext(ctx, 1)
		return err
	}),
	"ping":  hangs(fakedb.ConnPing, func(db *sql.DB, ctx context.Context) error { return db.PingContext(ctx) }),
	"begin": hangs(fakedb.ConnBeginCtx, beginIn),
	"acquire": {do: func(t *testing.T, _ *stubdialect.Stub, db *sql.DB, ctx context.Context) error {
		holder, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer holder.Close()
		require.NoError(t, holder.PingContext(t.Context()))
		require.NoError(t, db.Ping(), "there are two")
		other, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer other.Close()
		require.NoError(t, other.PingContext(t.Context()))
		return execThree(db, ctx)
	}},
	"the lock of the task's connection": {task: true, do: func(t *testing.T, s *stubdialect.Stub, db *sql.DB, ctx context.Context) error {
		mustExec(t, ctx, db, "SET a = 1")
		gate := fakedb.NewGate()
		s.Server.Inject(fakedb.Fault{Call: fakedb.ConnQueryCtx, Gate: gate})
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = db.QueryRowContext(context.WithoutCancel(ctx), "SELECT 1").Scan(new(int))
		}()
		<-gate.Entered()
		err := execThree(db, ctx)
		gate.Open()
		<-done
		return err
	}},
	"a lazy begin": {lazy: true, do: func(t *testing.T, s *stubdialect.Stub, db *sql.DB, ctx context.Context) error {
		s.Server.Inject(fakedb.Fault{Call: fakedb.ConnBeginCtx, Gate: fakedb.NewGate()})
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		_, err = tx.ExecContext(context.Background(), insertThree)
		return err
	}},
	"a lazy begin's statement": {lazy: true, do: func(t *testing.T, s *stubdialect.Stub, db *sql.DB, ctx context.Context) error {
		s.Server.Inject(fakedb.Fault{Call: fakedb.ConnBeginCtx, Gate: fakedb.NewGate()})
		tx, err := db.BeginTx(context.Background(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		_, err = tx.ExecContext(ctx, insertThree)
		return err
	}},
	"a connection lost while it is sent": {option: func(s *stubdialect.Stub) { s.Sending = true }, do: func(t *testing.T, s *stubdialect.Stub, db *sql.DB, ctx context.Context) error {
		s.Server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Err: driver.ErrBadConn})
		_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (?)", sleeper{ctx})
		if !errors.Is(err, pooldriver.ErrTaskEnded) { // a task's Valuer is called before it has the lock
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		}
		return err
	}},
	"commit": {option: func(s *stubdialect.Stub) { s.Sending = true }, do: func(t *testing.T, s *stubdialect.Stub, db *sql.DB, ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		gate := fakedb.NewGate()
		s.Server.Inject(fakedb.Fault{Call: fakedb.TxCommit, Gate: gate, Err: safeError{errors.New("conn closed")}})
		go func() { <-ctx.Done(); synctest.Wait(); gate.Open() }()
		return tx.Commit()
	}},
}

// TestAnErrorThatFollowsFromAContextSaysSo: its error and its cause are found in it.
func TestAnErrorThatFollowsFromAContextSaysSo(t *testing.T) {
	for operation, tc := range endingCases {
		for ending, makes := range contextEndings {
			if tc.task && !strings.Contains(ending, "task") {
				continue
			}
			t.Run(operation+"/"+ending, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { tc.run(t, ending, makes) })
			})
		}
	}
}

func (tc endingCase) run(t *testing.T, ending string, makes func(context.Context) context.Context) {
	s, db, c := openStub(t, dialects.Traits{BadConnUnsure: true}, func(c *pooldriver.Config) {
		c.MaxConns, c.LazyBegin = 2, tc.lazy
		if ending == "pool_task_timeout" {
			c.TaskTimeout = endsAfter
		}
	})
	t.Cleanup(s.Server.Heal)
	if tc.option != nil {
		tc.option(s)
	}
	parent, stop := context.WithCancel(t.Context())
	defer stop()
	ctx := makes(parent)
	if ending == "pool_task_timeout" {
		require.NoError(t, db.PingContext(ctx)) // so that its time begins
	}
	err := tc.do(t, s, db, ctx)
	require.Error(t, ctx.Err())
	require.ErrorIs(t, err, ctx.Err())
	cause := context.Cause(ctx)
	require.ErrorIs(t, err, cause)
	require.NotErrorIs(t, err, driver.ErrBadConn)
	require.False(t, ctxerr.SaysSafe(err))
	if task.PlaceOf(ctx).Task != nil && cause != errWhy {
		require.ErrorIs(t, err, pooldriver.ErrTaskEnded)
	}
	atRest(t, c)
}

// canceller is a Valuer that ends a context.
type canceller func()

func (c canceller) Value() (driver.Value, error) { c(); return int64(1), nil }

// TestAConnectionThatEndedWithItsContextSaysSo: when a context ends, go-sql-driver closes the
// connection, and its error may be ErrBadConn alone. In a transaction database/sql returns
// this error to the program.
func TestAConnectionThatEndedWithItsContextSaysSo(t *testing.T) {
	s, db, _ := openStub(t, dialects.Traits{})
	tx, err := db.Begin()
	require.NoError(t, err)
	defer tx.Rollback()
	ctx, cancel := context.WithCancel(t.Context())
	s.Server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Err: driver.ErrBadConn})
	_, err = tx.ExecContext(ctx, "INSERT INTO t VALUES (?)", canceller(cancel))
	require.ErrorIs(t, err, driver.ErrBadConn)
	require.ErrorIs(t, err, context.Canceled)
}
