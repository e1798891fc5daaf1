package behaviour

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
)

// soonAgain is a Retry that does not sleep for long.
var soonAgain = pooldriver.Retry{MaxAttempts: 5, MinBackoff: 1, MaxBackoff: 1}

// insertOnce is what an attempt does.
func insertOnce(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO t VALUES (1)")
	return err
}

func TestATransactionThatOthersWereInTheWayOfIsRunAgain(t *testing.T) {
	for name, call := range map[string]fakedb.Call{"begin": fakedb.ConnBeginCtx, "statement": fakedb.ConnExecCtx, "commit": fakedb.TxCommit} {
		for _, inTask := range []bool{false, true} {
			t.Run(fmt.Sprint(name, inTask), func(t *testing.T) {
				s, db, c := openStub(t, dialects.Traits{})
				ctx := t.Context()
				if inTask {
					withTask, end := pooldriver.WithTask(ctx)
					defer end()
					ctx = withTask
				}
				s.Server.Inject(fakedb.Fault{Call: call, Err: stubdialect.ErrConflict, Times: 3})
				ran := 0
				var before context.Context
				require.NoError(t, pooldriver.InTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
					if before != nil {
						_, err := db.ExecContext(before, "INSERT INTO t VALUES (2)")
						require.Error(t, err, "an attempt that is over")
					}
					before = ctx
					ran++
					return insertOnce(ctx, tx)
				}, soonAgain))
				require.Len(t, s.Server.Table("t"), 1)
				require.EqualValues(t, 3, c.Stats().TxRetries)
				require.Equal(t, name == "begin", ran == 1)
				require.Zero(t, s.Server.State().InTx())
			})
		}
	}
}

func TestWithoutRetryNothingIsRunAgain(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{})
	s.Server.Fail(fakedb.TxCommit, 1, stubdialect.ErrConflict)
	require.Equal(t, stubdialect.ErrConflict, pooldriver.InTx(t.Context(), db, nil, insertOnce))
	require.Empty(t, s.Server.Table("t"))
	require.Zero(t, c.Stats().TxRetries)
}

func TestOtherErrorsAndPanicsGoThroughRetryAsTheyAre(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{})
	own := errors.New("insufficient funds")
	ran := 0
	fails := func(ctx context.Context, tx *sql.Tx) error {
		ran++
		require.NoError(t, insertOnce(ctx, tx))
		return own
	}
	require.Equal(t, own, pooldriver.InTx(t.Context(), db, nil, fails, pooldriver.Retry{}))
	require.PanicsWithValue(t, own, func() {
		_ = pooldriver.InTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error { panic(fails(ctx, tx)) }, pooldriver.Retry{})
	})
	s.Server.Fail(fakedb.TxCommit, 1, own)
	require.Equal(t, own, pooldriver.InTx(t.Context(), db, nil, insertOnce, pooldriver.Retry{}))
	require.Equal(t, 2, ran)
	require.Empty(t, s.Server.Table("t"))
	require.Zero(t, c.Stats().TxRetries)
	require.Zero(t, s.Server.State().InTx())
}

// TestOnlyTheOutermostTransactionIsRunAgain, also where the inner ones ask for it, and fn
// wraps the error.
func TestOnlyTheOutermostTransactionIsRunAgain(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{})
	outer, inner := 0, 0
	nested := func(ctx context.Context, _ *sql.Tx) error {
		outer++
		err := pooldriver.InTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
			inner++
			return insertOnce(ctx, tx)
		}, soonAgain)
		if err != nil {
			return fmt.Errorf("the library: %w", err)
		}
		return nil
	}
	s.Server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Text: "INSERT", Err: stubdialect.ErrConflict, Times: 2})
	require.NoError(t, pooldriver.InTx(t.Context(), db, nil, nested, soonAgain))
	require.Equal(t, []int{3, 3}, []int{outer, inner})
	require.EqualValues(t, 2, c.Stats().TxRetries)
	require.Len(t, s.Server.Table("t"), 1)

	// The same below a transaction of BeginTx's in the task, where nobody repeats.
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	s.Server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Text: "INSERT", Err: stubdialect.ErrConflict})
	require.ErrorIs(t, nested(ctx, tx), stubdialect.ErrConflict)
	require.Equal(t, []int{4, 4}, []int{outer, inner})
	require.NoError(t, tx.Rollback())
}

