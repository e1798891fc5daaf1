package session_test

import (
	"context"
	"database/sql/driver"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/pinning"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

func TestWhatIsFoundOfASessionThatIsGivenBack(t *testing.T) {
	known := dialects.Traits{StatusKnown: true}
	for name, tc := range map[string]struct {
		with    setup
		borrows func(*fixture)
		want    session.Findings
		asked   bool // the driver's opinion
	}{
		"nothing has happened": {
			borrows: func(*fixture) {},
			want:    session.Findings{Valid: true}, asked: true,
		},
		"a transaction is open": {
			with:    setup{traits: known},
			borrows: func(f *fixture) { f.begin(f.t.Context()) },
			want:    session.Findings{Status: dialects.TxOpen, Valid: true}, asked: true,
		},
		"statements have changed it": {
			borrows: func(f *fixture) { _ = f.exec("SET a = 1"); _ = f.exec("CALL out(1)") },
			want:    session.Findings{Status: dialects.TxNone, Effect: dialects.Stateful | dialects.Suspect | dialects.TxControl, Valid: true, Doubt: true}, asked: true,
		},
		"a commit has failed": {
			borrows: func(f *fixture) {
				f.db.Fail(fakedb.TxCommit, 1, errNo)
				_ = f.begin(f.t.Context()).Commit()
			},
			want: session.Findings{Status: dialects.TxOpen, Valid: true, Doubt: true}, asked: true,
		},
		"the server has ended a transaction": {
			with:    setup{inTask: true},
			borrows: func(f *fixture) { f.begin(f.t.Context()); f.endsTx() },
			want:    session.Findings{Status: dialects.TxNone, Effect: dialects.TxControl, Valid: true, Doubt: true}, asked: true,
		},
		"the driver says that it is invalid": {
			borrows: func(f *fixture) { f.db.Fail(fakedb.ConnValid, 1, errNo) }, asked: true,
		},
		"the driver has no opinion": {
			with:    setup{without: fakedb.Validator},
			borrows: func(*fixture) {},
			want:    session.Findings{Valid: true},
		},
		"the session is dead": {
			with:    setup{traits: known},
			borrows: func(f *fixture) { f.db.KillAll() },
			want:    session.Findings{Status: dialects.TxLost}, asked: true,
		},
		"it was marked unusable": {
			borrows: func(f *fixture) { f.MarkUnusable() },
			want:    session.Findings{Unusable: true},
		},
		"it was severed": {
			borrows: func(f *fixture) { f.Sever() },
			want:    session.Findings{Unusable: true},
		},
		"the driver panicked before": {
			borrows: func(f *fixture) {
				f.panics(func() { _ = f.Guard(func() error { panic("boom") }) })
			},
			want: session.Findings{Unusable: true},
		},
		"the driver panics when it is asked": {
			borrows: func(f *fixture) { f.db.Inject(fakedb.Fault{Call: fakedb.ConnValid, Panic: "boom"}) },
			want:    session.Findings{Unusable: true, Panicked: "boom"}, asked: true,
		},
		"a statement could not be closed": {
			borrows: func(f *fixture) {
				f.db.Fail(fakedb.StmtClose, 1, errNo)
				f.prepare("SELECT 1", 0)
				f.Drop("SELECT 1")
			},
			want: session.Findings{Valid: true}, asked: true,
		},
		"the same, and the driver may find it": {
			with: setup{traits: dialects.Traits{PreparedAges: true}},
			borrows: func(f *fixture) {
				f.db.Fail(fakedb.StmtClose, 1, errNo)
				f.prepare("SELECT 1", 0)
				f.Drop("SELECT 1")
			},
			want: session.Findings{Effect: dialects.Suspect | dialects.ForgetPrepared, Valid: true}, asked: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, tc.with)
			tc.borrows(f)
			f.GiveBack()
			before := len(f.db.Events(fakedb.ConnValid))
			require.Equal(t, tc.want, f.Inspect())
			require.Equal(t, tc.asked, len(f.db.Events(fakedb.ConnValid)) > before)
		})
		t.Run(name+", after LeftNothing", func(t *testing.T) {
			f := open(t, tc.with)
			tc.borrows(f)
			f.GiveBack()
			before := len(f.db.Events(fakedb.ConnValid))
			if f.LeftNothing() {
				require.Equal(t, pinning.Step{}, stepAfter(tc.want), "LeftNothing and Inspect agree")
				return
			}
			found := f.Inspect()
			require.Equal(t, stepAfter(tc.want), stepAfter(found))
			require.Equal(t, tc.want.Panicked, found.Panicked)
			require.LessOrEqual(t, len(f.db.Events(fakedb.ConnValid))-before, 1, "the driver is asked once")
		})
	}
}

