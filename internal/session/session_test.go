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
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

var errNo = errors.New("no")

// knowing is a dialect's session with every optional interface that session asks for.
type knowing struct {
	*server
	traits   dialects.Traits
	wrapped  driver.Conn
	role     error
	last     dialects.TxStatus
	severed  chan struct{}
	replaces bool // its database does not end with it
}

func (k *knowing) Traits() dialects.Traits         { return k.traits }
func (k *knowing) Unwrap() driver.Conn             { return k.wrapped }
func (k *knowing) Irreplaceable() bool             { return !k.replaces }
func (k *knowing) CheckRole(context.Context) error { return k.role }
func (k *knowing) LastTxStatus() dialects.TxStatus { return k.last }
func (k *knowing) Sever()                          { close(k.severed) }

// extendedBy returns a setup whose dialect's session is k.
func extendedBy(k *knowing) setup {
	k.severed = make(chan struct{})
	return setup{extend: func(s *server) dialects.Session {
		k.server = s
		return k
	}}
}

func TestTheDialectsSessionIsAskedOnceForWhatDoesNotChange(t *testing.T) {
	bare := open(t, setup{traits: dialects.Traits{BytesKept: true}})
	require.True(t, bare.Traits().BytesKept, "the template's")
	require.False(t, bare.Irreplaceable())
	require.Same(t, bare.server, bare.Server())
	require.Equal(t, bare.server.Conn(), bare.DriverConn())
	require.NoError(t, bare.CheckRole(t.Context()), "nothing is asked for")

	wrapped := &conn{}
	knows := &knowing{traits: dialects.Traits{WritesAlone: true}, wrapped: wrapped, role: errNo}
	with := extendedBy(knows)
	with.traits = dialects.Traits{BytesKept: true}
	f := open(t, with)
	require.Equal(t, knows.traits, *f.Traits(), "the session knows better than its template")
	require.True(t, f.Irreplaceable())
	require.Same(t, wrapped, f.DriverConn())
	require.Equal(t, errNo, f.CheckRole(t.Context()))
}

func TestTheTransactionsStateIsAskedForOnlyWhereThatIsFreeOrNeeded(t *testing.T) {
	for name, tc := range map[string]struct {
		known  bool
		before func(*fixture)
		asks   bool
	}{
		"a query":                            {before: func(f *fixture) { _ = f.exec("SELECT 1") }},
		"a query, every answer has it":       {known: true, before: func(*fixture) {}, asks: true},
		"a transaction's text":               {before: func(f *fixture) { _ = f.exec("BEGIN") }, asks: true},
		"a begin that failed":                {before: failToBegin, asks: true},
		"an error that ended a transaction ": {before: func(f *fixture) { f.begin(f.t.Context()); f.TxEnded() }, asks: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{traits: dialects.Traits{StatusKnown: tc.known}})
			tc.before(f)
			asked := f.server.asked
			status := f.TxStatus()
			require.Equal(t, tc.asks, f.server.asked > asked)
			require.Equal(t, tc.asks, status != dialects.TxUnknown)
		})
	}
}

func failToBegin(f *fixture) {
	f.db.Fail(fakedb.ConnBeginCtx, 1, errNo)
	_, err := f.Begin(f.t.Context(), newTx(f.t.Context()), false)
	require.Equal(f.t, errNo, err)
}

func TestUnsentComparesTheCountsBeforeAndAfterACall(t *testing.T) {
	for name, call := range map[string]func(*fixture) error{
		"exec":  func(f *fixture) error { return f.exec("SELECT 1") },
		"query": func(f *fixture) error { return f.query("SELECT 1", false).Close() },
		"ping":  func(f *fixture) error { return f.Ping(f.t.Context()) },
		"prepare": func(f *fixture) error {
			st, err := f.PrepareText(f.t.Context(), "SELECT 1", 0, true)
			f.Statements().Done(st)
			return err
		},
		"begin": func(f *fixture) error { f.begin(f.t.Context()); return nil },
		"savepoint": func(f *fixture) error {
			f.begin(f.t.Context())
			f.savepoint(f.t.Context())
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{counts: true})
			require.NoError(t, call(f))
			unsent, counted := f.Unsent()
			require.True(t, counted)
			require.False(t, unsent)
		})
	}
	f := open(t, setup{counts: true, without: fakedb.Pinger})
	require.NoError(t, f.exec("SELECT 1"))
	require.NoError(t, f.Ping(t.Context()), "the driver has nothing to send")
	unsent, counted := f.Unsent()
	require.True(t, unsent && counted)

	_, counted = open(t, setup{}).Unsent()
	require.False(t, counted)
}

