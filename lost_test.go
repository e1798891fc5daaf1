package pooldriver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

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
