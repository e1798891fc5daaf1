package waitgraph

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheErrorNamesTheHoldersAndWhatSparesTheWait(t *testing.T) {
	t.Parallel()
	cycle, _ := (&Snapshot[string]{Moves: []uint64{0}, Holders: holders("a", "b"), Waiters: []Waiter[string]{waiter(1, true, "a", "b")}}).Find()
	require.NotNil(t, cycle)
	err := error(&Error{Cycle: cycle, Target: "db", Advice: "wait less"})
	require.ErrorIs(t, err, ErrDeadlock)
	require.EqualError(t, err, "pooldriver: no connection to db: every connection is held by a task that waits for one more, and none of these tasks has gone on for pool_deadlock_after; wait less (held by a, b)")
	large := errors.New("too large")
	err = &Error{Cycle: cycle, Target: "db", Advice: "wait less", TooLarge: large}
	require.ErrorIs(t, err, large)
	require.ErrorContains(t, err, "(held by a, b); too large")
}

func TestTheAdviceFitsTheSituation(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]Situation{
		"close rows, transactions and *sql.Conns before another connection is needed":               {},
		"close the rows that the task has open before its next statement, raise pool_nested_buffer": {RowsTooLarge: true, InTask: true},
		"run the statement in the task around it":                                                   {InTask: true},
	} {
		require.Equal(t, want+", or raise pool_max_conns", s.Advice())
	}
}

func TestAQueueNumbersThoseWhoWaitInTheirOrder(t *testing.T) {
	t.Parallel()
	var q Queue[string]
	q.Join("a")
	q.Join("b")
	q.Join("c")
	q.Leave("b")
	before := q.All()
	q.Join("b")
	q.Leave("unknown")
	require.Equal(t, []Queued[string]{{1, "a"}, {3, "c"}}, before)
	require.Equal(t, []Queued[string]{{1, "a"}, {3, "c"}, {4, "b"}}, q.All())
}
