package session_test

import (
	"context"
	"database/sql/driver"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// stack begins a transaction and savepoints in it, depth in all, and inserts the number of
// its depth in each: 0 in the outermost one.
func (f *fixture) stack(depth int) (txs []*session.Tx) {
	f.t.Helper()
	for i := range depth {
		begin := f.savepoint
		if i == 0 {
			begin = f.begin
		}
		txs = append(txs, begin(f.t.Context()))
		f.insert(i)
	}
	return txs
}

func TestTransactionsEndLastInFirstOut(t *testing.T) {
	commit, rollback := (*session.Tx).Commit, (*session.Tx).End
	type ends []func(*session.Tx) error // the innermost one's first
	for name, tc := range map[string]struct {
		ends ends
		want []int64
	}{
		"all are committed":                 {ends{commit, commit, commit}, []int64{0, 1, 2}},
		"all are rolled back":               {ends{rollback, rollback, rollback}, nil},
		"the innermost one is rolled back":  {ends{rollback, commit, commit}, []int64{0, 1}},
		"the middle one is rolled back":     {ends{commit, rollback, commit}, []int64{0}},
		"the outermost one is rolled back":  {ends{commit, commit, rollback}, nil},
		"the outermost one alone is commit": {ends{rollback, rollback, commit}, []int64{0}},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{inTask: true})
			txs := f.stack(3)
			require.True(t, f.HasTx())
			for i, end := range tc.ends {
				depth := 2 - i
				require.Equal(t, depth, f.Depth())
				require.Same(t, txs[depth], f.Innermost())
				require.True(t, f.Begun() && f.InTx() && f.inTx() && txs[depth].Open())
				require.NoError(t, end(txs[depth]))
				require.False(t, txs[depth].Open())
			}
			require.False(t, f.Begun() || f.InTx() || f.inTx())
			require.Nil(t, f.Innermost())
			require.Equal(t, tc.want, f.stored())
			require.True(t, f.Healthy())
			require.Empty(t, f.hears())
		})
	}
}

func TestSavepointsHaveTheDialectsTexts(t *testing.T) {
	for name, tc := range map[string]struct {
		texts            dialects.Savepoints
		commit, rollback []string
	}{
		"standard SQL": {
			commit:   []string{"SAVEPOINT pooldriver_1", "RELEASE SAVEPOINT pooldriver_1"},
			rollback: []string{"SAVEPOINT pooldriver_1", "ROLLBACK TO SAVEPOINT pooldriver_1", "RELEASE SAVEPOINT pooldriver_1"},
		},
		"without a release": {
			texts:    dialects.Savepoints{Begin: "SAVEPOINT", RollBack: "ROLLBACK TO"},
			commit:   []string{"SAVEPOINT pooldriver_1"},
			rollback: []string{"SAVEPOINT pooldriver_1", "ROLLBACK TO pooldriver_1"},
		},
	} {
		for end, want := range map[string][]string{"commit": tc.commit, "rollback": tc.rollback} {
			t.Run(name+", "+end, func(t *testing.T) {
				f := open(t, setup{inTask: true, traits: dialects.Traits{Savepoints: tc.texts}})
				f.begin(t.Context())
				before := f.events()
				inner := f.savepoint(t.Context())
				if end == "commit" {
					require.NoError(t, inner.Commit())
				} else {
					require.NoError(t, inner.End())
				}
				for i := range want {
					want[i] = "Conn.ExecContext " + want[i]
				}
				require.Equal(t, want, f.calls(before))
			})
		}
	}
}

// TestACommitOutOfOrderRollsBack: a savepoint that was begun inside is still open.
func TestACommitOutOfOrderRollsBack(t *testing.T) {
	for _, at := range []int{0, 1} {
		t.Run(fmt.Sprint("at depth ", at), func(t *testing.T) {
			f := open(t, setup{inTask: true})
			txs := f.stack(3)
			require.ErrorIs(t, txs[at].Commit(), session.ErrOpenInside)
			for _, tx := range txs[at:] {
				require.False(t, tx.Open())
			}
			require.Equal(t, at > 0, f.inTx())
			require.Equal(t, at > 0, f.Begun())
			require.Len(t, f.stored(), at, "what was done inside is undone, what was done around is not")
			require.True(t, f.Healthy())
		})
	}
}

