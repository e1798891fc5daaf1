package behaviour

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// nesting are the ways to begin a transaction beside the one that is open.
var nesting = []struct {
	name  string
	begin func(ctx context.Context, db *sql.DB) error
}{
	{"BeginTx", func(ctx context.Context, db *sql.DB) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		return errors.Join(insertTwo(ctx, tx), tx.Commit())
	}},
	{"BeginTx of a sql.Conn", func(ctx context.Context, db *sql.DB) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		tx, err := conn.BeginTx(ctx, nil)
		if err != nil {
			return errors.Join(err, conn.Close())
		}
		return errors.Join(insertTwo(ctx, tx), tx.Commit(), conn.Close())
	}},
	{"InTx", func(ctx context.Context, db *sql.DB) error {
		return pooldriver.InTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error { return insertTwo(ctx, tx) })
	}},
}

type fate string

const (
	joined   fate = "joined"
	separate fate = "separate"
	refused  fate = "refused"
)

// fateOf runs insert while a transaction that begin has begun is open, and rolls
// that one back.
func fateOf(t *testing.T, server *fakedb.Server, tx *sql.Tx, insert func() error) fate {
	t.Helper()
	mustExec(t, t.Context(), tx, "INSERT INTO t VALUES (1)")
	err := insert()
	require.NoError(t, tx.Rollback())
	switch {
	case err != nil:
		require.ErrorContains(t, err, "pool_ambient=strict")
		require.Empty(t, server.Table("t"))
		return refused
	case len(server.Table("t")) == 0:
		return joined
	}
	require.Equal(t, [][]any{{int64(2)}}, server.Table("t"))
	return separate
}

func TestWhatJoinsTheTransactionOfItsTask(t *testing.T) {
	for _, mode := range []struct {
		name                string
		mode                pooldriver.AmbientMode
		begin               func(context.Context) (context.Context, func())
		statement, beginner fate
	}{
		{"auto", pooldriver.AmbientAuto, pooldriver.WithTask, joined, joined},
		{"auto, implicit", pooldriver.AmbientAuto, task.WithImplicit, separate, separate},
		{"join", pooldriver.AmbientJoin, pooldriver.WithTask, joined, joined},
		{"join, implicit", pooldriver.AmbientJoin, task.WithImplicit, joined, joined},
		{"warn", pooldriver.AmbientWarn, pooldriver.WithTask, joined, joined},
		{"strict", pooldriver.AmbientStrict, pooldriver.WithTask, refused, joined},
	} {
		open := func(t *testing.T) (context.Context, *fakedb.Server, *sql.DB) {
			server, db, c := openTasks(t, 4, ambient(mode.mode), quiet)
			ctx, end := mode.begin(t.Context())
			t.Cleanup(func() { atRest(t, c) })
			t.Cleanup(end)
			return ctx, server, db
		}
		for _, h := range handles {
			t.Run(mode.name+"/"+h.name, func(t *testing.T) {
				ctx, server, db := open(t)
				insert := h.prepare(t, ctx, db)
				tx, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				require.Equal(t, mode.statement, fateOf(t, server, tx, func() error { return insert(ctx) }))
				require.NoError(t, insert(ctx), "the transaction is over")
			})
		}
		for _, n := range nesting {
			t.Run(mode.name+"/"+n.name, func(t *testing.T) {
				ctx, server, db := open(t)
				tx, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				want := mode.beginner
				if n.name == "InTx" && task.PlaceOf(ctx).Task.Implicit() {
					want = separate // InTx begins an explicit task
				}
				require.Equal(t, want, fateOf(t, server, tx, func() error { return n.begin(ctx, db) }))
				require.NoError(t, n.begin(ctx, db), "the transaction is over")
			})
		}
	}
}

