package session_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// deferBegin defers the begin of a transaction, as BeginTx does.
func (f *fixture) deferBegin(ctx context.Context) *session.Tx {
	tx := newTx(ctx)
	f.Defer(tx)
	f.Began(tx, time.Now())
	return tx
}

func TestADeferredBeginSendsNothingUntilTheFirstStatement(t *testing.T) {
	for _, inTask := range []bool{false, true} {
		f := open(t, setup{inTask: inTask})
		before := f.events()
		tx := f.deferBegin(t.Context())
		require.Same(t, tx, f.Deferred())
		require.True(t, f.Begun() && tx.Open())
		require.Empty(t, f.calls(before))
		carried, err := f.BeginDeferred(t.Context(), true)
		require.NoError(t, err)
		require.False(t, carried, "the dialect cannot")
		require.NoError(t, f.DeferredBegan(nil))
		require.Nil(t, f.Deferred())
		require.True(t, f.inTx())
		f.insert(1)
		require.NoError(t, tx.Commit())
		require.Equal(t, []int64{1}, f.stored())
	}
}

func TestADeferredTransactionWithoutStatementsNeverReachesTheServer(t *testing.T) {
	for name, end := range map[string]func(*session.Tx) error{"commit": (*session.Tx).Commit, "rollback": (*session.Tx).End} {
		for _, inTask := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				f := open(t, setup{inTask: inTask})
				before := f.events()
				tx := f.deferBegin(t.Context())
				require.NoError(t, end(tx))
				require.Empty(t, f.calls(before))
				require.Nil(t, f.Deferred())
				require.False(t, f.Begun())
			})
		}
	}
}

func TestADeferredBeginThatFailsIsTheAnswerOfTheCommit(t *testing.T) {
	for _, inTask := range []bool{false, true} {
		f := open(t, setup{inTask: inTask})
		f.db.Fail(fakedb.ConnBeginCtx, 1, errNo)
		tx := f.deferBegin(t.Context())
		_, err := f.BeginDeferred(t.Context(), false)
		require.Equal(t, errNo, err)
		require.ErrorIs(t, f.DeferredBegan(err), errNo)
		require.Same(t, tx, f.Deferred(), "each of its statements gets the error")
		require.EqualError(t, tx.Refused(), "BEGIN, which was deferred to this statement: no")
		require.Equal(t, tx.Refused(), tx.Commit())
		require.Nil(t, f.Deferred())
		require.False(t, f.Begun())
	}
}

func TestADeferredBeginThatPanicsHasNotBegun(t *testing.T) {
	f := open(t, setup{})
	f.db.Inject(fakedb.Fault{Call: fakedb.ConnBeginCtx, Panic: "boom"})
	tx := f.deferBegin(t.Context())
	f.panics(func() { _, _ = f.BeginDeferred(t.Context(), false) })
	require.ErrorContains(t, tx.Refused(), "the transaction did not begin")
}

// TestAnErrorOfTheBeginEndsNoTransaction: a session whose deferred transaction could not
// begin has lost none.
func TestAnErrorOfTheBeginEndsNoTransaction(t *testing.T) {
	f := open(t, setup{inTask: true})
	f.deferBegin(ended(errNo))
	f.TxEnded()
	err := f.DeferredBegan(context.Canceled)
	require.ErrorIs(t, err, errNo, "the cause of its context")
	require.False(t, f.TxLost())
	require.True(t, f.Inspect().Doubt)
}

func TestADeferredTransactionMovesToAnotherSession(t *testing.T) {
	first, second := open(t, setup{}), open(t, setup{})
	first.db.Fail(fakedb.ConnBeginCtx, 1, driver.ErrBadConn)
	tx := first.deferBegin(t.Context())
	_, err := first.BeginDeferred(t.Context(), false)
	require.ErrorIs(t, first.DeferredBegan(err), driver.ErrBadConn)
	first.GiveBack()
	tx.Again()
	require.NoError(t, tx.Refused())
	second.Defer(tx)
	second.Began(tx, time.Now())
	_, err = second.BeginDeferred(t.Context(), false)
	require.NoError(t, second.DeferredBegan(err))
	require.True(t, tx.Open() && second.inTx())
	require.NoError(t, tx.Commit())
	tx.Refuse(errNo)
	require.Equal(t, errNo, tx.Refused(), "no connection was to be had")
}

// TestABeginMayTravelWithTheFirstStatement, where the dialect can do that and the statement
// allows it.
func TestABeginMayTravelWithTheFirstStatement(t *testing.T) {
	for name, tc := range map[string]struct {
		carry   bool
		err     error
		carried bool
		begins  int // calls of the driver's BeginTx
		want    error
	}{
		"with it":                     {carry: true, carried: true},
		"alone: it cannot carry":      {begins: 1},
		"alone: the connection can't": {carry: true, err: errors.ErrUnsupported, begins: 1},
		"not at all":                  {carry: true, err: errNo, want: errNo},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{extend: func(s *server) dialects.Session { return &lazy{server: s, err: tc.err} }})
			f.deferBegin(t.Context())
			carried, err := f.BeginDeferred(t.Context(), tc.carry)
			require.Equal(t, tc.want, err)
			require.Equal(t, tc.carried, carried)
			require.Len(t, f.db.Events(fakedb.ConnBeginCtx), tc.begins)
		})
	}
}

// lazy is a dialect's session that can begin with the next statement.
type lazy struct {
	*server
	err error
}

