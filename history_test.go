package pooldriver

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/judge"
)

func TestAMomentSaysWhetherTheConnectorWasUsed(t *testing.T) {
	t.Parallel()
	failed := map[AcquireFailure]uint64{AcquireTimeout: 1}
	require.False(t, usedSince(Moment{}, Moment{}))
	require.True(t, usedSince(Moment{InUse: 1}, Moment{}))
	require.True(t, usedSince(Moment{Waiting: 1}, Moment{}))
	require.True(t, usedSince(Moment{Moves: 2}, Moment{}), "something was used meanwhile")
	require.True(t, usedSince(Moment{DialErrors: 1}, Moment{}))
	require.True(t, usedSince(Moment{AcquireFailures: failed}, Moment{}))
	require.True(t, usedSince(Moment{Reads: map[ReplicaRead]uint64{ReplicaDead: 1}}, Moment{}))
	require.False(t, usedSince(Moment{Moves: 2, AcquireFailures: failed}, Moment{Moves: 2, AcquireFailures: failed}))
}

// TestAVerdictThatBecomesBadIsInTheLogOnce: and again when it was well for a minute.
func TestAVerdictThatBecomesBadIsInTheLogOnce(t *testing.T) {
	bad := []judge.Verdict{{Rule: "lock", Text: "5 statements wait for a lock.", Level: judge.Bad}, {Rule: "waits", Text: "One more.", Level: 1}}
	judge.Judge = func(any) []judge.Verdict { return bad }
	t.Cleanup(func() { judge.Judge = nil })
	var log bytes.Buffer
	c := &Connector{}
	c.config.Logger = slog.New(slog.NewTextHandler(&log, nil))
	for range 3 {
		c.verdicts.tell(c)
	}
	require.Equal(t, 1, strings.Count(log.String(), "5 statements wait for a lock."))
	require.Contains(t, log.String(), "rule=lock")
	require.NotContains(t, log.String(), "One more.")
	bad = nil
	c.verdicts.tell(c)
	c.verdicts.bad["lock"] = c.verdicts.bad["lock"].Add(-2 * time.Minute)
	bad = []judge.Verdict{{Rule: "lock", Text: "Again.", Level: judge.Bad}}
	c.verdicts.tell(c)
	require.Contains(t, log.String(), "Again.")
}
