package pooldriver

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/session"
)

func TestSettleDecidesWhatAConnectionGoesThroughBeforeItIsLentAgain(t *testing.T) {
	for _, tc := range []struct {
		name string
		left leftBehind
		want nextStep
	}{
		{"clean, asked of the server", leftBehind{valid: true, status: dialects.TxNone}, nextStep{}},
		{"clean, server cannot be asked", leftBehind{valid: true, status: dialects.TxUnknown}, nextStep{}},
		{"the server says a transaction is open", leftBehind{valid: true, status: dialects.TxOpen}, nextStep{rollback: true}},
		{"the server says a transaction has failed", leftBehind{valid: true, status: dialects.TxFailed}, nextStep{rollback: true}},
		{"BEGIN ran but the server says it has ended", leftBehind{valid: true, status: dialects.TxNone, effect: dialects.TxControl}, nextStep{}},
		{"BEGIN ran and the server cannot be asked", leftBehind{valid: true, effect: dialects.TxControl}, nextStep{rollback: true}},
		{"a Commit failed and the server cannot be asked", leftBehind{valid: true, doubt: true}, nextStep{rollback: true}},
		{"a Commit failed and the last answer says it is over", leftBehind{valid: true, status: dialects.TxNone, doubt: true}, nextStep{rollback: true}},
		{"what no cleaning undoes", leftBehind{valid: true, status: dialects.TxNone, effect: dialects.Stateful | dialects.Unresettable}, nextStep{discard: true}},
		{"what no cleaning undoes, reset=off", leftBehind{valid: true, status: dialects.TxNone, effect: dialects.Stateful | dialects.Unresettable, reset: ResetOff}, nextStep{}},
		{"its connection is the database, state", leftBehind{valid: true, whole: true, status: dialects.TxNone, effect: dialects.Stateful | dialects.Unresettable}, nextStep{}},
		{"its connection is the database, reset=always", leftBehind{valid: true, whole: true, status: dialects.TxNone, reset: ResetAlways}, nextStep{}},
		{"its connection is the database, and a transaction is open", leftBehind{valid: true, whole: true, status: dialects.TxOpen, effect: dialects.Stateful}, nextStep{rollback: true}},
		{"its connection is the database, and lost", leftBehind{valid: true, whole: true, status: dialects.TxLost}, nextStep{discard: true}},
		{"state was changed", leftBehind{valid: true, status: dialects.TxNone, effect: dialects.Stateful}, nextStep{clean: true}},
		{"state may have been changed", leftBehind{valid: true, status: dialects.TxNone, effect: dialects.Suspect}, nextStep{clean: true}},
		{"state changed in an open transaction", leftBehind{valid: true, status: dialects.TxOpen, effect: dialects.Stateful}, nextStep{rollback: true, clean: true}},
		{"reset=off keeps state", leftBehind{valid: true, status: dialects.TxNone, effect: dialects.Stateful, reset: ResetOff}, nextStep{}},
		{"reset=off keeps no transaction", leftBehind{valid: true, status: dialects.TxOpen, effect: dialects.Stateful, reset: ResetOff}, nextStep{rollback: true}},
		{"reset=always cleans after nothing", leftBehind{valid: true, status: dialects.TxNone, reset: ResetAlways}, nextStep{clean: true}},
		{"autocommit is off", leftBehind{valid: true, status: dialects.TxImplicit, effect: dialects.Stateful | dialects.TxControl}, nextStep{rollback: true, clean: true}},
		{"autocommit is off, though no text said so", leftBehind{valid: true, status: dialects.TxImplicit}, nextStep{rollback: true}},
		{"autocommit is off, reset=off", leftBehind{valid: true, status: dialects.TxImplicit, effect: dialects.Stateful, reset: ResetOff}, nextStep{rollback: true}},
		{"lost", leftBehind{valid: true, status: dialects.TxLost, effect: dialects.Stateful}, nextStep{discard: true}},
		{"the driver says invalid", leftBehind{valid: false}, nextStep{discard: true}},
	} {
		require.Equal(t, tc.want, settle(tc.left), tc.name)
	}
}

func TestJudgeRetriesOnlyWhatTheServerCannotHaveExecuted(t *testing.T) {
	for _, tc := range []struct {
		name string
		o    outcome
		want verdict
	}{
		{"an ordinary error", outcome{executes: true, first: true}, verdict{}},
		{"ErrBadConn before anything was sent", outcome{badConn: true, executes: true, unsent: true, first: true}, verdict{retry: true}},
		{"ErrBadConn after the statement was sent", outcome{badConn: true, executes: true, first: true}, verdict{unclear: true}},
		{"ErrBadConn of a driver whose word is all there is", outcome{badConn: true, executes: true, trusted: true, first: true}, verdict{}},
		{"lost before anything was sent, another error", outcome{lost: true, executes: true, unsent: true, first: true}, verdict{retry: true}},
		{"lost after the statement was sent, another error", outcome{lost: true, executes: true, first: true}, verdict{}},
		{"the server had ended the idle connection before", outcome{lost: true, executes: true, wasIdle: true, first: true}, verdict{retry: true}},
		{"the same, in a session that has something to lose", outcome{lost: true, executes: true, wasIdle: true}, verdict{}},
		{"a prepare may be sent twice", outcome{badConn: true, first: true}, verdict{retry: true}},
		{"a begin on a lost connection may be sent twice", outcome{lost: true, first: true}, verdict{retry: true}},
		{"not the first of its checkout", outcome{badConn: true, executes: true, unsent: true}, verdict{}},
		{"not the first of its checkout and sent", outcome{badConn: true, executes: true}, verdict{unclear: true}},
		{"the second try", outcome{badConn: true, executes: true, unsent: true, first: true, retried: true}, verdict{}},
		{"the caller has gone", outcome{lost: true, executes: true, unsent: true, first: true, expired: true}, verdict{}},
	} {
		require.Equal(t, tc.want, judge(tc.o), tc.name)
	}
}

