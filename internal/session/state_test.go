package session

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryEventInEveryState is the table of the state machine: a row for each state, a
// column for each event, those included that cannot come.
func TestEveryEventInEveryState(t *testing.T) {
	states := []string{"healthy", "uncertain", "transaction gone", "resetting", "unusable"}
	events := []string{"transaction's call failed", "transaction ended", "transaction forgotten", "lost", "reset begun", "reset done"}
	table := [][]health{
		healthy:   {txCallFailed: uncertain, txEnded: txGone, txForgotten: healthy, lost: unusable, resetBegun: resetting, resetDone: healthy},
		uncertain: {txCallFailed: uncertain, txEnded: txGone, txForgotten: uncertain, lost: unusable, resetBegun: resetting, resetDone: uncertain},
		txGone:    {txCallFailed: txGone, txEnded: txGone, txForgotten: uncertain, lost: unusable, resetBegun: resetting, resetDone: txGone},
		resetting: {txCallFailed: resetting, txEnded: resetting, txForgotten: resetting, lost: unusable, resetBegun: resetting, resetDone: healthy},
		unusable:  {txCallFailed: unusable, txEnded: unusable, txForgotten: unusable, lost: unusable, resetBegun: unusable, resetDone: unusable},
	}
	require.Len(t, table, int(unusable)+1)
	for from, row := range table {
		require.Len(t, row, int(resetDone)+1)
		for e, to := range row {
			t.Run(fmt.Sprintf("%s, %s", states[from], events[e]), func(t *testing.T) {
				require.Equal(t, to, health(from).after(event(e)))
			})
		}
	}
}
