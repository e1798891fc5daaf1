package waitgraph

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

type name string

func (n name) String() string { return string(n) }

func holders(who ...string) (all []Holder[string]) {
	for _, w := range who {
		all = append(all, Holder[string]{Who: w, Name: name(w)})
	}
	return all
}

func waiter(number uint64, victim bool, who ...string) Waiter[string] {
	return Waiter[string]{Number: number, For: who, Victim: victim}
}

func TestACycleIsClosedWhenEveryHolderWaits(t *testing.T) {
	for title, tc := range map[string]struct {
		holders []Holder[string]
		waiters []Waiter[string]
		closed  bool
		victim  uint64
	}{
		"nobody holds":                 {waiters: []Waiter[string]{waiter(1, true, "a")}},
		"nobody waits":                 {holders: holders("a", "b")},
		"one of two waits":             {holders: holders("a", "b"), waiters: []Waiter[string]{waiter(1, true, "a")}},
		"one waits who holds nothing":  {holders: holders("a"), waiters: []Waiter[string]{waiter(1, true, "x")}},
		"both wait":                    {holders: holders("a", "b"), waiters: []Waiter[string]{waiter(1, true, "a"), waiter(2, true, "b")}, closed: true, victim: 2},
		"one holds both":               {holders: holders("a", "a"), waiters: []Waiter[string]{waiter(1, true, "a")}, closed: true, victim: 1},
		"a task inside waits for both": {holders: holders("a", "b"), waiters: []Waiter[string]{waiter(1, true, "x", "a", "b")}, closed: true, victim: 1},
		"a bystander comes last":       {holders: holders("a"), waiters: []Waiter[string]{waiter(1, true, "a"), waiter(2, true, "x")}, closed: true, victim: 1},
		"the last may not be told":     {holders: holders("a", "b"), waiters: []Waiter[string]{waiter(1, true, "a"), waiter(2, false, "b")}, closed: true, victim: 1},
		"nobody may be told":           {holders: holders("a"), waiters: []Waiter[string]{waiter(1, false, "a")}, closed: true},
	} {
		t.Run(title, func(t *testing.T) {
			found, victim := (&Snapshot[string]{Moves: []uint64{0}, Holders: tc.holders, Waiters: tc.waiters}).Find()
			require.Equal(t, tc.closed, found != nil)
			require.Equal(t, tc.victim, victim)
		})
	}
}

// look is what a snapshot at a time gives, with so many moves and operations.
func TestACycleLeadsThroughSeveralPools(t *testing.T) {
	type pools map[int]string // the holder of the one connection of each
	type waits map[string]int
	for title, tc := range map[string]struct {
		held   pools
		waits  waits
		cycle  []int
		victim uint64
	}{
		"each has what the other one wants":  {pools{0: "a", 1: "b"}, waits{"a": 1, "b": 0}, []int{0, 1}, 2},
		"one of them does not wait":          {pools{0: "a", 1: "b"}, waits{"a": 1}, nil, 0},
		"the pool has a connection to give":  {pools{0: "a"}, waits{"a": 1}, nil, 0},
		"one has both and waits for a third": {pools{0: "a", 1: "a"}, waits{"a": 2}, nil, 0},
		"nobody wants what a third one has":  {pools{0: "a", 1: "b", 2: "c"}, waits{"a": 1, "b": 0, "c": 0}, []int{0, 1}, 2},
		"in a ring":                          {pools{0: "a", 1: "b", 2: "c"}, waits{"a": 1, "b": 2, "c": 0}, []int{0, 1, 2}, 3},
		"in itself":                          {pools{0: "a", 1: "b"}, waits{"a": 0}, []int{0}, 1},
	} {
		t.Run(title, func(t *testing.T) {
			s := Snapshot[string]{Moves: make([]uint64, 3)}
			for pool, who := range tc.held {
				s.Holders = append(s.Holders, Holder[string]{Who: who, Pool: pool, Name: name(who)})
			}
			for i, who := range []string{"a", "b", "c"} {
				if pool, ok := tc.waits[who]; ok {
					s.Waiters = append(s.Waiters, Waiter[string]{Number: uint64(i + 1), Pool: pool, For: []string{who}, Victim: true})
				}
			}
			found, victim := s.Find()
			var cycle []int
			for i := range s.Moves {
				if found != nil && found.Has(i) {
					cycle = append(cycle, i)
				}
			}
			require.Equal(t, tc.cycle, cycle)
			require.Equal(t, tc.victim, victim)
		})
	}
}

func look(at time.Time, moves, operations uint64, waiters ...Waiter[string]) *Cycle {
	h := holders("a")
	h[0].Operations = operations
	found, _ := (&Snapshot[string]{At: at, Moves: []uint64{moves}, Holders: h, Waiters: waiters}).Find()
	return found
}

func TestADeadlockIsACycleInWhichNothingMoves(t *testing.T) {
	const after = time.Second
	start := time.Now()
	a, b := waiter(1, true, "a"), waiter(2, true, "a")
	for title, tc := range map[string]struct {
		then  func(at time.Time) *Cycle
		again bool
	}{
		"nothing moves":          {func(at time.Time) *Cycle { return look(at, 1, 1, a) }, true},
		"a connection was lent":  {func(at time.Time) *Cycle { return look(at, 2, 1, a) }, false},
		"a statement ran":        {func(at time.Time) *Cycle { return look(at, 1, 2, a) }, false},
		"another waiter came":    {func(at time.Time) *Cycle { return look(at, 1, 1, a, b) }, false},
		"one left, another came": {func(at time.Time) *Cycle { return look(at, 1, 1, b) }, false},
		"it was open":            {func(time.Time) *Cycle { return nil }, false},
	} {
		t.Run(title, func(t *testing.T) {
			var w Watch
			require.False(t, w.Look(look(start, 1, 1, a), after), "the first look")
			require.False(t, w.Look(look(start.Add(after/2), 1, 1, a), after), "too early")
			require.Equal(t, tc.again, w.Look(tc.then(start.Add(after)), after))
			require.False(t, w.Look(tc.then(start.Add(after)), 0), "0 is never")
		})
	}
}

func TestAfterADeadlockWasBrokenTimeBeginsAnew(t *testing.T) {
	const after = time.Second
	start, a := time.Now(), waiter(1, true, "a")
	var w Watch
	w.Look(look(start, 1, 1, a), after)
	require.True(t, w.Look(look(start.Add(after), 1, 1, a), after))
	w.Broken()
	require.False(t, w.Look(look(start.Add(2*after), 1, 1, a), after))
	require.True(t, w.Look(look(start.Add(3*after), 1, 1, a), after))
}

func TestWhoGivesUpIsToldTheCycleHeWaitedIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		require.Nil(t, w.Around(time.Hour))
		w.Look(look(time.Now(), 1, 1, waiter(1, true, "a")), time.Hour)
		time.Sleep(time.Second)
		require.NotNil(t, w.Around(2*time.Second))
		require.Nil(t, w.Around(time.Second/2), "it was over when he came")
		w.Look(nil, time.Hour)
		require.Nil(t, w.Around(2*time.Second))
	})
}

func TestNamesAreBounded(t *testing.T) {
	var c Cycle
	for i := range 12 {
		c.names = append(c.names, name(fmt.Sprint("task ", i)))
	}
	require.Contains(t, c.Names(), "task 9 and 2 more")
	require.NotContains(t, c.Names(), "task 10")
}