func TestWhatMakesAConnectionItsTasksSession(t *testing.T) {
	const (
		anything  = dialects.Suspect | dialects.TxControl | dialects.ForgetPrepared | dialects.NamedPrepared | dialects.Writes
		remaining = dialects.Stateful | dialects.Unresettable
	)
	for _, tc := range []struct {
		name   string
		begun  bool
		status dialects.TxStatus
		effect dialects.Effect
		hidden bool
		want   pin
	}{
		{name: "nothing", status: dialects.TxNone, want: pinNone},
		{name: "nothing, and nobody can be asked", want: pinNone},
		{name: "BeginTx", begun: true, status: dialects.TxOpen, want: pinTx},
		{name: "BeginTx, and nobody can be asked", begun: true, want: pinTx},
		{name: "BeginTx, and the server says that it is over", begun: true, status: dialects.TxNone, want: pinTx},
		{name: "BeginTx, and the connection is lost", begun: true, status: dialects.TxLost, want: pinTx},
		{name: "BeginTx on a session with state", begun: true, status: dialects.TxOpen, effect: remaining, want: pinTx},
		{name: "BEGIN", status: dialects.TxOpen, effect: dialects.TxControl, hidden: true, want: pinRawTx},
		{name: "a transaction that no text showed", status: dialects.TxOpen, want: pinRawTx},
		{name: "a transaction that has failed", status: dialects.TxFailed, effect: dialects.TxControl, want: pinRawTx},
		{name: "BEGIN on a session with state", status: dialects.TxOpen, effect: remaining, want: pinRawTx},
		{name: "BEGIN, and nobody can be asked", effect: dialects.TxControl, hidden: true, want: pinRawTx},
		{name: "CALL, and nobody can be asked", effect: dialects.Suspect | dialects.TxControl, want: pinNone},
		{name: "BEGIN and COMMIT", status: dialects.TxNone, effect: dialects.TxControl, hidden: true, want: pinNone},
		{name: "BEGIN, and the connection is lost", status: dialects.TxLost, effect: dialects.TxControl, hidden: true, want: pinNone},
		{name: "SET", status: dialects.TxNone, effect: dialects.Stateful, want: pinState},
		{name: "SET, and nobody can be asked", effect: dialects.Stateful, want: pinState},
		{name: "what no cleaning undoes", status: dialects.TxNone, effect: dialects.Unresettable, want: pinState},
		{name: "autocommit is off", status: dialects.TxImplicit, effect: dialects.Stateful | dialects.TxControl, want: pinRawTx},
		{name: "autocommit is off, though no text said so", status: dialects.TxImplicit, want: pinRawTx},
		{name: "what may have left something", status: dialects.TxNone, effect: anything, want: pinNone},
	} {
		require.Equal(t, tc.want, pinOf(tc.begun, tc.status, tc.effect, tc.hidden), tc.name)
	}
}

func TestAConnectionStaysAtItsTaskWhileItIsUsedOrItsSession(t *testing.T) {
	require.False(t, pins{}.pinned())
	require.True(t, pins{checkouts: 1}.pinned())
	for _, p := range []pin{pinTx, pinRawTx, pinState} {
		require.True(t, pins{pin: p}.pinned(), pinNames[p])
	}
}

func TestWhichStatementsNeedTheSessionAndWhichLeaveNothing(t *testing.T) {
	for _, tc := range []struct {
		effect  dialects.Effect
		needs   bool // the session, because they begin or change one
		nothing bool // is left of them but data
	}{
		{effect: dialects.Clean, nothing: true},
		{effect: dialects.Writes, nothing: true},
		{effect: dialects.Suspect},
		{effect: dialects.Suspect | dialects.Writes},
		{effect: dialects.Stateful, needs: true},
		{effect: dialects.Stateful | dialects.Writes, needs: true},
		{effect: dialects.TxControl, needs: true},
		{effect: dialects.Suspect | dialects.TxControl, needs: true},
		{effect: dialects.ForgetPrepared, needs: true},
		{effect: dialects.NamedPrepared, needs: true},
		{effect: dialects.Unresettable, needs: true},
	} {
		require.Equal(t, tc.needs, session.NeedsSession(tc.effect), tc.effect.String())
		require.Equal(t, tc.nothing, session.LeavesNothing(tc.effect), tc.effect.String())
	}
}
