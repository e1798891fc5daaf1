package inspect

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/pooldriver/pooldriver"
)

// crowd is how many rows the table of holders may have until those of one group become one row.
const crowd = 20

// holding is a row of the table of holders, or several that are one row, which opens.
type holding struct {
	Name             string // the label, or the line of code
	Count, Running   int
	Idle, RunningFor time.Duration // the longest
	Since            time.Time     // of the one that holds longest
	Holders          []pooldriver.Holder
}

// holdingsOf makes rows of holders, which keep their order. If there are many, those of one label or, without a label, of one line
// of code are one row.
func holdingsOf(holders []pooldriver.Holder) (rows []holding) {
	for _, h := range holders {
		name := cmp.Or(h.Label, site(h.TakenAt), h.Task, "–")
		r := entry(&rows, func(r holding) bool { return len(holders) > crowd && r.Name == name }, holding{Name: name, Since: h.Since})
		r.Count++
		if h.Running {
			r.Running++
		}
		r.Idle, r.RunningFor = max(r.Idle, h.Idle), max(r.RunningFor, h.RunningFor)
		if h.Since.Before(r.Since) {
			r.Since = h.Since
		}
		r.Holders = append(r.Holders, h)
	}
	return rows
}

// group is the waiters with one label.
type group struct {
	Label    string
	Count    int
	Follow   int       // those of Count that wait for their answer in a pipeline
	First    int       // the first one's place in the queue; 0: none is in the queue
	Since    time.Time // when the first has begun to wait
	Deadline time.Time // when the first gives up; zero: none does
	Holds    []uint64  // the connections that their tasks have
	Waiters  []pooldriver.Waiter
}

// groupsOf groups waiters by label, the largest group first.
func groupsOf(waiters []pooldriver.Waiter) (groups []group) {
	for _, w := range waiters {
		g := entry(&groups, func(g group) bool { return g.Label == w.Label }, group{Label: w.Label, First: w.Position, Since: w.Since})
		g.Count++
		if w.Follows {
			g.Follow++
		}
		if w.Since.Before(g.Since) {
			g.Since = w.Since
		}
		if !w.Deadline.IsZero() && (g.Deadline.IsZero() || w.Deadline.Before(g.Deadline)) {
			g.Deadline = w.Deadline
		}
		for _, n := range w.Holds {
			if !slices.Contains(g.Holds, n) {
				g.Holds = append(g.Holds, n)
			}
		}
		g.Waiters = append(g.Waiters, w)
	}
	slices.SortStableFunc(groups, func(a, b group) int { return cmp.Compare(b.Count, a.Count) })
	return groups
}

// bound cuts groups, and what they have, to maxShown each: members returns the members of a group.
func bound[G, M any](groups []G, members func(*G) *[]M) {
	left := maxShown
	for i := range groups {
		m := members(&groups[i])
		*m = atMost(max(1, left), *m)
		left -= len(*m)
	}
}

// key is a part of an HTML id that stays the same while the page is refreshed.
func key(of any) string {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, of)
	return strconv.FormatUint(h.Sum64(), 36)
}