// stepAfter is what the pool does with a session.
func stepAfter(f session.Findings) pinning.Step {
	if f.Unusable {
		return pinning.Step{Discard: true}
	}
	return pinning.Next(pinning.Left{Status: f.Status, Effect: f.Effect, Valid: f.Valid, Doubt: f.Doubt})
}

// TestAResetEndsWhatWasFound: until then a doubt stays.
func TestAResetEndsWhatWasFound(t *testing.T) {
	f := open(t, setup{})
	failToBegin(f)
	require.NoError(t, f.exec("SET a = 1"))
	f.GiveBack()
	f.EndReset()
	require.True(t, f.Inspect().Doubt, "no reset has begun")
	f.BeginReset()
	require.False(t, f.Healthy() || f.Unusable())
	f.EndReset()
	require.True(t, f.Healthy())
	require.Equal(t, session.Findings{Valid: true}, f.Inspect())
	f.MarkUnusable()
	require.True(t, f.Unusable())
	f.BeginReset()
	f.EndReset()
	require.True(t, f.Unusable(), "for good")
}

func TestWhetherARollbackHasEndedTheTransactionIsCertainOrNot(t *testing.T) {
	for name, tc := range map[string]struct {
		with       setup
		before     func(*fixture)
		open, done bool
	}{
		"none was open":       {before: func(*fixture) {}, done: true},
		"one was":             {before: func(f *fixture) { _ = f.exec("BEGIN") }, open: true, done: true},
		"it had failed":       {before: func(f *fixture) { _ = f.exec("BEGIN"); f.server.failed = true }, open: true, done: true},
		"it cannot be ended":  {before: func(f *fixture) { _ = f.exec("BEGIN"); f.db.Fail(fakedb.ConnExecCtx, 1, errNo) }, open: true},
		"nobody can say":      {with: setup{blind: true}, before: func(f *fixture) { _ = f.exec("BEGIN") }},
		"there is always one": {before: func(f *fixture) { f.server.implicit = true }, open: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, tc.with)
			tc.before(f)
			open, done := f.Rollback(t.Context())
			require.Equal(t, tc.open, open)
			require.Equal(t, tc.done, done)
		})
	}
}

func TestTheEndOfATaskUndoesWhatItHasOpen(t *testing.T) {
	for name, tc := range map[string]struct {
		has      func(*fixture) *session.Rows
		open     bool
		panicked any
		unusable bool
	}{
		"nothing": {has: func(*fixture) *session.Rows { return nil }},
		"a transaction and rows": {open: true, has: func(f *fixture) *session.Rows {
			f.begin(f.t.Context())
			return f.query("SELECT 1", false)
		}},
		"savepoints": {open: true, has: func(f *fixture) *session.Rows { f.stack(3); return nil }},
		"a transaction that has not begun": {has: func(f *fixture) *session.Rows {
			f.deferBegin(f.t.Context())
			return nil
		}},
		"a transaction that is lost": {has: func(f *fixture) *session.Rows { f.begin(f.t.Context()); f.endsTx(); return nil }},
		"a driver that panics at its rows": {panicked: "boom", unusable: true, has: func(f *fixture) *session.Rows {
			f.panicked = true
			f.db.Inject(fakedb.Fault{Call: fakedb.RowsClose, Panic: "boom"})
			return f.query("SELECT 1", false)
		}},
		"a driver that panics at its transaction": {open: true, panicked: "boom", unusable: true, has: func(f *fixture) *session.Rows {
			f.panicked = true
			f.db.Inject(fakedb.Fault{Call: fakedb.TxRollback, Panic: "boom"})
			f.begin(f.t.Context())
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{inTask: true})
			rows := tc.has(f)
			open, panicked := f.Undo(errNo)
			require.Equal(t, tc.open, open)
			require.Equal(t, tc.panicked, panicked)
			require.Equal(t, tc.unusable, f.Unusable())
			require.Equal(t, tc.unusable, f.Inspect().Unusable)
			require.Nil(t, f.Rows())
			if rows != nil {
				require.Equal(t, errNo, rows.Lost())
			}
			if !tc.unusable {
				require.False(t, f.inTx())
			}
		})
	}
}