func TestWhatRunsWithTheContextOfInTxBelongsToItInEveryMode(t *testing.T) {
	no := errors.New("no")
	for _, mode := range []pooldriver.AmbientMode{pooldriver.AmbientAuto, pooldriver.AmbientJoin, pooldriver.AmbientWarn, pooldriver.AmbientStrict} {
		for _, h := range handles {
			t.Run(mode.String()+"/"+h.name, func(t *testing.T) {
				server, db, _ := openTasks(t, 4, ambient(mode), quiet)
				ctx, end := pooldriver.WithTask(t.Context())
				defer end()
				insert := h.prepare(t, ctx, db)
				require.ErrorIs(t, pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error {
					require.NoError(t, insert(ctx))
					require.NoError(t, pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error { return insertTwo(ctx, db) }))
					return no
				}), no)
				require.Empty(t, server.Table("t"))
			})
		}
		for _, n := range nesting {
			t.Run(mode.String()+"/"+n.name, func(t *testing.T) {
				server, db, _ := openTasks(t, 4, ambient(mode), quiet)
				require.ErrorIs(t, pooldriver.InTx(t.Context(), db, nil, func(ctx context.Context, _ *sql.Tx) error {
					require.NoError(t, n.begin(ctx, db))
					require.Equal(t, 1, server.State().InTx())
					return no
				}), no)
				require.Empty(t, server.Table("t"))
			})
		}
	}
}

func TestWhatRunsBesideInTxBelongsToItWhereStatementsJoin(t *testing.T) {
	no := errors.New("no")
	for mode, want := range map[pooldriver.AmbientMode]fate{pooldriver.AmbientJoin: joined, pooldriver.AmbientWarn: joined, pooldriver.AmbientStrict: refused} {
		t.Run(mode.String(), func(t *testing.T) {
			server, db, _ := openTasks(t, 4, ambient(mode), quiet)
			task, end := pooldriver.WithTask(t.Context())
			defer end()
			var beside error
			require.ErrorIs(t, pooldriver.InTx(task, db, nil, func(context.Context, *sql.Tx) error {
				beside = insertTwo(task, db)
				return no
			}), no)
			require.Equal(t, want == refused, beside != nil)
			require.Empty(t, server.Table("t"))
		})
	}
}

// logged counts what is logged.
func TestAWarningOncePerTransactionSaysThatStatementsJoined(t *testing.T) {
	log := &logged{}
	_, db, _ := openTasks(t, 4, ambient(pooldriver.AmbientWarn), func(c *pooldriver.Config) { c.Logger = slog.New(log) })
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	require.NoError(t, insertTwo(ctx, db))
	require.NoError(t, pooldriver.InTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(insertTwo(ctx, tx), insertTwo(ctx, db))
	}))
	require.Zero(t, log.count("joined"), "there was nothing that had not to be there")
	for n := range 3 {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		mustExec(t, ctx, tx, "INSERT INTO t VALUES (1)")
		require.Equal(t, n, log.count("joined"), "the transaction's own statement")
		for range 3 {
			require.NoError(t, insertTwo(ctx, db))
		}
		require.Equal(t, n+1, log.count("joined"))
		require.NoError(t, tx.Commit())
	}
}

func TestInTxCommitsWhatItsFunctionDidAndRollsBackWhatItFailedAt(t *testing.T) {
	no := errors.New("no")
	fill := func(ctx context.Context, tx *sql.Tx) error { return insertTwo(ctx, tx) }
	for _, tc := range []struct {
		name   string
		fn     func(ctx context.Context, tx *sql.Tx) error
		stored int
		want   error
		panics bool
	}{
		{name: "success", fn: fill, stored: 1},
		{name: "error", fn: func(ctx context.Context, tx *sql.Tx) error { return errors.Join(fill(ctx, tx), no) }, want: no},
		{name: "panic", fn: func(ctx context.Context, tx *sql.Tx) error { _ = fill(ctx, tx); panic("boom") }, panics: true},
		{name: "committed by itself", fn: func(ctx context.Context, tx *sql.Tx) error { return errors.Join(fill(ctx, tx), tx.Commit()) }, stored: 1, want: sql.ErrTxDone},
		{name: "rolled back by itself", fn: func(ctx context.Context, tx *sql.Tx) error { return errors.Join(fill(ctx, tx), tx.Rollback()) }, want: sql.ErrTxDone},
	} {
		for _, inTask := range []bool{false, true} {
			t.Run(tc.name, func(t *testing.T) {
				server, db, c := openTasks(t, 2)
				ctx := t.Context()
				if inTask {
					task, end := pooldriver.WithTask(ctx)
					defer end()
					ctx = task
				}
				run := func() error { return pooldriver.InTx(ctx, db, nil, tc.fn) }
				if tc.panics {
					require.PanicsWithValue(t, "boom", func() { _ = run() })
				} else {
					require.ErrorIs(t, run(), tc.want)
				}
				require.Len(t, server.Table("t"), tc.stored)
				require.Zero(t, server.State().InTx())
				require.Zero(t, lent(c))
				require.NoError(t, insertTwo(ctx, db), "the task goes on")
			})
		}
	}
}

