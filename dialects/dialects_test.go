package dialects

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryTxStatusHasItsName(t *testing.T) {
	for status, want := range map[TxStatus]string{
		TxUnknown: "unknown", TxNone: "none", TxOpen: "open", TxImplicit: "implicit", TxFailed: "failed", TxLost: "lost",
		TxLost + 1: "invalid",
	} {
		require.Equal(t, want, status.String())
	}
}

func TestEveryEffectHasItsName(t *testing.T) {
	for effect, want := range map[Effect]string{
		Clean: "clean", Suspect: "suspect", Stateful: "stateful", TxControl: "tx-control", ForgetPrepared: "forget-prepared",
		NamedPrepared: "named-prepared", Unresettable: "unresettable", Writes: "writes",
		Writes | Stateful: "stateful|writes",
	} {
		require.Equal(t, want, effect.String())
	}
}

func TestAStatementThatWritesLeavesItsSessionClean(t *testing.T) {
	require.False(t, Writes.Dirty())
	require.True(t, (Writes | Suspect).Dirty())
}