// TestACommitEndsInnerTransactionsThatAreOutlived: database/sql is about to roll them back.
func TestACommitEndsInnerTransactionsThatAreOutlived(t *testing.T) {
	f := open(t, setup{inTask: true})
	outer := f.begin(t.Context())
	f.insert(0)
	require.Nil(t, f.Outlived())
	ctx, cancel := context.WithCancel(t.Context())
	outlived := f.savepoint(ctx)
	f.insert(1)
	f.savepoint(t.Context())
	cancel()
	require.Same(t, outlived, f.Outlived())
	require.NoError(t, outer.Commit())
	require.Equal(t, []int64{0}, f.stored())
	require.False(t, f.inTx())
}

func TestTheOutermostOutlivedTransactionIsFound(t *testing.T) {
	f := open(t, setup{inTask: true})
	ctx, cancel := context.WithCancel(t.Context())
	outer := f.begin(ctx)
	f.savepoint(ctx)
	cancel()
	require.Same(t, outer, f.Outlived())
	require.NoError(t, outer.End())
	require.Nil(t, f.Outlived())

	require.NoError(t, f.exec("BEGIN"))
	require.Nil(t, f.Outlived(), "begun by hand")
	require.Nil(t, f.Innermost())
	ctx, cancel = context.WithCancel(t.Context())
	inner := f.savepoint(ctx)
	require.Same(t, inner, f.Innermost())
	require.False(t, f.HasTx())
	require.True(t, f.Begun())
	require.Equal(t, driver.TxOptions{}, f.TxOptions())
	cancel()
	require.Same(t, inner, f.Outlived())
}

func TestSavepointsHaveTheOptionsOfTheirTransaction(t *testing.T) {
	f := open(t, setup{inTask: true})
	options := driver.TxOptions{ReadOnly: true}
	tx := new(session.Tx)
	tx.Init(t.Context(), options)
	require.Equal(t, t.Context(), tx.Context())
	_, err := f.Begin(t.Context(), tx, false)
	require.NoError(t, err)
	since := time.Now().Add(-time.Minute)
	f.Began(tx, since)
	require.Equal(t, options, f.TxOptions())
	require.True(t, f.db.State().Sessions[0].ReadOnly)
	require.Equal(t, since, f.Since())
	f.savepoint(t.Context())
	require.Equal(t, since, f.Since(), "of the outermost one")
}

func TestSinceIsOfTheOutermostTransaction(t *testing.T) {
	f := open(t, setup{inTask: true})
	require.Zero(t, f.Since())
	require.NoError(t, f.exec("BEGIN"))
	since, tx := time.Now().Add(-time.Hour), newTx(t.Context())
	require.NoError(t, f.Savepoint(t.Context(), tx))
	f.BeganSavepoint(tx, since)
	require.Equal(t, since, f.Since(), "of its outermost savepoint where it was begun by hand")
}

// TestADriverThatBeginsASecondTransactionHasTheLastWord, outside of tasks.
func TestADriverThatBeginsASecondTransactionHasTheLastWord(t *testing.T) {
	f := open(t, setup{})
	first, second := f.begin(t.Context()), newTx(t.Context())
	f.Began(second, time.Now())
	require.False(t, first.Open())
	require.False(t, first.OverOn(f.Session))
	require.True(t, second.Open())
	require.False(t, second.OverOn(f.Session))
	require.True(t, second.OverOn(open(t, setup{}).Session))
}

func TestOutsideOfTasksEndsGoToTheDriver(t *testing.T) {
	for name, tc := range map[string]struct {
		call fakedb.Call
		end  func(*session.Tx) error
		want []int64
	}{
		"commit":   {fakedb.TxCommit, (*session.Tx).Commit, []int64{1}},
		"rollback": {fakedb.TxRollback, (*session.Tx).End, nil},
	} {
		for _, fails := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " that fails"}[fails], func(t *testing.T) {
				f := open(t, setup{traits: dialects.Traits{StatusKnown: true}})
				tx := f.begin(t.Context())
				f.insert(1)
				if fails {
					f.db.Fail(tc.call, 1, meansError(dialects.RoleDoubt))
				}
				before := f.events()
				err := tc.end(tx)
				require.Equal(t, []string{string(tc.call)}, f.calls(before))
				require.False(t, tx.Open() || f.Begun())
				require.Equal(t, fails, f.inTx())
				if !fails {
					require.NoError(t, err)
					require.Equal(t, tc.want, f.stored())
					return
				}
				require.ErrorIs(t, err, meansError(dialects.RoleDoubt))
				require.Equal(t, []string{"diagnosed 1000000"}, f.hears())
				require.False(t, f.Healthy())
				require.True(t, f.Inspect().Doubt)
			})
		}
	}
}