func (l *lazy) BeginNow(context.Context) error { return l.err }

func (l *lazy) BeginWithNext(context.Context, driver.TxOptions) (driver.Tx, error) {
	if l.err != nil {
		return nil, l.err
	}
	return carriedTx{}, nil
}

// carriedTx is a transaction in which nothing was sent.
type carriedTx struct{}

func (carriedTx) Commit() error   { return nil }
func (carriedTx) Rollback() error { return nil }

func TestABeginIsDeferredOnlyBetweenTransactions(t *testing.T) {
	for name, tc := range map[string]struct {
		with   setup
		before func(*fixture)
		want   bool
	}{
		"nothing has run":                       {setup{}, func(*fixture) {}, true},
		"a transaction is open":                 {setup{}, func(f *fixture) { f.begin(f.t.Context()) }, false},
		"one was begun by hand":                 {setup{}, func(f *fixture) { _ = f.exec("BEGIN") }, false},
		"one was begun and ended by hand":       {setup{}, func(f *fixture) { _ = f.exec("BEGIN"); _ = f.exec("COMMIT") }, true},
		"a query, and the server does not tell": {setup{blind: true}, func(f *fixture) { _ = f.exec("SELECT 1") }, true},
		"a text, and the server does not tell":  {setup{blind: true}, func(f *fixture) { _ = f.exec("ROLLBACK") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, tc.with)
			tc.before(f)
			require.Equal(t, tc.want, f.BetweenTxs())
		})
	}
}

// TestABeginThatFailsLeavesNothingBehind: the transaction may have begun all the same, and
// the driver may have set for it what the next one would inherit.
func TestABeginThatFailsLeavesNothingBehind(t *testing.T) {
	isolated := driver.TxOptions{Isolation: 6}
	for name, tc := range map[string]struct {
		inTask   bool
		opts     driver.TxOptions
		after    bool // the error comes after the transaction has begun
		noWay    bool // and it cannot be rolled back
		inTx     bool
		unusable bool
		effect   dialects.Effect
	}{
		"it did not begin":             {inTask: true},
		"it did, without a task":       {after: true, inTx: true},
		"it did, in a task":            {inTask: true, after: true},
		"it did, and cannot be undone": {inTask: true, after: true, noWay: true, inTx: true, unusable: true},
		"it had options":               {opts: isolated, effect: dialects.Suspect | dialects.TxControl},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{inTask: tc.inTask, traits: dialects.Traits{StatusKnown: true}})
			f.db.Inject(fakedb.Fault{Call: fakedb.ConnBeginCtx, Err: errNo, After: tc.after})
			if tc.noWay {
				f.db.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Text: "ROLLBACK", Err: errNo})
			}
			tx := new(session.Tx)
			tx.Init(t.Context(), tc.opts)
			_, err := f.Begin(t.Context(), tx, false)
			require.Equal(t, errNo, err)
			require.Equal(t, tc.inTx, f.inTx())
			require.Equal(t, tc.unusable, f.Unusable())
			require.False(t, f.Healthy())
			require.Equal(t, tc.effect, f.Effect())
		})
	}
}

func TestAFailedBeginInATransactionBegunByHandDoesNotEndIt(t *testing.T) {
	f := open(t, setup{inTask: true, traits: dialects.Traits{StatusKnown: true}})
	require.NoError(t, f.exec("BEGIN"))
	_, err := f.Begin(t.Context(), newTx(t.Context()), false)
	require.Error(t, err)
	require.True(t, f.inTx())
}

// TestADriverThatKeepsBeginTxsContextCanRollBackWhenThatHasEnded: it uses the context again
// for Rollback, which is called exactly because the context has ended.
func TestADriverThatKeepsBeginTxsContextCanRollBackWhenThatHasEnded(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := open(t, setup{intercept: true, traits: dialects.Traits{TxKeepsContext: keeps}})
			var given context.Context
			rolledBack := false
			f.conn.begun = func(ctx context.Context) { given = ctx }
			f.conn.tx = func(tx driver.Tx) driver.Tx {
				return &observedTx{tx, func() {
					rolledBack = true
					_, bounded := given.Deadline()
					require.Equal(t, keeps, bounded)
					require.Equal(t, keeps, given.Err() == nil)
					select {
					case <-given.Done():
						require.False(t, keeps)
					default:
						require.True(t, keeps)
					}
				}}
			}
			ctx, cancel := context.WithCancel(context.WithValue(t.Context(), fakedb.TagKey{}, "BeginTx's"))
			statement, cancelStatement := context.WithCancel(t.Context())
			tx := newTx(ctx)
			_, err := f.Begin(statement, tx, false)
			require.NoError(t, err)
			f.Began(tx, time.Now())
			cancelStatement()
			synctest.Wait()
			require.NoError(t, given.Err(), "the first statement's context bounds the beginning alone")
			require.Equal(t, "BeginTx's", given.Value(fakedb.TagKey{}))
			cancel()
			require.ErrorIs(t, given.Err(), context.Canceled, "statements end with their transaction's context")
			require.NoError(t, tx.End())
			require.True(t, rolledBack)
			require.ErrorIs(t, given.Err(), context.Canceled, "nothing goes on behind the rollback")
			tx.Release()
		})
	}
}

// observedTx calls a function in Rollback.
type observedTx struct {
	driver.Tx
	rolling func()
}

func (tx *observedTx) Rollback() error {
	tx.rolling()
	return tx.Tx.Rollback()
}
