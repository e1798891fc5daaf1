package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// A script of transactions: b begins number n of the open ones, i inserts a row
// through the task, c commits and r rolls back number n. What follows = is the
// error that is expected.
var endings = map[string]error{"order": session.ErrOpenInside, "done": sql.ErrTxDone}

func TestTransactionsOfATaskNest(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		stored       []int64
	}{
		{"the inner one commits", "b0 i1 b1 i2 c1 i3 c0", []int64{1, 2, 3}},
		{"the inner one rolls back", "b0 i1 b1 i2 r1 i3 c0", []int64{1, 3}},
		{"the outer one rolls back", "b0 i1 b1 i2 c1 r0", nil},
		{"one after the other", "b0 b1 i1 c1 b1 i2 r1 b1 i3 c1 c0", []int64{1, 3}},
		{"three deep, the innermost rolls back", "b0 i1 b1 i2 b2 i3 r2 c1 c0", []int64{1, 2}},
		{"three deep, the middle one rolls back", "b0 i1 b1 i2 b2 i3 c2 r1 i4 c0", []int64{1, 4}},
		{"the outer one commits first", "b0 i1 b1 i2 c0=order c1=done", nil},
		{"the outer one commits first, the inner one rolls back", "b0 i1 b1 i2 c0=order r1=done", nil},
		{"the middle one commits first", "b0 i1 b1 i2 b2 i3 c1=order c2=done i4 c0", []int64{1, 4}},
		{"the outermost of three commits first", "b0 b1 b2 i1 c0=order c2=done c1=done", nil},
		{"the outer one rolls back first", "b0 i1 b1 i2 r0 c1=done", nil},
		{"the outer one rolls back first, then the inner one", "b0 i1 b1 i2 r0 r1=done", nil},
		{"the middle one rolls back first", "b0 i1 b1 i2 b2 i3 r1 r2=done i4 c0", []int64{1, 4}},
		{"begun again after an end out of order", "b0 i1 b1 c0=order b2 i2 c1=done c2", []int64{2}},
	} {
		for _, handle := range []string{"db", "conn"} {
			t.Run(tc.name+" on "+handle, func(t *testing.T) {
				server, db, c := openTasks(t, 1)
				ctx, end := pooldriver.WithTask(t.Context())
				defer end()
				begin := db.BeginTx
				if handle == "conn" {
					begin = takeConn(t, ctx, db).BeginTx
				}
				open := map[int]*sql.Tx{}
				for _, step := range strings.Fields(tc.script) {
					step, ending, _ := strings.Cut(step, "=")
					n, err := strconv.Atoi(step[1:])
					require.NoError(t, err)
					switch step[0] {
					case 'b':
						open[n], err = begin(ctx, nil)
					case 'i':
						_, err = db.ExecContext(ctx, "INSERT INTO t VALUES (?)", n)
					case 'c':
						err = open[n].Commit()
					case 'r':
						err = open[n].Rollback()
					}
					require.ErrorIs(t, err, endings[ending], step)
				}
				stored := []int64(nil)
				for _, row := range server.Table("t") {
					stored = append(stored, row[0].(int64))
				}
				require.Equal(t, tc.stored, stored)
				require.Zero(t, server.State().InTx())
				if handle == "db" {
					require.Zero(t, lent(c))
				}
			})
		}
	}
}

func TestATransactionBegunByHandHasSavepoints(t *testing.T) {
	server, db, c := openTasks(t, 1)
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	mustExec(t, ctx, db, "BEGIN")
	for n := range 4 {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		mustExec(t, ctx, db, "INSERT INTO t VALUES (?)", n)
		if n%2 == 0 {
			require.NoError(t, tx.Commit())
		} else {
			require.NoError(t, tx.Rollback())
		}
	}
	mustExec(t, ctx, db, "COMMIT")
	require.Equal(t, [][]any{{int64(0)}, {int64(2)}}, server.Table("t"))
	require.Zero(t, lent(c))
}