// TestInATaskAnEndThatFailsIsInsistedOn: the task's next statement would be in the
// transaction.
func TestInATaskAnEndThatFailsIsInsistedOn(t *testing.T) {
	for name, tc := range map[string]struct {
		call fakedb.Call
		end  func(*session.Tx) error
	}{
		"commit":   {fakedb.TxCommit, (*session.Tx).Commit},
		"rollback": {fakedb.TxRollback, (*session.Tx).End},
	} {
		for _, worse := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", and fails again"}[worse], func(t *testing.T) {
				f := open(t, setup{inTask: true, traits: dialects.Traits{StatusKnown: true}})
				tx := f.begin(t.Context())
				f.insert(1)
				f.db.Fail(tc.call, 1, errNo)
				if worse {
					f.db.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Text: "ROLLBACK", Err: errNo})
				}
				require.ErrorIs(t, tc.end(tx), errNo)
				require.Equal(t, worse, f.inTx())
				require.Equal(t, worse, f.Unusable())
			})
		}
	}
}

func TestASavepointThatCannotBeRolledBackTakesItsTransactionWithIt(t *testing.T) {
	for _, text := range []string{"ROLLBACK TO", "RELEASE"} {
		t.Run(text, func(t *testing.T) {
			f := open(t, setup{inTask: true})
			txs := f.stack(2)
			f.db.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Text: text, Err: errNo})
			require.ErrorIs(t, txs[1].End(), errNo)
			require.True(t, f.TxLost())
			require.ErrorIs(t, txs[0].Commit(), session.ErrTxLost, "what was done inside must not be committed with the rest")
			require.Empty(t, f.stored())
			require.False(t, f.inTx())
		})
	}
}

func TestASavepointThatCannotBeReleasedStaysOpen(t *testing.T) {
	f := open(t, setup{inTask: true})
	txs := f.stack(2)
	f.db.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Text: "RELEASE", Err: errNo})
	require.ErrorIs(t, txs[1].Commit(), errNo)
	require.True(t, txs[1].Open())
	require.NoError(t, txs[1].End())
	require.NoError(t, txs[0].Commit())
	require.Equal(t, []int64{0}, f.stored())
}

// TestATransactionThatTheDriverCannotSayItSurvivesCostsTheSession is database/sql's own rule
// for a cancelled transaction.
func TestATransactionThatTheDriverCannotSayItSurvivesCostsTheSession(t *testing.T) {
	for name, tc := range map[string]struct {
		with      setup
		cancelled bool
		unusable  bool
		healthy   bool
	}{
		"not cancelled":       {with: setup{without: fakedb.Validator}, healthy: true},
		"cancelled":           {with: setup{}, cancelled: true, healthy: true},
		"no validator":        {with: setup{without: fakedb.Validator}, cancelled: true, unusable: true},
		"no resetter":         {with: setup{without: fakedb.SessionResetter}, cancelled: true, unusable: true},
		"the status is known": {with: setup{without: fakedb.Validator, traits: dialects.Traits{StatusKnown: true}}, cancelled: true, healthy: true},
		"it is the whole database": {with: func() setup {
			with := extendedBy(&knowing{})
			with.without = fakedb.Validator
			return with
		}(), cancelled: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, tc.with)
			ctx, cancel := context.WithCancel(t.Context())
			tx := f.begin(ctx)
			if tc.cancelled {
				cancel()
			}
			require.NoError(t, tx.End())
			require.False(t, f.inTx())
			require.Equal(t, tc.unusable, f.Unusable())
			require.Equal(t, tc.healthy, f.Healthy())
			cancel()
		})
	}
}

// TestACommitWhoseAnswerIsLostIsUnclear: a driver's word that it can be repeated is not
// believed, unless the bytes were counted and none was sent.
func TestACommitWhoseAnswerIsLostIsUnclear(t *testing.T) {
	for name, tc := range map[string]struct {
		err     error
		counts  bool
		unsent  bool // the driver fails without a call
		unsure  bool // the trait
		unclear bool
	}{
		"another error":                        {err: errNo},
		"ErrBadConn, where it can be believed": {err: driver.ErrBadConn},
		"ErrBadConn, where it cannot":          {err: driver.ErrBadConn, unsure: true, unclear: true},
		"ErrBadConn, and it was sent":          {err: driver.ErrBadConn, counts: true, unclear: true},
		"ErrBadConn, and it was not sent":      {err: driver.ErrBadConn, counts: true, unsent: true, unsure: true},
		"safe to retry, and nobody counts":     {err: safeError{errNo}, unclear: true},
		"safe to retry, and it was sent":       {err: safeError{errNo}, counts: true, unclear: true},
		"safe to retry, and it was not sent":   {err: safeError{errNo}, counts: true, unsent: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{counts: tc.counts, intercept: true, traits: dialects.Traits{BadConnUnsure: tc.unsure}})
			f.conn.tx = func(tx driver.Tx) driver.Tx { return &failingTx{tx, tc.err, !tc.unsent} }
			err := f.begin(t.Context()).Commit()
			if !tc.unclear {
				require.Equal(t, tc.err, err)
				return
			}
			require.ErrorIs(t, err, ctxerr.ErrCommitUnclear)
			require.NotErrorIs(t, err, driver.ErrBadConn)
			require.False(t, ctxerr.SaysSafe(err))
		})
	}
}

