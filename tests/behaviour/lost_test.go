package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
)

// handles are the ways to a database that a task has beside its *sql.Tx. prepare
// is called before the transaction begins; the function that it returns inserts
// the row 2.
var handles = []struct {
	name    string
	prepare func(t *testing.T, ctx context.Context, db *sql.DB) func(ctx context.Context) error
}{
	{"db.Exec", func(_ *testing.T, _ context.Context, db *sql.DB) func(context.Context) error {
		return func(ctx context.Context) error { return insertTwo(ctx, db) }
	}},
	{"db.Query", func(_ *testing.T, _ context.Context, db *sql.DB) func(context.Context) error {
		return func(ctx context.Context) error {
			rows, err := db.QueryContext(ctx, "INSERT INTO t VALUES (2)")
			if err != nil {
				return err
			}
			return rows.Close()
		}
	}},
	{"prepared statement", func(t *testing.T, _ context.Context, db *sql.DB) func(context.Context) error {
		stmt, err := db.Prepare("INSERT INTO t VALUES (?)")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, stmt.Close()) })
		return func(ctx context.Context) error {
			_, err := stmt.ExecContext(ctx, 2)
			return err
		}
	}},
	{"statement prepared meanwhile", func(_ *testing.T, _ context.Context, db *sql.DB) func(context.Context) error {
		return func(ctx context.Context) error {
			stmt, err := db.PrepareContext(ctx, "INSERT INTO t VALUES (?)")
			if err != nil {
				return err
			}
			_, err = stmt.ExecContext(ctx, 2)
			return errors.Join(err, stmt.Close())
		}
	}},
	{"sql.Conn used before", func(t *testing.T, ctx context.Context, db *sql.DB) func(context.Context) error {
		conn := takeConn(t, ctx, db)
		require.NoError(t, conn.PingContext(ctx))
		return func(ctx context.Context) error { return insertTwo(ctx, conn) }
	}},
	{"sql.Conn taken before", func(t *testing.T, ctx context.Context, db *sql.DB) func(context.Context) error {
		conn := takeConn(t, ctx, db)
		return func(ctx context.Context) error { return insertTwo(ctx, conn) }
	}},
	{"sql.Conn taken meanwhile", func(_ *testing.T, _ context.Context, db *sql.DB) func(context.Context) error {
		return func(ctx context.Context) error {
			conn, err := db.Conn(ctx)
			if err != nil {
				return err
			}
			return errors.Join(insertTwo(ctx, conn), conn.Close())
		}
	}},
}

// TestWhatIsLostWithAConnectionThatDiesAsItsStatementReturns: go-sql-driver
// closes a connection whose context ends, also when the server has just answered
// and the program is told of no error.
func TestWhatIsLostWithAConnectionThatDiesAsItsStatementReturns(t *testing.T) {
	const call = "CALL out(?)"
	for _, tc := range []struct {
		before []string
		last   string
		lost   bool
	}{
		{before: []string{"BEGIN"}, last: "COMMIT"},
		{before: []string{"BEGIN"}, last: "ROLLBACK"},
		{before: []string{"BEGIN", "COMMIT"}, last: call},
		{last: call},
		{last: "INSERT INTO t VALUES (1)"},
		{before: []string{"BEGIN"}, last: call, lost: true},
		{before: []string{"BEGIN"}, last: "INSERT INTO t VALUES (1)", lost: true},
		{before: []string{"SET a = 1", "BEGIN"}, last: "COMMIT", lost: true},
		{last: "BEGIN", lost: true},
		{last: "SET a = 1", lost: true},
	} {
		t.Run(fmt.Sprint(tc.before, tc.last), func(t *testing.T) {
			stub := stubdialect.NewChecking(dialects.Traits{})
			server := stub.Server
			db, c := openDatabase(t, stub, server, maxConns(2))
			ctx, end := pooldriver.WithTask(t.Context())
			defer end()
			for _, statement := range tc.before {
				mustExec(t, ctx, db, statement)
			}
			server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Text: tc.last, After: true, Kill: true})
			if tc.last == call {
				mustExec(t, ctx, db, call, sql.Out{Dest: new(string)})
			} else {
				mustExec(t, ctx, db, tc.last)
			}
			for range 2 {
				err := insertTwo(ctx, db)
				if tc.lost {
					require.ErrorIs(t, err, pooldriver.ErrTxLost)
				} else {
					require.NoError(t, err)
				}
			}
			end()
			if tc.lost {
				require.Empty(t, server.Table("t"))
			}
			atRest(t, c)
			require.Zero(t, lent(c))
		})
	}
}