func TestTheOptionsOfASavepointAreThoseOfItsTransactionOrNone(t *testing.T) {
	strict := &sql.TxOptions{Isolation: sql.LevelSerializable}
	reading := &sql.TxOptions{ReadOnly: true}
	for _, tc := range []struct {
		name         string
		outer, inner *sql.TxOptions
		refused      bool
	}{
		{"none in none", nil, nil, false},
		{"none in some", strict, nil, false},
		{"default in some", strict, &sql.TxOptions{}, false},
		{"the same", strict, &sql.TxOptions{Isolation: sql.LevelSerializable}, false},
		{"the same access mode", reading, reading, false},
		{"another isolation level", strict, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, true},
		{"an isolation level in none", nil, strict, true},
		{"another access mode", nil, reading, true},
		{"the same level and another access mode", strict, &sql.TxOptions{Isolation: sql.LevelSerializable, ReadOnly: true}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server, db, c := openTasks(t, 1)
			ctx, end := pooldriver.WithTask(t.Context())
			defer end()
			outer, err := db.BeginTx(ctx, tc.outer)
			require.NoError(t, err)
			inner, err := db.BeginTx(ctx, tc.inner)
			if tc.refused {
				require.ErrorContains(t, err, saysTxOptions)
			} else {
				require.NoError(t, err)
				innermost, err := db.BeginTx(ctx, tc.outer)
				require.NoError(t, err, "the options of the outermost are those of all")
				require.NoError(t, innermost.Commit())
				require.NoError(t, inner.Commit())
			}
			require.NoError(t, outer.Commit(), "an inner one that was refused is nothing to the outer one")
			require.Zero(t, server.State().InTx())
			require.Zero(t, lent(c))
		})
	}
}

func TestASavepointThatCannotBeginIsNotCounted(t *testing.T) {
	server, db, _ := openTasks(t, 1)
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	outer, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	no := errors.New("no")
	server.Inject(fakedb.Fault{Text: "SAVEPOINT", Err: no})
	_, err = db.BeginTx(ctx, nil)
	require.ErrorIs(t, err, no)
	require.NoError(t, insertTwo(ctx, db))
	require.NoError(t, outer.Commit())
	require.Len(t, server.Table("t"), 1)
}

func TestALostConnectionIsNoticedByAllWhoCountOnItsTransaction(t *testing.T) {
	for name, notice := range map[string]func(t *testing.T, ctx context.Context, db *sql.DB, tx *sql.Tx){
		"by the transaction": func(t *testing.T, ctx context.Context, _ *sql.DB, tx *sql.Tx) {
			_, err := tx.ExecContext(ctx, "INSERT INTO t VALUES (3)")
			require.Error(t, err)
		},
		"by a statement that joins": func(t *testing.T, ctx context.Context, db *sql.DB, _ *sql.Tx) {
			require.ErrorIs(t, insertTwo(ctx, db), pooldriver.ErrTxLost)
		},
		"by a savepoint": func(t *testing.T, ctx context.Context, db *sql.DB, _ *sql.Tx) {
			_, err := db.BeginTx(ctx, nil)
			require.Error(t, err)
		},
	} {
		for _, how := range []string{"rollback", "commit", "end of the task"} {
			t.Run(name+", "+how, func(t *testing.T) {
				server, db, c := openTasks(t, 2)
				ctx, end := pooldriver.WithTask(t.Context())
				defer end()
				outer, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				require.NoError(t, insertTwo(ctx, db))
				inner, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				require.NoError(t, insertTwo(ctx, inner))
				require.Equal(t, 1, server.KillAll())
				notice(t, ctx, db, inner)

				for range 2 {
					require.ErrorIs(t, insertTwo(ctx, db), pooldriver.ErrTxLost)
					require.ErrorIs(t, insertTwo(ctx, outer), pooldriver.ErrTxLost)
					require.ErrorIs(t, insertTwo(ctx, inner), pooldriver.ErrTxLost)
					_, err = db.BeginTx(ctx, nil)
					require.ErrorIs(t, err, pooldriver.ErrTxLost)
				}
				require.ErrorIs(t, inner.Commit(), pooldriver.ErrTxLost)
				require.ErrorIs(t, insertTwo(ctx, db), pooldriver.ErrTxLost, "the outer one has not been ended")
				switch how {
				case "rollback":
					_ = outer.Rollback()
				case "commit":
					require.ErrorIs(t, outer.Commit(), pooldriver.ErrTxLost)
				default:
					end()
					ctx, end = pooldriver.WithTask(t.Context())
					defer end()
				}
				require.Empty(t, server.Table("t"))
				require.NoError(t, insertTwo(ctx, db), "the transaction has been ended")
				require.NoError(t, pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error { return insertTwo(ctx, db) }))
				require.Len(t, server.Table("t"), 2)
				end()
				require.Zero(t, lent(c))
				require.Equal(t, 2, server.State().Opened)
			})
		}
	}
}