func TestACommitInDoubtIsNotRunAgain(t *testing.T) {
	for name, said := range map[string]error{
		"the connection is lost":             io.ErrUnexpectedEOF,
		"the driver calls it safe to repeat": safeError{fmt.Errorf("closed: %w", io.EOF)},
		"the context has ended":              fmt.Errorf("reading: %w", context.Canceled),
	} {
		t.Run(name, func(t *testing.T) {
			s, db, c := openStub(t, dialects.Traits{})
			s.Sending = true
			// The context ends meanwhile, with a cause that is another transaction's conflict.
			ctx, cancel := context.WithCancelCause(t.Context())
			gate := fakedb.NewGate()
			s.Server.Inject(fakedb.Fault{Call: fakedb.TxCommit, Gate: gate, After: true, Err: said})
			go func() {
				<-gate.Entered()
				cancel(stubdialect.ErrConflict)
				gate.Open()
			}()
			ran := 0
			err := pooldriver.InTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
				ran++
				return insertOnce(ctx, tx)
			}, soonAgain)
			require.Error(t, err)
			require.NotContains(t, err.Error(), "attempts")
			require.Equal(t, 1, ran)
			require.Len(t, s.Server.Table("t"), 1)
			require.Zero(t, c.Stats().TxRetries)
		})
	}
}

// TestSomethingInDoubtIsNotRunAgain: fn has committed elsewhere, and does not know it.
func TestSomethingInDoubtIsNotRunAgain(t *testing.T) {
	_, db, c := openStub(t, dialects.Traits{})
	err := pooldriver.InTx(t.Context(), db, nil, func(context.Context, *sql.Tx) error {
		return errors.Join(stubdialect.ErrConflict, io.ErrUnexpectedEOF)
	}, soonAgain)
	require.ErrorIs(t, err, stubdialect.ErrConflict)
	require.Zero(t, c.Stats().TxRetries)
}

// TestWhatFnHasCommittedItselfIsNotRunAgain, unless that commit was the conflict.
func TestWhatFnHasCommittedItselfIsNotRunAgain(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{})
	ran := 0
	commits := func(ctx context.Context, tx *sql.Tx) error {
		ran++
		require.NoError(t, insertOnce(ctx, tx))
		if err := tx.Commit(); err != nil {
			return err
		}
		return fmt.Errorf("another database: %w", stubdialect.ErrConflict)
	}
	require.ErrorIs(t, pooldriver.InTx(t.Context(), db, nil, commits, soonAgain), stubdialect.ErrConflict)
	require.Equal(t, 1, ran)
	require.Len(t, s.Server.Table("t"), 1)

	s.Server.Inject(fakedb.Fault{Call: fakedb.TxCommit, Err: stubdialect.ErrConflict, Times: 2})
	require.ErrorIs(t, pooldriver.InTx(t.Context(), db, nil, commits, soonAgain), stubdialect.ErrConflict)
	require.Equal(t, 4, ran)
	require.Len(t, s.Server.Table("t"), 2)
	require.EqualValues(t, 2, c.Stats().TxRetries)
}

func TestRetryGivesUp(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{})
	s.Server.Inject(fakedb.Fault{Call: fakedb.TxCommit, Err: stubdialect.ErrConflict, Always: true})
	err := pooldriver.InTx(t.Context(), db, nil, insertOnce, soonAgain)
	require.ErrorIs(t, err, stubdialect.ErrConflict)
	require.ErrorContains(t, err, "pooldriver: InTx has given up, because each attempt conflicted with another transaction: stub: ")
	require.ErrorContains(t, err, "(attempts 5, in ")
	require.EqualValues(t, 4, c.Stats().TxRetries)
}

func TestRetryRefusesWhatMakesNoSense(t *testing.T) {
	_, db, _ := openStub(t, dialects.Traits{})
	for _, r := range []pooldriver.Retry{{MaxAttempts: -1}, {MinBackoff: -1}, {MaxBackoff: -1}} {
		require.ErrorContains(t, pooldriver.InTx(t.Context(), db, nil, insertOnce, r), "negative")
	}
	require.ErrorContains(t, pooldriver.InTx(t.Context(), db, nil, insertOnce, pooldriver.Retry{}, pooldriver.Retry{}), "more than one Retry")
}

// conflicts is a function that always meets a conflict.
func conflicts(tries *int) func(context.Context, *sql.Tx) error {
	return func(context.Context, *sql.Tx) error { *tries++; return stubdialect.ErrConflict }
}

func TestRetryDoesNotSleepPastTheContextsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db, _ := openStub(t, dialects.Traits{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		tries := 0
		began := time.Now()
		err := pooldriver.InTx(ctx, db, nil, conflicts(&tries), pooldriver.Retry{MinBackoff: time.Hour})
		require.ErrorIs(t, err, stubdialect.ErrConflict)
		require.Less(t, time.Since(began), time.Second)
		require.NoError(t, ctx.Err())
	})
}

func TestACancelledContextEndsRetrysPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db, _ := openStub(t, dialects.Traits{})
		why := errors.New("the client has gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Nanosecond, func() { cancel(why) })
		tries := 0
		err := pooldriver.InTx(ctx, db, nil, conflicts(&tries), pooldriver.Retry{MinBackoff: 1000 * time.Hour})
		for _, want := range []error{stubdialect.ErrConflict, context.Canceled, why} {
			require.ErrorIs(t, err, want)
		}
		require.Equal(t, 1, tries)
	})
}
