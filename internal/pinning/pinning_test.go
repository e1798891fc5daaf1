package pinning_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/pinning"
)

func TestNextDecidesWhatAConnectionGoesThroughBeforeItIsLentAgain(t *testing.T) {
	for _, tc := range []struct {
		name string
		left pinning.Left
		want pinning.Step
	}{
		{"clean, asked of the server", pinning.Left{Valid: true, Status: dialects.TxNone}, pinning.Step{}},
		{"clean, server cannot be asked", pinning.Left{Valid: true, Status: dialects.TxUnknown}, pinning.Step{}},
		{"the server says a transaction is open", pinning.Left{Valid: true, Status: dialects.TxOpen}, pinning.Step{Rollback: true}},
		{"the server says a transaction has failed", pinning.Left{Valid: true, Status: dialects.TxFailed}, pinning.Step{Rollback: true}},
		{"BEGIN ran but the server says it has ended", pinning.Left{Valid: true, Status: dialects.TxNone, Effect: dialects.TxControl}, pinning.Step{}},
		{"BEGIN ran and the server cannot be asked", pinning.Left{Valid: true, Effect: dialects.TxControl}, pinning.Step{Rollback: true}},
		{"a Commit failed and the server cannot be asked", pinning.Left{Valid: true, Doubt: true}, pinning.Step{Rollback: true}},
		{"a Commit failed and the last answer says it is over", pinning.Left{Valid: true, Status: dialects.TxNone, Doubt: true}, pinning.Step{Rollback: true}},
		{"what no cleaning undoes", pinning.Left{Valid: true, Status: dialects.TxNone, Effect: dialects.Stateful | dialects.Unresettable}, pinning.Step{Discard: true}},
		{"what no cleaning undoes, reset=off", pinning.Left{Valid: true, Status: dialects.TxNone, Effect: dialects.Stateful | dialects.Unresettable, Mode: pinning.Off}, pinning.Step{}},
		{"its connection is the database, state", pinning.Left{Valid: true, Whole: true, Status: dialects.TxNone, Effect: dialects.Stateful | dialects.Unresettable}, pinning.Step{}},
		{"its connection is the database, reset=always", pinning.Left{Valid: true, Whole: true, Status: dialects.TxNone, Mode: pinning.Always}, pinning.Step{}},
		{"its connection is the database, and a transaction is open", pinning.Left{Valid: true, Whole: true, Status: dialects.TxOpen, Effect: dialects.Stateful}, pinning.Step{Rollback: true}},
		{"its connection is the database, and lost", pinning.Left{Valid: true, Whole: true, Status: dialects.TxLost}, pinning.Step{Discard: true}},
		{"state was changed", pinning.Left{Valid: true, Status: dialects.TxNone, Effect: dialects.Stateful}, pinning.Step{Clean: true}},
		{"state may have been changed", pinning.Left{Valid: true, Status: dialects.TxNone, Effect: dialects.Suspect}, pinning.Step{Clean: true}},
		{"state changed in an open transaction", pinning.Left{Valid: true, Status: dialects.TxOpen, Effect: dialects.Stateful}, pinning.Step{Rollback: true, Clean: true}},
		{"reset=off keeps state", pinning.Left{Valid: true, Status: dialects.TxNone, Effect: dialects.Stateful, Mode: pinning.Off}, pinning.Step{}},
		{"reset=off keeps no transaction", pinning.Left{Valid: true, Status: dialects.TxOpen, Effect: dialects.Stateful, Mode: pinning.Off}, pinning.Step{Rollback: true}},
		{"reset=always cleans after nothing", pinning.Left{Valid: true, Status: dialects.TxNone, Mode: pinning.Always}, pinning.Step{Clean: true}},
		{"autocommit is off", pinning.Left{Valid: true, Status: dialects.TxImplicit, Effect: dialects.Stateful | dialects.TxControl}, pinning.Step{Rollback: true, Clean: true}},
		{"autocommit is off, though no text said so", pinning.Left{Valid: true, Status: dialects.TxImplicit}, pinning.Step{Rollback: true}},
		{"autocommit is off, reset=off", pinning.Left{Valid: true, Status: dialects.TxImplicit, Effect: dialects.Stateful, Mode: pinning.Off}, pinning.Step{Rollback: true}},
		{"lost", pinning.Left{Valid: true, Status: dialects.TxLost, Effect: dialects.Stateful}, pinning.Step{Discard: true}},
		{"the driver says invalid", pinning.Left{Valid: false}, pinning.Step{Discard: true}},
	} {
		require.Equal(t, tc.want, pinning.Next(tc.left), tc.name)
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
		want   pinning.Pin
	}{
		{name: "nothing", status: dialects.TxNone, want: pinning.Conn},
		{name: "nothing, and nobody can be asked", want: pinning.Conn},
		{name: "BeginTx", begun: true, status: dialects.TxOpen, want: pinning.Tx},
		{name: "BeginTx, and nobody can be asked", begun: true, want: pinning.Tx},
		{name: "BeginTx, and the server says that it is over", begun: true, status: dialects.TxNone, want: pinning.Tx},
		{name: "BeginTx, and the connection is lost", begun: true, status: dialects.TxLost, want: pinning.Tx},
		{name: "BeginTx on a session with state", begun: true, status: dialects.TxOpen, effect: remaining, want: pinning.Tx},
		{name: "BEGIN", status: dialects.TxOpen, effect: dialects.TxControl, hidden: true, want: pinning.RawTx},
		{name: "a transaction that no text showed", status: dialects.TxOpen, want: pinning.RawTx},
		{name: "a transaction that has failed", status: dialects.TxFailed, effect: dialects.TxControl, want: pinning.RawTx},
		{name: "BEGIN on a session with state", status: dialects.TxOpen, effect: remaining, want: pinning.RawTx},
		{name: "BEGIN, and nobody can be asked", effect: dialects.TxControl, hidden: true, want: pinning.RawTx},
		{name: "CALL, and nobody can be asked", effect: dialects.Suspect | dialects.TxControl, want: pinning.Conn},
		{name: "BEGIN and COMMIT", status: dialects.TxNone, effect: dialects.TxControl, hidden: true, want: pinning.Conn},
		{name: "BEGIN, and the connection is lost", status: dialects.TxLost, effect: dialects.TxControl, hidden: true, want: pinning.Conn},
		{name: "SET", status: dialects.TxNone, effect: dialects.Stateful, want: pinning.State},
		{name: "SET, and nobody can be asked", effect: dialects.Stateful, want: pinning.State},
		{name: "what no cleaning undoes", status: dialects.TxNone, effect: dialects.Unresettable, want: pinning.State},
		{name: "autocommit is off", status: dialects.TxImplicit, effect: dialects.Stateful | dialects.TxControl, want: pinning.RawTx},
		{name: "autocommit is off, though no text said so", status: dialects.TxImplicit, want: pinning.RawTx},
		{name: "what may have left something", status: dialects.TxNone, effect: anything, want: pinning.Conn},
	} {
		f := pinning.Facts{Begun: tc.begun, Status: tc.status, Effect: tc.effect, Hidden: tc.hidden}
		require.Equal(t, tc.want, pinning.Of(f), tc.name)
		f.Rows = true
		require.Equal(t, max(tc.want, pinning.Rows), pinning.Of(f), tc.name)
		f.Raw = true
		require.Equal(t, pinning.Raw, pinning.Of(f), tc.name)
	}
}

func TestWhichPinsKeepAConnectionAtItsTask(t *testing.T) {
	for p := pinning.None; p <= pinning.Raw; p++ {
		require.Equal(t, p >= pinning.State, p.KeepsTask(), p.String())
		require.Equal(t, p == pinning.RawTx || p == pinning.Tx, p.InTx(), p.String())
		require.Equal(t, p == pinning.None, p.String() == "")
	}
}