func TestALossThatNobodyNoticesIsAnErrorOfCommit(t *testing.T) {
	server, db, c := openTasks(t, 1)
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, insertTwo(ctx, db))
	server.KillAll()
	require.Error(t, tx.Commit())
	require.Empty(t, server.Table("t"))
	require.NoError(t, insertTwo(ctx, db))
	require.Zero(t, lent(c))
}

func TestATransactionThatTheServerHasEndedByAnErrorIsLost(t *testing.T) {
	server, db, _ := openTasks(t, 1)
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, insertTwo(ctx, db))
	_, err = tx.ExecContext(ctx, "ROLLBACK; SELECT /*+ error 'deadlock' */ 1")
	require.ErrorContains(t, err, "deadlock")
	require.ErrorIs(t, insertTwo(ctx, db), pooldriver.ErrTxLost)
	require.ErrorIs(t, insertTwo(ctx, tx), pooldriver.ErrTxLost)
	require.ErrorIs(t, tx.Commit(), pooldriver.ErrTxLost)
	require.Empty(t, server.Table("t"))
	require.NoError(t, insertTwo(ctx, db))
}

// There is no Tx whose end could say that the program knows.
func TestALostTransactionBegunByHandIsLostForTheTask(t *testing.T) {
	server, db, c := openTasks(t, 1)
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	mustExec(t, ctx, db, "BEGIN")
	require.NoError(t, insertTwo(ctx, db))
	server.KillAll()
	for range 2 {
		require.ErrorIs(t, insertTwo(ctx, db), pooldriver.ErrTxLost)
		_, err := db.ExecContext(ctx, "COMMIT")
		require.ErrorIs(t, err, pooldriver.ErrTxLost)
	}
	require.Empty(t, server.Table("t"))
	_, err := db.BeginTx(ctx, nil)
	require.ErrorIs(t, err, pooldriver.ErrTxLost)
	end()
	require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error { return insertTwo(ctx, db) }))
	require.Len(t, server.Table("t"), 1)
	require.Zero(t, lent(c))
}

func TestLostSessionStateIsLostForTheTask(t *testing.T) {
	for _, inTx := range []bool{false, true} {
		server, db, c := openTasks(t, 1)
		ctx, end := pooldriver.WithTask(t.Context())
		mustExec(t, ctx, db, "SET a = 1")
		var tx *sql.Tx
		if inTx {
			var err error
			tx, err = db.BeginTx(ctx, nil)
			require.NoError(t, err)
		}
		server.KillAll()
		require.ErrorIs(t, insertTwo(ctx, db), pooldriver.ErrTxLost)
		if inTx {
			_ = tx.Rollback()
		}
		for range 2 {
			require.ErrorIs(t, insertTwo(ctx, db), pooldriver.ErrTxLost)
			_, err := db.BeginTx(ctx, nil)
			require.ErrorIs(t, err, pooldriver.ErrTxLost, "no transaction brings the state back")
		}
		end()
		require.Empty(t, server.Table("t"))
		ctx, end = pooldriver.WithTask(t.Context())
		require.NoError(t, insertTwo(ctx, db))
		end()
		require.Zero(t, lent(c))
	}
}

// endOf waits until database/sql has rolled back what a context has ended.
func endOf(t *testing.T, server *fakedb.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, server.Await(ctx, func(s fakedb.State) bool { return s.InTx() == 0 }))
}

func TestStatementsThatJoinedATransactionAreToldThatItsContextHasEndedIt(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		s, db, c := openStub(t, dialects.Traits{TxKeepsContext: keeps})
		server := s.Server
		task, end := pooldriver.WithTask(t.Context())
		short, cancel := context.WithCancel(task)
		tx, err := db.BeginTx(short, nil)
		require.NoError(t, err)
		require.NoError(t, insertTwo(task, db))
		cancel()
		endOf(t, server)
		for range 2 {
			require.Eventually(t, func() bool { return insertTwo(task, db) != nil }, patience, time.Millisecond)
			err := insertTwo(task, db)
			require.ErrorIs(t, err, pooldriver.ErrTxLost)
			require.ErrorIs(t, err, context.Canceled)
		}
		require.Error(t, tx.Commit())
		require.ErrorIs(t, insertTwo(task, db), pooldriver.ErrTxLost)
		require.Empty(t, server.Table("t"))
		tx, err = db.BeginTx(task, nil)
		require.NoError(t, err)
		require.NoError(t, insertTwo(task, db))
		require.NoError(t, tx.Commit())
		require.NoError(t, insertTwo(task, db))
		end()
		require.Len(t, server.Table("t"), 2)
		require.Zero(t, lent(c))
	}
}

