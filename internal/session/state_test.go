package session

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryEventInEveryState is the table of the state machine: a row for each state, a
// column for each event, those included that cannot come.
func TestEveryEventInEveryState(t *testing.T) {
	states := []string{"healthy", "uncertain", "transaction gone", "resetting", "unusable", "closed"}
	events := []string{"transaction's call failed", "transaction ended", "transaction forgotten", "lost", "reset begun", "reset done", "closed"}
	table := [][]health{
		healthy:   {txCallFailed: uncertain, txEnded: txGone, txForgotten: healthy, lost: unusable, resetBegun: resetting, resetDone: healthy, sessionClosed: closed},
		uncertain: {txCallFailed: uncertain, txEnded: txGone, txForgotten: uncertain, lost: unusable, resetBegun: resetting, resetDone: uncertain, sessionClosed: closed},
		txGone:    {txCallFailed: txGone, txEnded: txGone, txForgotten: uncertain, lost: unusable, resetBegun: resetting, resetDone: txGone, sessionClosed: closed},
		resetting: {txCallFailed: resetting, txEnded: resetting, txForgotten: resetting, lost: unusable, resetBegun: resetting, resetDone: healthy, sessionClosed: closed},
		unusable:  {txCallFailed: unusable, txEnded: unusable, txForgotten: unusable, lost: unusable, resetBegun: unusable, resetDone: unusable, sessionClosed: closed},
		closed:    {txCallFailed: closed, txEnded: closed, txForgotten: closed, lost: closed, resetBegun: closed, resetDone: closed, sessionClosed: closed},
	}
	require.Len(t, table, int(closed)+1)
	for from, row := range table {
		require.Len(t, row, int(sessionClosed)+1)
		for e, to := range row {
			t.Run(fmt.Sprintf("%s, %s", states[from], events[e]), func(t *testing.T) {
				require.Equal(t, to, health(from).after(event(e)))
			})
		}
	}
}
