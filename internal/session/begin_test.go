package session

import (
	"context"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type tagKey struct{}

func TestATransactionsContextOutlivesItsCancellationForTheRollback(t *testing.T) {
	parent, cancel := context.WithCancel(context.WithValue(t.Context(), tagKey{}, "tag"))
	kept := newTxContext(parent)
	cancel()
	require.ErrorIs(t, kept.Err(), context.Canceled)
	stop := kept.release(time.Minute)
	require.NoError(t, kept.Err())
	require.Equal(t, "tag", kept.Value(tagKey{}))
	_, bounded := kept.Deadline()
	require.True(t, bounded)
	stop()
	require.ErrorIs(t, kept.Err(), context.Canceled)
}

// moody stands in for a driver's rows whose Columns panics.
type moody struct{ driver.Rows }

func (moody) Columns() []string { panic("boom") }

// TestAPanicOfColumnsIsNotTheQuerys: database/sql survives the one and not the other.
func TestAPanicOfColumnsIsNotTheQuerys(t *testing.T) {
	require.Nil(t, columnsOf(moody{}))
	require.PanicsWithValue(t, "boom", func() { (&Rows{real: moody{}}).Columns() }, "they are asked again")
}