func TestATaskGoesOnWhereNothingHadJoinedTheTransactionThatItsContextHasEnded(t *testing.T) {
	server, db, c := openTasks(t, 1)
	task, end := pooldriver.WithTask(t.Context())
	defer end()
	short, cancel := context.WithCancel(task)
	tx, err := db.BeginTx(short, nil)
	require.NoError(t, err)
	mustExec(t, short, tx, "INSERT INTO t VALUES (1)")
	cancel()
	endOf(t, server)
	_, err = tx.ExecContext(task, "INSERT INTO t VALUES (1)")
	require.Error(t, err)
	require.Empty(t, server.Table("t"), "never outside of its transaction")
	require.Eventually(t, func() bool { return insertTwo(task, db) == nil }, patience, time.Millisecond)
	require.Len(t, server.Table("t"), 1)
	atRest(t, c) // database/sql's own rollback may still look at the connection
}

func TestAnErrBadConnInsideATransactionIsItsEnd(t *testing.T) {
	server, db, c := openTasks(t, 2)
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, insertTwo(ctx, db))
	server.Fail(fakedb.ConnExecCtx, 1, driver.ErrBadConn)
	require.ErrorIs(t, insertTwo(ctx, db), pooldriver.ErrTxLost, "and not run again on another connection")
	require.ErrorIs(t, tx.Commit(), pooldriver.ErrTxLost)
	require.Empty(t, server.Table("t"))
	require.NoError(t, insertTwo(ctx, db))
	require.Zero(t, lent(c))
}

func TestStatementsThatJoinedASavepointAreToldThatItsContextHasEndedIt(t *testing.T) {
	server, db, c := openTasks(t, 2)
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	outer, _, cancel := nested(t, ctx, db)
	require.NoError(t, insertTwo(ctx, db), "in the savepoint")
	cancel()
	require.Eventually(t, func() bool { return server.Executed("ROLLBACK TO SAVEPOINT") == 1 }, patience, time.Millisecond)
	require.Eventually(t, func() bool { return insertTwo(ctx, db) != nil }, patience, time.Millisecond)
	require.ErrorIs(t, insertTwo(ctx, db), pooldriver.ErrTxLost)
	require.NoError(t, outer.Rollback())
	require.Empty(t, server.Table("t"))
	require.NoError(t, pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error { return insertTwo(ctx, db) }))
	require.NoError(t, insertTwo(ctx, db))
	atRest(t, c) // database/sql's own rollback may still look at the connection
}

func TestTransactionsOfOneConnThatEndedOutOfOrderLeaveItNoRights(t *testing.T) {
	_, db, _ := openTasks(t, 1, ambient(pooldriver.AmbientStrict))
	ctx, end := pooldriver.WithTask(t.Context())
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	outer, err := conn.BeginTx(ctx, nil)
	require.NoError(t, err)
	inner, err := conn.BeginTx(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, outer.Rollback())
	require.ErrorIs(t, inner.Rollback(), sql.ErrTxDone)
	require.NoError(t, conn.Close())
	end()

	ctx, end = pooldriver.WithTask(t.Context())
	defer end()
	conn = takeConn(t, ctx, db) // the same virtual connection
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	require.ErrorContains(t, insertTwo(ctx, conn), "pool_ambient=strict")
	require.NoError(t, tx.Rollback())
}

// TestStrictRefusesStatementsAfterABeginByHand: on the *sql.DB they may come from other parts of the
// program, also when they use the virtual connection of the BEGIN.
func TestStrictRefusesStatementsAfterABeginByHand(t *testing.T) {
	server, db, _ := openTasks(t, 1, ambient(pooldriver.AmbientStrict))
	ctx, end := pooldriver.WithTask(t.Context())
	_, err := db.ExecContext(ctx, "BEGIN")
	require.NoError(t, err)
	require.ErrorContains(t, insertTwo(ctx, db), "pool_ambient=strict")
	end()
	require.Zero(t, server.State().InTx())
}