func TestATransactionLeftOpenInsideInTxIsAnErrorOfItsCommit(t *testing.T) {
	server, db, c := openTasks(t, 2)
	err := pooldriver.InTx(t.Context(), db, nil, func(ctx context.Context, _ *sql.Tx) error {
		_, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		return insertTwo(ctx, db)
	})
	require.ErrorContains(t, err, "out of order")
	require.Empty(t, server.Table("t"))
	require.Zero(t, server.State().InTx())
	require.Zero(t, lent(c))
}

func TestALateStatementOfInTxFails(t *testing.T) {
	for _, ending := range []error{nil, errors.New("no")} {
		for _, inTask := range []bool{false, true} {
			server, db, _ := openTasks(t, 2)
			ctx := t.Context()
			if inTask {
				task, end := pooldriver.WithTask(ctx)
				defer end()
				ctx = task
			}
			stmt, err := db.PrepareContext(ctx, "INSERT INTO t VALUES (2)")
			require.NoError(t, err)
			var late, inner context.Context
			require.Equal(t, ending, pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error {
				late = context.WithoutCancel(ctx)
				_ = pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error {
					inner = context.WithoutCancel(ctx)
					return ending
				})
				require.ErrorIs(t, insertTwo(inner, db), sql.ErrTxDone, "the inner one's function has returned")
				return ending
			}))
			for _, late := range []context.Context{late, inner, context.WithValue(late, anyKey{}, 1)} {
				require.ErrorIs(t, insertTwo(late, db), sql.ErrTxDone)
				_, err := stmt.ExecContext(late)
				require.ErrorIs(t, err, sql.ErrTxDone)
				_, err = db.BeginTx(late, nil)
				require.ErrorIs(t, err, sql.ErrTxDone)
				require.ErrorIs(t, pooldriver.InTx(late, db, nil, func(context.Context, *sql.Tx) error { panic("not reached") }), sql.ErrTxDone)
			}
			require.Empty(t, server.Table("t"))
			require.NoError(t, stmt.Close())
		}
	}
}

func TestALateStatementOnASqlConnOfInTxFails(t *testing.T) {
	server, db, _ := openTasks(t, 2)
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	no := errors.New("no")
	var conn *sql.Conn
	var late context.Context
	require.ErrorIs(t, pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error {
		late, conn = ctx, takeConn(t, ctx, db)
		return errors.Join(insertTwo(ctx, conn), no)
	}), no)
	require.ErrorIs(t, insertTwo(late, conn), sql.ErrTxDone)
	require.Empty(t, server.Table("t"))
}

func TestInTxRefusesAHandleOfAnotherDriverAndLeavesNothingThere(t *testing.T) {
	server := fakedb.NewServer()
	db := sql.OpenDB(server.Connector(fakedb.Variant{Features: fakedb.All}))
	defer db.Close()
	require.ErrorContains(t, pooldriver.InTx(t.Context(), db, nil, func(context.Context, *sql.Tx) error { panic("not reached") }), "another driver")
	require.Zero(t, server.State().InTx())
	require.Zero(t, db.Stats().InUse)
}