func TestATransactionApartWhoseConnectionDiesIsLost(t *testing.T) {
	for dying := range 2 {
		server, db, c := openTasks(t, 4)
		ctx, end := task.WithImplicit(t.Context())
		defer end()
		var txs [2]*sql.Tx
		for i := range txs {
			var err error
			txs[i], err = db.BeginTx(ctx, nil)
			require.NoError(t, err)
			require.NoError(t, insertTwo(ctx, txs[i]))
		}
		died := errors.New("the connection died")
		server.Inject(fakedb.Fault{Text: "(7)", Kill: true, Err: died})
		_, err := txs[dying].ExecContext(ctx, "INSERT INTO t VALUES (7)")
		require.ErrorIs(t, err, died)
		require.Error(t, insertTwo(ctx, txs[dying]))
		require.Error(t, txs[dying].Commit())
		require.NoError(t, insertTwo(ctx, txs[1-dying]))
		require.NoError(t, txs[1-dying].Commit())
		require.NoError(t, insertTwo(ctx, db))
		require.Len(t, server.Table("t"), 3)
		atRest(t, c)
		require.Zero(t, lent(c))
	}
}

func TestTheErrorOfALostTransactionSaysHowItWasLost(t *testing.T) {
	const undone, cut = "the server rolled it back after an error", "its connection was lost"
	lose := errors.New("loses the transaction")
	for want, how := range map[string]func(server *fakedb.Server, ctx context.Context, tx *sql.Tx){
		undone: func(server *fakedb.Server, ctx context.Context, tx *sql.Tx) {
			mustExec(t, ctx, tx, "ROLLBACK") // what the error is about to do
			server.Inject(fakedb.Fault{Text: "(7)", Err: lose})
		},
		cut: func(server *fakedb.Server, _ context.Context, _ *sql.Tx) {
			server.Inject(fakedb.Fault{Text: "(7)", Err: lose, Kill: true})
		},
	} {
		server, db, _ := openTasks(t, 1)
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		how(server, ctx, tx)
		_, err = tx.ExecContext(ctx, "INSERT INTO t VALUES (7)")
		require.ErrorIs(t, err, lose)
		for _, err := range []error{insertTwo(ctx, tx), insertTwo(ctx, db), tx.Commit()} {
			require.ErrorIs(t, err, pooldriver.ErrTxLost)
			require.ErrorContains(t, err, want)
		}
		require.NoError(t, insertTwo(ctx, db), "the program knows")
		require.Len(t, server.Table("t"), 1)
	}
}

// endingContext calls end when its Err is asked for the nth time, left of which
// are still to come.
type endingContext struct {
	context.Context
	left *atomic.Int32
	end  func()
}

func (c *endingContext) Err() error {
	if c.left.Add(-1) == 0 {
		c.end()
	}
	return c.Context.Err()
}