func TestATransactionByHandIsLostWhoeverFindsOut(t *testing.T) {
	for name, find := range map[string]func(t *testing.T, ctx context.Context, server *fakedb.Server, db *sql.DB){
		"a statement": func(t *testing.T, ctx context.Context, server *fakedb.Server, db *sql.DB) {
			server.KillAll()
			require.ErrorIs(t, insertTwo(ctx, db), pooldriver.ErrTxLost)
		},
		"rows": func(t *testing.T, ctx context.Context, server *fakedb.Server, db *sql.DB) {
			rows, err := db.QueryContext(ctx, "SELECT n FROM numbers LIMIT 5")
			require.NoError(t, err)
			server.Inject(fakedb.Fault{Call: fakedb.RowsNext, Kill: true, Err: driver.ErrBadConn})
			require.False(t, rows.Next())
			require.ErrorIs(t, rows.Err(), driver.ErrBadConn)
		},
		"BeginTx": func(t *testing.T, ctx context.Context, server *fakedb.Server, db *sql.DB) {
			server.KillAll()
			_, err := db.BeginTx(ctx, nil)
			require.Error(t, err, "it would be the outermost one, and the program takes it for a savepoint")
		},
	} {
		t.Run(name, func(t *testing.T) {
			server, db, c := openTasks(t, 2)
			ctx, end := pooldriver.WithTask(t.Context())
			mustExec(t, ctx, db, "BEGIN")
			require.NoError(t, insertTwo(ctx, db))
			find(t, ctx, server, db)
			require.ErrorIs(t, insertTwo(ctx, db), pooldriver.ErrTxLost)
			_, err := db.ExecContext(ctx, "COMMIT")
			require.ErrorIs(t, err, pooldriver.ErrTxLost)
			end()
			require.Empty(t, server.Table("t"))
			atRest(t, c)
		})
	}
}

func TestNothingRunsInATransactionWhoseRollbackFailed(t *testing.T) {
	server, db, c := openTasks(t, 2)
	ctx, end := pooldriver.WithTask(t.Context())
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	mustExec(t, ctx, tx, "INSERT INTO t VALUES (1)")
	no := errors.New("no")
	server.Fail(fakedb.TxRollback, 1, no)
	require.ErrorIs(t, tx.Rollback(), no)
	require.NoError(t, insertTwo(ctx, db))
	end()
	atRest(t, c)
	require.Equal(t, [][]any{{int64(2)}}, server.Table("t"))
}

func TestWhatASavepointCouldNotUndoIsNotCommittedWithTheTransactionAroundIt(t *testing.T) {
	server, db, c := openTasks(t, 2)
	no := errors.New("no")
	require.Error(t, pooldriver.InTx(t.Context(), db, nil, func(ctx context.Context, _ *sql.Tx) error {
		server.Inject(fakedb.Fault{Text: "ROLLBACK TO", Err: errors.New("fault")})
		require.ErrorIs(t, pooldriver.InTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(insertTwo(ctx, tx), no)
		}), no)
		return nil
	}))
	atRest(t, c)
	require.Empty(t, server.Table("t"))
}

// TestATaskIsNotInATransactionWhoseBeginFailed: the server began it, and the driver
// says that it did not.
func TestATaskIsNotInATransactionWhoseBeginFailed(t *testing.T) {
	for _, lazy := range []bool{false, true} {
		for _, mode := range []pooldriver.AmbientMode{pooldriver.AmbientJoin, pooldriver.AmbientStrict} {
			server, db, c := openTasks(t, 2, ambient(mode), quiet, func(c *pooldriver.Config) { c.LazyBegin = lazy })
			ctx, end := pooldriver.WithTask(t.Context())
			server.Inject(fakedb.Fault{Call: fakedb.ConnBeginCtx, After: true, Err: errors.New("the answer was lost")})
			tx, err := db.BeginTx(ctx, nil)
			if lazy {
				require.NoError(t, err)
				require.Error(t, insertTwo(ctx, tx))
				require.Error(t, tx.Commit())
			} else {
				require.Error(t, err)
			}
			require.NoError(t, insertTwo(ctx, db))
			end()
			require.Len(t, server.Table("t"), 1)
			atRest(t, c)
		}
	}
}
