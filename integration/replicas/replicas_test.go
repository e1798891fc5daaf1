package replicas

import (
	"testing"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

func TestReadsOnReplicas(t *testing.T) {
	eachEngine(t, func(t *testing.T, s *stage) {
		t.Run("counters", func(t *testing.T) { testCounters(t, s) })
		t.Run("no value goes back", func(t *testing.T) { testNoValueGoesBack(t, s) })
		t.Run("every way", func(t *testing.T) { testEveryWay(t, s) })
		t.Run("reads at once", func(t *testing.T) { testReadsAtOnceDoNotGoBack(t, s) })
		t.Run("two processes", func(t *testing.T) { testTwoProcesses(t, s) })
		t.Run("replicas that cannot serve", func(t *testing.T) { testReplicasThatCannotServe(t, s) })
		if s.Primary.Engine != testbed.Postgres {
			t.Run("nothing is written on a replica", func(t *testing.T) { testNothingIsWrittenOnAReplica(t, s) })
			t.Run("what a statement has left", func(t *testing.T) { testWhatAStatementHasLeftStays(t, s) })
		}
		t.Run("late", func(t *testing.T) { testLate(t, s) })
		t.Run("a cable is pulled", func(t *testing.T) { testACableIsPulled(t, s, false) })
		t.Run("a cable is pulled while nobody reads", func(t *testing.T) { testACableIsPulled(t, s, true) })
	})
}