func TestACallIsCountedUntilItReturns(t *testing.T) {
	f := open(t, setup{})
	require.Equal(t, errNo, f.Guard(func() error {
		require.Equal(t, 1, f.Calls())
		return errNo
	}))
	require.Zero(t, f.Calls())
	f.panics(func() { _ = f.Guard(func() error { panic("boom") }) })
	require.Equal(t, 1, f.Calls())
}

func TestADiagnosisIsKeptAndPassedOn(t *testing.T) {
	f := open(t, setup{})
	require.Zero(t, f.Diagnose(errNo))
	require.Empty(t, f.hears(), "an error that says nothing of the server")
	require.Equal(t, dialects.ServerLeaving, f.Diagnose(meansError(dialects.ServerLeaving)))
	require.Equal(t, []string{"diagnosed 10"}, f.hears())
	require.False(t, f.RoleDoubt())
	f.Diagnose(meansError(dialects.RoleDoubt))
	require.Equal(t, []string{"diagnosed 1000000"}, f.hears())
	require.True(t, f.RoleDoubt())
	f.EndRoleDoubt()
	require.False(t, f.RoleDoubt())
}

func TestLendingEndsWhatTheLastBorrowerHad(t *testing.T) {
	f := open(t, setup{blind: true})
	f.begin(t.Context())
	require.NoError(t, f.exec("SET a = 1"))
	require.True(t, f.Stateful())
	f.GiveBack()
	require.False(t, f.Begun())
	require.True(t, f.inTx(), "the server's affair")
	require.NoError(t, f.exec("COMMIT"))
	require.True(t, f.HiddenTx(), "for a text may also begin one")
	f.Lend(false)
	require.False(t, f.Stateful() || f.HiddenTx() || f.ByHand())
	require.True(t, f.Effect().Dirty(), "what has run counts until the reset")
}

func TestADeferredTransactionEndsWithItsBorrower(t *testing.T) {
	f := open(t, setup{})
	tx := newTx(t.Context())
	f.Defer(tx)
	f.Began(tx, time.Now())
	f.GiveBack()
	require.Nil(t, f.Deferred())
	require.False(t, f.Begun())
}

func TestSeveringNeedsNoLock(t *testing.T) {
	plain := open(t, setup{})
	require.False(t, plain.Severed())
	plain.Sever()
	require.True(t, plain.Severed(), "a dialect that cannot cut the connection")
	marked := &knowing{}
	f := open(t, extendedBy(marked))
	f.MarkSevered()
	require.True(t, f.Severed())
	select {
	case <-marked.severed:
		t.Fatal("the present call is left alone")
	default:
	}
	f.Sever()
	<-marked.severed
}

// TestTheProgramsOwnRollbackIsNotCut however long the server takes.
func TestTheProgramsOwnRollbackIsNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t, extendedBy(&knowing{replaces: true, traits: dialects.Traits{StatusKnown: true, TxKeepsContext: true}}))
		tx := f.begin(t.Context())
		gate := f.db.Block(fakedb.TxRollback)
		go func() {
			time.Sleep(time.Hour)
			gate.Open()
		}()
		require.NoError(t, tx.End())
		require.False(t, f.Unusable())
	})
}

// TestACallWithoutAContextIsSevered: a Rollback or a Close of rows that waits for a dead
// server ends when its connection is cut, and the session with it.
func TestACallWithoutAContextIsSevered(t *testing.T) {
	for name, tc := range map[string]struct {
		call fakedb.Call
		end  func(*fixture) error
	}{
		"rollback": {fakedb.TxRollback, func(f *fixture) error {
			ctx, cancel := context.WithCancel(f.t.Context())
			tx := f.begin(ctx)
			cancel()
			return tx.End()
		}},
		"rows of a task that has ended": {fakedb.RowsClose, func(f *fixture) error {
			f.query("SELECT 1", false).Abandon(errNo)
			return nil
		}},
	} {
		for _, slow := range []bool{false, true} {
			t.Run(name+map[bool]string{false: " in time", true: " too late"}[slow], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cut := &knowing{replaces: true, traits: dialects.Traits{StatusKnown: true}}
					f := open(t, extendedBy(cut))
					if slow {
						gate := f.db.Block(tc.call)
						go func() {
							<-cut.severed
							gate.Open()
						}()
					}
					require.NoError(t, tc.end(f))
					require.Equal(t, slow, f.Unusable(), "also where the call has just succeeded")
					synctest.Wait()
				})
			})
		}
	}
}