// failingTx commits, if it is to be sent, and says that it has failed.
type failingTx struct {
	driver.Tx
	err  error
	sent bool
}

func (tx *failingTx) Commit() error {
	if tx.sent {
		_ = tx.Tx.Commit()
	}
	return tx.err
}

type safeError struct{ error }

func (safeError) SafeToRetry() bool { return true }

func TestAnErrorOfTheContextHasItsCause(t *testing.T) {
	f := open(t, setup{})
	ctx, cancel := context.WithCancelCause(t.Context())
	tx := f.begin(ctx)
	cancel(errNo)
	f.db.Fail(fakedb.TxCommit, 1, context.Canceled)
	err := tx.Commit()
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, errNo)
}

// TestOurCommandsOutliveTheTransactionsContext: a savepoint is rolled back after its context
// has ended, which is the usual reason to do so.
func TestOurCommandsOutliveTheTransactionsContext(t *testing.T) {
	f := open(t, setup{inTask: true})
	f.begin(t.Context())
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), fakedb.TagKey{}, "BeginTx's"))
	inner := f.savepoint(ctx)
	cancel()
	require.NoError(t, inner.End())
	events := f.db.Events(fakedb.ConnExecCtx)
	require.Equal(t, "BeginTx's", events[len(events)-1].Tag, "its values are there")
	require.Zero(t, f.Depth())
}

// TestARollbackReadsAheadOrAbandonsRows that are read inside the transaction.
func TestARollbackReadsAheadOrAbandonsRows(t *testing.T) {
	for _, tooLarge := range []bool{false, true} {
		t.Run(map[bool]string{false: "small", true: "too large"}[tooLarge], func(t *testing.T) {
			with := setup{inTask: true}
			if tooLarge {
				with.env = config.Config{NestedBuffer: 50, NestedBufferTotal: 1 << 20}
			}
			f := open(t, with)
			tx := f.begin(t.Context())
			rows := f.query("SELECT n FROM numbers LIMIT 10", false)
			require.NoError(t, tx.End())
			require.Nil(t, f.Rows())
			require.False(t, f.inTx())
			if tooLarge {
				require.True(t, rows.Gone())
				require.ErrorIs(t, rows.Lost(), session.ErrNestedBuffer)
				return
			}
			require.Len(t, numbers(t, rows.Buffer().Next), 10)
			rows.Buffer().Drop()
		})
	}
}

func TestACommitReadsAheadOrRollsBack(t *testing.T) {
	f := open(t, setup{inTask: true, env: config.Config{NestedBuffer: 50, NestedBufferTotal: 1 << 20}})
	tx := f.begin(t.Context())
	f.insert(1)
	rows := f.query("SELECT n FROM numbers LIMIT 10", false)
	require.ErrorIs(t, tx.Commit(), session.ErrNestedBuffer)
	require.True(t, rows.Gone())
	require.Empty(t, f.stored())
}

func TestTheFirstStatementsContextBoundsTheBeginningAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t, setup{intercept: true})
		var given context.Context
		statement, cancel := context.WithCancel(context.Background())
		f.conn.begun = func(ctx context.Context) { given = ctx; cancel(); synctest.Wait() }
		_, err := f.Begin(statement, newTx(t.Context()), false)
		require.ErrorIs(t, err, context.Canceled)

		statement, cancel = context.WithCancel(context.Background())
		f.conn.begun = func(ctx context.Context) { given = ctx }
		tx := newTx(t.Context())
		_, err = f.Begin(statement, tx, false)
		require.NoError(t, err)
		cancel()
		synctest.Wait()
		require.NoError(t, given.Err())
		tx.Release()
		require.ErrorIs(t, given.Err(), context.Canceled)
		tx.Release()
	})
}