func TestAnInTxThatCannotBeginDoesNotCallItsFunction(t *testing.T) {
	server, db, c := openTasks(t, 1)
	no := errors.New("no")
	server.Inject(fakedb.Fault{Call: fakedb.ConnBeginCtx, Err: no})
	require.ErrorIs(t, pooldriver.InTx(t.Context(), db, nil, func(context.Context, *sql.Tx) error { panic("not reached") }), no)
	atRest(t, c)
}

func TestAnInTxWhoseContextEndsIsRolledBack(t *testing.T) {
	server, db, c := openTasks(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	require.Error(t, pooldriver.InTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		require.NoError(t, insertTwo(ctx, db))
		cancel()
		return nil
	}))
	require.Empty(t, server.Table("t"))
	require.Zero(t, server.State().InTx())
	atRest(t, c)
}

func TestAnInnerInTxThatFailsTakesNothingElseBack(t *testing.T) {
	server, db, _ := openTasks(t, 1)
	no := errors.New("no")
	require.NoError(t, pooldriver.InTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error {
		mustExec(t, ctx, tx, "INSERT INTO t VALUES (1)")
		require.ErrorIs(t, pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error {
			return errors.Join(insertTwo(ctx, db), no)
		}), no)
		require.PanicsWithValue(t, "boom", func() {
			_ = pooldriver.InTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error { _ = insertTwo(ctx, tx); panic("boom") })
		})
		require.NoError(t, pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error {
			mustExec(t, ctx, db, "INSERT INTO t VALUES (3)")
			return nil
		}))
		return nil
	}))
	require.Equal(t, [][]any{{int64(1)}, {int64(3)}}, server.Table("t"))
}

func TestInTxOnTwoDatabases(t *testing.T) {
	_, one, _ := openTasks(t, 2)
	server, two, _ := openTasks(t, 2)
	no := errors.New("no")
	for _, want := range []error{no, nil} {
		require.ErrorIs(t, pooldriver.InTx(t.Context(), one, nil, func(ctx context.Context, _ *sql.Tx) error {
			require.NoError(t, insertTwo(ctx, one))
			require.NoError(t, insertTwo(ctx, two), "in no transaction")
			return pooldriver.InTx(ctx, two, nil, func(ctx context.Context, tx *sql.Tx) error {
				require.NoError(t, insertTwo(ctx, one))
				require.NoError(t, insertTwo(ctx, two))
				require.NoError(t, insertTwo(ctx, tx))
				return want
			})
		}), want)
	}
	require.Len(t, server.Table("t"), 1+3)
}

// A statement of a *sql.Conn that gave up leaves nothing behind of the context it had.
func TestASqlConnWhoseStatementGaveUpIsInTheInTxOfItsNextContext(t *testing.T) {
	for _, mode := range []pooldriver.AmbientMode{pooldriver.AmbientJoin, pooldriver.AmbientStrict} {
		for _, within := range []bool{true, false} {
			t.Run(fmt.Sprint(mode, within), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server, db, _ := openTasks(t, 2, ambient(mode))
					ctx, end := pooldriver.WithTask(t.Context())
					defer end()
					conn := takeConn(t, ctx, db)
					require.NoError(t, conn.PingContext(ctx))
					no := errors.New("no")
					require.ErrorIs(t, pooldriver.InTx(ctx, db, nil, func(inside context.Context, tx *sql.Tx) error {
						gate := held(server, "(7)")
						own := make(chan error, 1)
						go func() { _, err := tx.ExecContext(inside, "INSERT INTO t VALUES (7)"); own <- err }()
						<-gate.Entered()
						around := ctx
						if within {
							around = inside
						}
						impatient, cancel := context.WithTimeout(around, time.Millisecond)
						defer cancel()
						require.ErrorIs(t, insertTwo(impatient, conn), context.DeadlineExceeded)
						gate.Open()
						require.NoError(t, <-own)
						if !within {
							require.NoError(t, insertTwo(inside, conn))
						}
						return no
					}), no)
					require.Empty(t, server.Table("t"))
					require.NoError(t, insertTwo(ctx, conn), "it is over")
					require.Len(t, server.Table("t"), 1)
				})
			})
		}
	}
}