// TestAStatementOnItsWayIsNotRunOutsideTheTransactionThatItHasLost: database/sql
// rolls back behind the program, and that may come between any two steps of a
// statement that counts on the transaction.
func TestAStatementOnItsWayIsNotRunOutsideTheTransactionThatItHasLost(t *testing.T) {
	// run returns whether the statement came to the step.
	run := func(t *testing.T, prepare func(*testing.T, context.Context, *sql.DB) func(context.Context) error, step int32) (reached bool) {
		synctest.Test(t, func(t *testing.T) {
			server, db, c := openTasks(t, 2)
			ctx, end := pooldriver.WithTask(t.Context())
			defer end()
			insert := prepare(t, ctx, db)
			limited, cancel := context.WithCancel(ctx)
			defer cancel()
			_, err := db.BeginTx(limited, nil)
			require.NoError(t, err)
			require.NoError(t, insert(ctx)) // counts on it from here on
			left := new(atomic.Int32)
			left.Store(step)
			ended := make(chan struct{})
			err = insert(&endingContext{ctx, left, func() {
				cancel()
				synctest.Wait() // it is rolled back, if nobody has the lock
				close(ended)
			}})
			if reached = left.Swap(0) <= 0; !reached { // who asks later is not the statement
				require.NoError(t, err)
				return
			}
			<-ended
			synctest.Wait()
			if err != nil {
				require.ErrorIs(t, err, pooldriver.ErrTxLost)
			}
			require.ErrorIs(t, insert(ctx), pooldriver.ErrTxLost)
			require.Empty(t, server.Table("t"))
			end()
			synctest.Wait()
			require.Zero(t, lent(c))
		})
		return reached
	}
	for _, handle := range handles {
		t.Run(handle.name, func(t *testing.T) {
			step := int32(1)
			for run(t, handle.prepare, step) {
				step++
			}
			require.Greater(t, step, int32(1))
		})
	}
}

// TestAStatementThatWaitsForTheEndOfItsTransactionDoesNotRunAfterIt, which is a
// rollback that takes its time.
func TestAStatementThatWaitsForTheEndOfItsTransactionDoesNotRunAfterIt(t *testing.T) {
	for _, handle := range handles {
		t.Run(handle.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, db, c := openTasks(t, 2)
				ctx, end := pooldriver.WithTask(t.Context())
				defer end()
				insert := handle.prepare(t, ctx, db)
				limited, cancel := context.WithCancel(ctx)
				_, err := db.BeginTx(limited, nil)
				require.NoError(t, err)
				require.NoError(t, insert(ctx))
				gate := server.Block(fakedb.TxRollback)
				cancel()
				<-gate.Entered()
				inserted := make(chan error, 1)
				go func() { inserted <- insert(ctx) }()
				synctest.Wait()
				gate.Open()
				require.ErrorIs(t, <-inserted, pooldriver.ErrTxLost)
				require.Empty(t, server.Table("t"))
				end()
				synctest.Wait()
				require.Zero(t, lent(c))
			})
		})
	}
}

// TestARollbackThatRawKeepsOutIsToldToThoseWhoJoined: database/sql rolls back because
// the context has ended, and gives up before the function of Raw returns.
func TestARollbackThatRawKeepsOutIsToldToThoseWhoJoined(t *testing.T) {
	for _, said := range []error{nil, errors.New("the function failed")} {
		synctest.Test(t, func(t *testing.T) {
			server, db, c := openTasks(t, 2)
			ctx, end := pooldriver.WithTask(t.Context())
			defer end()
			limited, cancel := context.WithCancel(ctx)
			_, err := db.BeginTx(limited, nil)
			require.NoError(t, err)
			require.NoError(t, insertTwo(ctx, db))
			conn, err := db.Conn(ctx)
			require.NoError(t, err)
			done := inRaw(ctx, conn, func(driver.Conn) error { return said })
			cancel()
			time.Sleep(2 * rawPatience)
			require.Equal(t, said, done())
			require.NoError(t, conn.Close())
			synctest.Wait()
			require.ErrorIs(t, insertTwo(ctx, db), pooldriver.ErrTxLost)
			require.Empty(t, server.Table("t"))
			end()
			synctest.Wait()
			require.Zero(t, lent(c))
		})
	}
}

// nested begins a transaction and, in it, another one, whose context cancel ends.
func nested(t *testing.T, ctx context.Context, db *sql.DB) (outer, inner *sql.Tx, cancel context.CancelFunc) {
	t.Helper()
	outer, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	short, cancel := context.WithCancel(ctx)
	inner, err = db.BeginTx(short, nil)
	require.NoError(t, err)
	return outer, inner, cancel
}

