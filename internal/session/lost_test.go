package session_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/session"
)

// TestALostTransactionIsNeitherCommittedNorContinued: the server has ended it by an error,
// or its connection is gone.
func TestALostTransactionIsNeitherCommittedNorContinued(t *testing.T) {
	for name, lose := range map[string]func(*fixture){
		"the server has rolled it back": (*fixture).endsTx,
		"the connection is gone":        func(f *fixture) { f.db.KillAll(); f.CheckLost() },
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{inTask: true, traits: dialects.Traits{StatusKnown: true}})
			txs := f.stack(2)
			require.False(t, f.TxLost())
			lose(f)
			require.True(t, f.TxLost())
			require.True(t, f.Begun(), "the program has not ended it")
			before := f.events()
			require.ErrorIs(t, txs[1].Commit(), session.ErrTxLost)
			require.Empty(t, f.calls(before), "nothing is sent for a savepoint that is gone")
			require.ErrorIs(t, txs[0].Commit(), session.ErrTxLost)
			require.False(t, f.Begun() || f.TxLost())
			require.Empty(t, f.stored())
			require.False(t, f.Healthy())
		})
	}
}

// endsTx is the server's rollback of the whole transaction after an error.
func (f *fixture) endsTx() {
	require.NoError(f.t, f.exec("ROLLBACK"))
	f.TxEnded()
}

func TestATransactionThatEndsByItsContextIsMissedByThoseWhoCountedOnIt(t *testing.T) {
	cause := errors.New("the request has ended")
	for name, tc := range map[string]struct {
		joined int // at this depth a statement of the task ran that is no transaction's; -1: at none
		ends   int // this one
		by     func(f *fixture, tx *session.Tx) error
		own    bool // the context has not ended: the program ends it
		told   bool
	}{
		"nobody joined":                        {joined: -1, ends: 0},
		"joined, and ended by the context":     {joined: 0, ends: 0, told: true},
		"joined, and ended by the program":     {joined: 0, ends: 0, own: true},
		"joined deeper":                        {joined: 2, ends: 1, told: true},
		"joined further out":                   {joined: 0, ends: 1},
		"joined, and struck off":               {joined: 0, ends: 0, by: abandon, told: true},
		"joined, struck off by the program":    {joined: 0, ends: 0, by: abandon, own: true},
		"joined a savepoint that is committed": {joined: 2, ends: 1, by: commitDeeperFirst, told: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{inTask: true})
			var txs []*session.Tx
			var cancels []context.CancelCauseFunc
			for i := range 3 {
				ctx, cancel := context.WithCancelCause(t.Context())
				if i == 0 {
					txs = append(txs, f.begin(ctx))
				} else {
					txs = append(txs, f.savepoint(ctx))
				}
				cancels = append(cancels, cancel)
			}
			if tc.joined >= 0 {
				txs[tc.joined].Join()
			}
			if !tc.own {
				cancels[tc.ends](cause)
			}
			if tc.by == nil {
				require.NoError(t, txs[tc.ends].End())
			} else {
				require.NoError(t, tc.by(f, txs[tc.ends]))
			}
			require.False(t, txs[tc.ends].Open())
			if !tc.told {
				require.Empty(t, f.hears())
				return
			}
			require.Equal(t, []string{"counted on tx"}, f.hears())
			require.ErrorIs(t, f.holder.loss, session.ErrTxLost)
			require.ErrorIs(t, f.holder.loss, cause)
			require.ErrorIs(t, f.holder.loss, context.Canceled)
			require.ErrorContains(t, f.holder.loss, "it was ended by its context")
			require.False(t, f.holder.loss.Final())
		})
	}
}

func abandon(_ *fixture, tx *session.Tx) error {
	tx.Abandon()
	return nil
}

// commitDeeperFirst commits the innermost savepoint before tx ends: a statement that joined
// the savepoint then counts on tx.
func commitDeeperFirst(f *fixture, tx *session.Tx) error {
	return errors.Join(f.Innermost().Commit(), tx.End())
}

// TestATransactionWhoseOwnStatementsRanInASavepointIsLostWithIt, if that was ended by its
// context.
func TestATransactionWhoseOwnStatementsRanInASavepointIsLostWithIt(t *testing.T) {
	for name, tc := range map[string]struct {
		steps string // "(": a savepoint begins, ")": it is committed, "x": the outermost one runs a statement
		lost  bool
	}{
		"nowhere":                   {"(", false},
		"around it":                 {"x(", false},
		"in it":                     {"(x", true},
		"in it, and around it":      {"x(x", true},
		"deeper":                    {"((x", true},
		"deeper, which has ended":   {"((x)", true},
		"in one that ended already": {"(x)(", false},
		"in it and another one":     {"(x)(x", true},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{inTask: true})
			outer := f.begin(t.Context())
			ctx, cancel := context.WithCancelCause(t.Context())
			var open []*session.Tx
			for _, step := range tc.steps {
				switch step {
				case '(':
					open = append(open, f.savepoint(ctx))
				case ')':
					require.NoError(t, open[len(open)-1].Commit())
					open = open[:len(open)-1]
				case 'x':
					outer.Ran()
				}
			}
			cancel(errNo)
			require.NoError(t, open[0].End())
			if !tc.lost {
				require.NoError(t, outer.Lost())
				require.NoError(t, outer.Commit())
				return
			}
			require.ErrorIs(t, outer.Lost(), session.ErrTxLost)
			require.ErrorContains(t, outer.Lost(), "statements of its own ran in a transaction inside it")
			require.Equal(t, outer.Lost(), outer.Commit())
			require.False(t, f.inTx(), "rolled back")
		})
	}
}

func TestALossSaysWhatWasLostWhyAndWhatToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t, setup{inTask: true, traits: dialects.Traits{StatusKnown: true}})
		since := time.Now()
		f.begin(t.Context())
		time.Sleep(1500 * time.Millisecond)
		f.TxEnded()
		require.EqualError(t, f.LostTx(), "pooldriver: the task has lost its session: a transaction is gone: the server rolled it back after an error; end it, and begin a new one (begun 1.5s ago)")
		f.MarkUnusable()
		require.EqualError(t, f.LostTx(), "pooldriver: the task has lost its session: a transaction is gone: its connection was lost; end it, and begin a new one (begun 1.5s ago)")

		loss := f.LostState("a transaction begun by hand", since)
		require.EqualError(t, loss, "pooldriver: the task has lost its session: a transaction begun by hand is gone: its connection was lost; begin a new task (begun 1.5s ago)")
		require.True(t, loss.Final())
		require.NoError(t, errors.Unwrap(loss))
		f.GiveBack()

		alone := open(t, setup{})
		alone.Began(newTx(t.Context()), time.Time{})
		alone.TxEnded()
		require.EqualError(t, alone.LostTx(), "pooldriver: a transaction is gone: the server rolled it back after an error; end it, and begin a new one")

		set := open(t, setup{inTask: true})
		require.NoError(t, set.exec("SET a = 1"))
		require.EqualError(t, set.LostState("a transaction", since), "pooldriver: the task has lost its session: its connection was lost, and with it the session state that its statements have set; begin a new task (set 1.5s ago)")
		require.ErrorIs(t, loss, session.ErrTxLost)
		require.NotErrorIs(t, loss, errNo)
	})
}
