package pooldriver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/fakedb"
)

var _ dialects.LastWord = (*stubSession)(nil)

// LastTxStatus goes by the statements that the session has executed.
func (s *stubSession) LastTxStatus() dialects.TxStatus {
	last := dialects.TxNone
	for _, e := range s.stub.server.Events(fakedb.ConnExecCtx) {
		switch {
		case e.Session != s.id:
		case e.Text == "BEGIN":
			last = dialects.TxOpen
		case e.Text == "COMMIT", e.Text == "ROLLBACK":
			last = dialects.TxNone
		}
	}
	return last
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
			server, db, c := openTasks(t, 2)
			ctx, end := WithTask(t.Context())
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
					require.ErrorIs(t, err, ErrTxLost)
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
		server, db, c := openTasks(t, 4, ambient(AmbientSeparate))
		ctx, end := WithTask(t.Context())
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
		for range 2 {
			require.ErrorIs(t, insertTwo(ctx, txs[dying]), ErrTxLost)
		}
		require.ErrorIs(t, txs[dying].Commit(), ErrTxLost)
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
		ctx, end := WithTask(t.Context())
		defer end()
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		how(server, ctx, tx)
		_, err = tx.ExecContext(ctx, "INSERT INTO t VALUES (7)")
		require.ErrorIs(t, err, lose)
		for _, err := range []error{insertTwo(ctx, tx), insertTwo(ctx, db), tx.Commit()} {
			require.ErrorIs(t, err, ErrTxLost)
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
			ctx, end := WithTask(t.Context())
			defer end()
			insert := prepare(t, ctx, db)
			limited, cancel := context.WithCancel(ctx)
			defer cancel()
			_, err := db.BeginTx(limited, nil)
			require.NoError(t, err)
			require.NoError(t, insert(ctx)) // counts on it from here on
			left := new(atomic.Int32)
			left.Store(step)
			err = insert(&endingContext{ctx, left, func() {
				cancel()
				synctest.Wait() // it is rolled back, if nobody has the turn
			}})
			if reached = left.Load() <= 0; !reached {
				require.NoError(t, err)
				return
			}
			synctest.Wait()
			if err != nil {
				require.ErrorIs(t, err, ErrTxLost)
			}
			require.ErrorIs(t, insert(ctx), ErrTxLost)
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
				ctx, end := WithTask(t.Context())
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
				require.ErrorIs(t, <-inserted, ErrTxLost)
				require.Empty(t, server.Table("t"))
				end()
				synctest.Wait()
				require.Zero(t, lent(c))
			})
		})
	}
}