func TestCleaningBringsTheSessionBackToItsStateAtConnect(t *testing.T) {
	for name, tc := range map[string]struct {
		always bool
		kept   bool
		err    error
		effect dialects.Effect // that the dialect is given
		stays  bool            // the statement that was prepared
	}{
		"what texts show":             {kept: true, effect: dialects.Stateful, stays: true},
		"what no text shows as well":  {always: true, kept: true, effect: dialects.Stateful | dialects.Suspect, stays: true},
		"statements do not survive":   {effect: dialects.Stateful},
		"only a new session is clean": {err: dialects.ErrCannotClean, effect: dialects.Stateful, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{})
			require.NoError(t, f.exec("SET a = 1"))
			f.prepare("SELECT 1", 0)
			var given dialects.Effect
			f.server.clean = func(e dialects.Effect) (bool, error) { given = e; return tc.kept, tc.err }
			require.Equal(t, tc.err, f.Clean(t.Context(), tc.always))
			require.Equal(t, tc.effect, given)
			require.Equal(t, tc.stays, f.Statements().Len() > 0)
			require.Equal(t, 1, f.db.State().Prepared(), "it is not closed: the server has done that")
		})
	}
}

// TestASessionThatHasForgottenTooManyStatementsIsReplaced: the driver goes on counting them.
func TestASessionThatHasForgottenTooManyStatementsIsReplaced(t *testing.T) {
	f := open(t, setup{env: config.Config{StmtCache: 10_001}})
	f.server.clean = func(dialects.Effect) (bool, error) { return false, nil }
	for i := range 10_000 {
		f.Statements().Add(time.Duration(i).String(), 0, nil, true)
	}
	require.NoError(t, f.Clean(t.Context(), false))
	f.prepare("SELECT 1", 0)
	err := f.Clean(t.Context(), false)
	require.ErrorIs(t, err, dialects.ErrCannotClean)
	require.ErrorContains(t, err, "too many of its statements were forgotten")
}

func TestADeadIdleSessionIsFoundBeforeItIsLent(t *testing.T) {
	for name, tc := range map[string]struct {
		with   setup
		alive  dialects.Liveness
		before func(*fixture)
		err    error
		calls  []string
	}{
		"alive":                   {calls: []string{"Conn.ResetSession"}},
		"dead":                    {alive: dialects.Dead, err: session.ErrFoundDead},
		"unsure, and it answers":  {alive: dialects.Unsure, calls: []string{"Conn.Ping", "Conn.ResetSession"}},
		"unsure, and it does not": {alive: dialects.Unsure, before: func(f *fixture) { f.db.Fail(fakedb.ConnPing, 1, errNo) }, err: errNo, calls: []string{"Conn.Ping"}},
		"the driver gives it up":  {before: func(f *fixture) { f.db.Fail(fakedb.ConnReset, 1, driver.ErrBadConn) }, err: driver.ErrBadConn, calls: []string{"Conn.ResetSession"}},
		"the reset fails":         {before: func(f *fixture) { f.db.Fail(fakedb.ConnReset, 1, errNo) }, calls: []string{"Conn.ResetSession"}},
		"the reset only looks":    {with: setup{traits: dialects.Traits{ResetOnlyLooks: true}}},
		"there is no reset":       {with: setup{without: fakedb.SessionResetter}},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, tc.with)
			f.server.alive = tc.alive
			if tc.before != nil {
				tc.before(f)
			}
			before := f.events()
			require.Equal(t, tc.err, f.CheckIdle(t.Context()))
			require.Equal(t, tc.calls, f.calls(before))
		})
	}
}

func TestAPingTakesItsTimeAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t, setup{env: config.Config{CleanTimeout: time.Hour, PingTimeout: 3 * time.Second}})
		gate := f.db.Block(fakedb.ConnPing)
		since := time.Now()
		require.ErrorIs(t, f.PingServer(context.Background()), context.DeadlineExceeded)
		require.Equal(t, 3*time.Second, time.Since(since))
		gate.Open()
	})
}

func TestASessionThatCodeOfTheProgramHasHadIsLookedAt(t *testing.T) {
	for name, tc := range map[string]struct {
		with   setup
		does   func(*fixture)
		usable bool
	}{
		"nothing":                           {does: func(*fixture) {}, usable: true},
		"the connection is closed":          {with: setup{traits: dialects.Traits{StatusKnown: true}, without: fakedb.Validator}, does: func(f *fixture) { f.db.KillAll() }},
		"the driver says that it is closed": {does: func(f *fixture) { f.db.KillAll() }},
		"the driver cannot say":             {with: setup{without: fakedb.Validator}, does: func(f *fixture) { f.db.KillAll() }, usable: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, tc.with)
			tc.does(f)
			require.Equal(t, tc.usable, f.Left())
			require.Equal(t, !tc.usable, f.Unusable())
		})
	}
}

// TestWhichErrorsAreTheEndOfTheTransaction: what follows would run outside of it.
func TestWhichErrorsAreTheEndOfTheTransaction(t *testing.T) {
	alone := dialects.Traits{WritesAlone: true}
	for name, tc := range map[string]struct {
		traits   dialects.Traits
		said     dialects.Diagnosis
		effect   dialects.Effect
		before   func(*fixture)
		ends     bool
		unusable bool
	}{
		"an error that says nothing":        {},
		"one that ends it":                  {said: dialects.TxEnded, ends: true},
		"one that ends it if it writes":     {traits: alone, said: dialects.TxEnded},
		"the same, and it writes":           {traits: alone, said: dialects.TxEnded, effect: dialects.Writes, ends: true},
		"the server says that none is open": {before: func(f *fixture) { _ = f.exec("ROLLBACK") }, ends: true},
		"one that may, and it is open":      {said: dialects.TxDoubt},
		"one that may, and it is not":       {said: dialects.TxDoubt, before: func(f *fixture) { _ = f.exec("ROLLBACK") }, ends: true},
		"one that may, and nobody answers":  {said: dialects.TxDoubt, before: func(f *fixture) { f.db.Fail(fakedb.ConnPing, 1, errNo) }, ends: true, unusable: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{inTask: true, traits: tc.traits})
			f.begin(t.Context())
			if tc.before != nil {
				tc.before(f)
			}
			pings := len(f.db.Events(fakedb.ConnPing))
			require.Equal(t, tc.ends, f.EndsTx(tc.said, tc.effect))
			require.Equal(t, tc.unusable, f.Unusable())
			require.Equal(t, tc.said == dialects.TxDoubt, len(f.db.Events(fakedb.ConnPing)) > pings)
		})
	}
}

func TestALostConnectionIsNoticed(t *testing.T) {
	f := open(t, setup{traits: dialects.Traits{StatusKnown: true}})
	require.Equal(t, dialects.TxNone, f.CheckLost())
	require.True(t, f.Healthy())
	f.db.KillAll()
	require.Equal(t, dialects.TxLost, f.CheckLost())
	require.True(t, f.Unusable())
}
