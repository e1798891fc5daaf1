package pooldriver

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
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
		{"what no cleaning undoes", leftBehind{valid: true, status: dialects.TxNone, effect: dialects.Stateful | dialects.Indelible}, nextStep{discard: true}},
		{"what no cleaning undoes, reset=off", leftBehind{valid: true, status: dialects.TxNone, effect: dialects.Stateful | dialects.Indelible, reset: ResetOff}, nextStep{}},
		{"state was changed", leftBehind{valid: true, status: dialects.TxNone, effect: dialects.Stateful}, nextStep{clean: true}},
		{"state may have been changed", leftBehind{valid: true, status: dialects.TxNone, effect: dialects.Suspect}, nextStep{clean: true}},
		{"state changed in an open transaction", leftBehind{valid: true, status: dialects.TxOpen, effect: dialects.Stateful}, nextStep{rollback: true, clean: true}},
		{"reset=off keeps state", leftBehind{valid: true, status: dialects.TxNone, effect: dialects.Stateful, reset: ResetOff}, nextStep{}},
		{"reset=off keeps no transaction", leftBehind{valid: true, status: dialects.TxOpen, effect: dialects.Stateful, reset: ResetOff}, nextStep{rollback: true}},
		{"reset=always cleans after nothing", leftBehind{valid: true, status: dialects.TxNone, reset: ResetAlways}, nextStep{clean: true}},
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