// TestATransactionIsToldOfItsStatementsInASavepointThatIsLost: they ran in it because it
// was open on their session, and a context that is not theirs has ended it.
func TestATransactionIsToldOfItsStatementsInASavepointThatIsLost(t *testing.T) {
	for _, tc := range []struct {
		name string
		by   func(ctx, short context.Context, db *sql.DB, outer *sql.Tx) error
		lost bool
	}{
		{"by its Tx", func(ctx, _ context.Context, _ *sql.DB, outer *sql.Tx) error { return insertTwo(ctx, outer) }, true},
		{"in its InTx", func(ctx, _ context.Context, db *sql.DB, _ *sql.Tx) error { return insertTwo(ctx, db) }, true},
		{"none", func(context.Context, context.Context, *sql.DB, *sql.Tx) error { return nil }, false},
		{"in a savepoint inside that has ended", func(ctx, short context.Context, db *sql.DB, outer *sql.Tx) error {
			inner, err := db.BeginTx(short, nil)
			if err != nil {
				return err
			}
			return errors.Join(insertTwo(ctx, outer), inner.Commit())
		}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, db, c := openTasks(t, 2)
				err := pooldriver.InTx(t.Context(), db, nil, func(ctx context.Context, outer *sql.Tx) error {
					short, cancel := context.WithCancel(ctx)
					inner, err := db.BeginTx(short, nil)
					require.NoError(t, err)
					require.NoError(t, insertTwo(ctx, inner), "its own")
					require.NoError(t, tc.by(ctx, short, db, outer))
					cancel()
					synctest.Wait()
					require.Error(t, inner.Commit())
					if tc.lost {
						err := insertTwo(ctx, outer)
						require.ErrorIs(t, err, pooldriver.ErrTxLost)
						require.ErrorIs(t, err, context.Canceled)
						require.ErrorContains(t, err, "ended by its context")
					} else {
						require.NoError(t, insertTwo(ctx, outer))
					}
					return nil
				})
				if tc.lost {
					require.ErrorIs(t, err, pooldriver.ErrTxLost)
					require.Empty(t, server.Table("t"))
				} else {
					require.NoError(t, err)
					require.Len(t, server.Table("t"), 1)
				}
				require.NoError(t, insertTwo(t.Context(), db), "nothing stays")
				synctest.Wait()
				require.Zero(t, lent(c))
			})
		})
	}
}

func TestTheLossOfASavepointIsOverWithTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db, _ := openTasks(t, 2)
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		outer, _, cancel := nested(t, ctx, db)
		require.NoError(t, insertTwo(ctx, db), "in the savepoint")
		cancel()
		synctest.Wait()
		require.ErrorIs(t, insertTwo(ctx, db), pooldriver.ErrTxLost)
		next, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		require.NoError(t, insertTwo(ctx, db))
		require.NoError(t, next.Commit())
		require.NoError(t, outer.Commit())
	})
}

// TestASavepointWhoseContextHasEndedIsNotOpenForTheCommitAround: database/sql has told the
// program that it is over, and rolls back a moment later.
func TestASavepointWhoseContextHasEndedIsNotOpenForTheCommitAround(t *testing.T) {
	for _, hosts := range []bool{false, true} {
		for range 200 {
			server, db, _ := openTasks(t, 2)
			ctx, end := pooldriver.WithTask(t.Context())
			outer, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			require.NoError(t, insertTwo(ctx, outer))
			short, cancel := context.WithCancel(ctx)
			inner, err := db.BeginTx(short, nil)
			require.NoError(t, err)
			require.NoError(t, insertTwo(ctx, inner))
			if hosts {
				require.NoError(t, insertTwo(ctx, outer))
			}
			cancel()
			require.Error(t, inner.Commit())
			if hosts {
				require.ErrorIs(t, outer.Commit(), pooldriver.ErrTxLost)
				require.Empty(t, server.Table("t"))
			} else {
				require.NoError(t, outer.Commit())
				require.Len(t, server.Table("t"), 1)
			}
			end()
		}
	}
}

