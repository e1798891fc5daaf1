package replicas

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/randomtest"
)

// TestAProgramReadsItsOwnWritesOnReplicasThatAreBehind runs the same program twice: where its contexts tell which writes a
// read comes after, and where they do not.
func TestAProgramReadsItsOwnWritesOnReplicasThatAreBehind(t *testing.T) {
	eachServer(t, func(t *testing.T, s *stage) {
		seed := randomtest.Seed(t)
		db, c := s.open(t)
		other, _ := s.open(t)
		length := time.Duration(randomtest.Rounds(10, 300)) * time.Second
		stop := disturb(t, s, seed)

		without := &program{stage: s, db: db, other: other, ways: []way{withNothing}}
		without.run(t.Context(), t, seed, length, func() bool { return without.stale.Load() > 10 })
		t.Logf("without floors: %d reads, %d stale, %d transactions lost", without.reads.Load(), without.stale.Load(), without.lost.Load())
		require.Empty(t, without.errors)
		require.Positive(t, without.stale.Load(), "the replicas are never behind")

		before := c.Stats().Replica.Reads
		with := &program{stage: s, db: db, other: other, ways: []way{inTask, underReads, byToken}}
		with.run(t.Context(), t, seed, length, func() bool { return false })
		stop()
		reads := c.Stats().Replica.Reads
		for what := range reads {
			reads[what] -= before[what]
		}
		t.Logf("with floors: %d reads, %d stale, %d transactions lost; %v", with.reads.Load(), with.stale.Load(), with.lost.Load(), reads)
		require.Empty(t, with.errors)
		require.Zero(t, with.stale.Load())
		for _, what := range []pooldriver.ReplicaRead{pooldriver.ReplicaServed, pooldriver.ReplicaWaited, pooldriver.ReplicaBehind, pooldriver.ReplicaDead} {
			require.Positive(t, reads[what], what)
		}
	})
}