// TestATransactionInWhoseSavepointOthersRanHasLostNothing: own statements of a savepoint,
// in one inside it, are lost with the outer one of the two.
func TestATransactionInWhoseSavepointOthersRanHasLostNothing(t *testing.T) {
	for _, commits := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			server, db, _ := openTasks(t, 2)
			ctx, end := pooldriver.WithTask(t.Context())
			defer end()
			outer, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			require.NoError(t, insertTwo(ctx, outer))
			short, cancel := context.WithCancel(ctx)
			one, err := db.BeginTx(short, nil)
			require.NoError(t, err)
			two, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			require.NoError(t, insertTwo(ctx, one), "in two")
			if commits {
				require.NoError(t, two.Commit())
			}
			_, err = outer.PrepareContext(ctx, "INSERT INTO t VALUES (2)")
			require.NoError(t, err, "which is nothing to lose")
			cancel()
			synctest.Wait()
			require.NoError(t, insertTwo(ctx, outer))
			require.NoError(t, outer.Commit())
			require.Len(t, server.Table("t"), 2)
		})
	}
}

// TestTheLossOfASavepointIsOverWithTheSavepointAround, whose statements were lost.
func TestTheLossOfASavepointIsOverWithTheSavepointAround(t *testing.T) {
	for _, byHand := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server, db, _ := openTasks(t, 2)
			ctx, end := pooldriver.WithTask(t.Context())
			defer end()
			outermost := func(statement string) { mustExec(t, ctx, db, statement) }
			commit := func() { outermost("COMMIT") }
			if byHand {
				outermost("BEGIN")
			} else {
				outer, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				outermost = func(statement string) { mustExec(t, ctx, outer, statement) }
				commit = func() { require.NoError(t, outer.Commit()) }
			}
			outermost("INSERT INTO t VALUES (1)")
			one, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			mustExec(t, ctx, one, "INSERT INTO t VALUES (3)")
			short, cancel := context.WithCancel(ctx)
			_, err = db.BeginTx(short, nil)
			require.NoError(t, err)
			mustExec(t, ctx, one, "INSERT INTO t VALUES (4)")
			cancel()
			synctest.Wait()
			require.ErrorIs(t, insertTwo(ctx, one), pooldriver.ErrTxLost)
			require.ErrorIs(t, insertTwo(ctx, db), pooldriver.ErrTxLost, "it would be in one")
			require.NoError(t, one.Rollback())
			outermost("INSERT INTO t VALUES (5)")
			commit()
			require.Equal(t, [][]any{{int64(1)}, {int64(5)}}, server.Table("t"))
		})
	}
}

// TestATaskThatEndsWithATransactionThatHasLostStatementsRollsItBack, also where the driver
// does not know that one is open.
func TestATaskThatEndsWithATransactionThatHasLostStatementsRollsItBack(t *testing.T) {
	for _, known := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server, db, c := openTasks(t, 1, quiet)
			if !known {
				server = fakedb.NewServer()
				c = pooldriver.Wrap(server.Connector(fakedb.Variant{Name: "everything", Features: fakedb.All}), quiet, func(c *pooldriver.Config) { c.MaxConns = 1 })
				db = sql.OpenDB(c)
				defer func() { require.NoError(t, db.Close()) }()
				mustExec(t, t.Context(), db, "CREATE TABLE t (a INT)")
			}
			ctx, end := pooldriver.WithTask(t.Context())
			outer, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			require.NoError(t, insertTwo(ctx, outer))
			short, cancel := context.WithCancel(ctx)
			_, err = db.BeginTx(short, nil)
			require.NoError(t, err)
			require.NoError(t, insertTwo(ctx, outer))
			cancel()
			synctest.Wait()
			require.ErrorIs(t, insertTwo(ctx, outer), pooldriver.ErrTxLost)
			end()
			synctest.Wait()
			require.NoError(t, insertTwo(t.Context(), db), "a stranger")
			require.Zero(t, server.State().InTx())
			require.Len(t, server.Table("t"), 1)
			require.Zero(t, lent(c))
		})
	}
}
