package sandbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// What a test has left open when it ends.

// settle waits for a moment until nothing is in use: database/sql rolls back in a goroutine of its
// own when a context has ended.
func (s *sandbox) settle() {
	for end := time.Now().Add(grace); time.Now().Before(end); time.Sleep(time.Millisecond) {
		s.mu.Lock()
		n := len(s.openLocked())
		s.mu.Unlock()
		if n == 0 && len(s.inner.Tasks()) == 0 {
			return
		}
	}
}

// grace bounds settle.
const grace = time.Second

// close refuses further statements. It returns what the test has left open, a text for each.
func (s *sandbox) close() (left []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	left = s.cut
	open := s.openLocked()
	for _, c := range open {
		left = append(left, fmt.Sprintf("sandbox: the test has ended with %s, from %v: close or end it in the test", c.describe(s), c.since()))
	}
	if len(open) == 0 {
		for _, t := range s.inner.Tasks() {
			if len(t.Holds) > 0 {
				left = append(left, fmt.Sprintf("sandbox: the test has ended with a task that is open (%s), whose session was taken at %s: call the function that WithTask returned", t.Name, s.takenAt()))
			}
		}
	}
	for _, p := range s.prepared {
		left = append(left, fmt.Sprintf("sandbox: the test has ended with a prepared statement that is open (%s), from %v: close it in the test", s.stage.brief(p.query), p.at))
	}
	slices.Sort(left)
	return slices.Compact(left)
}

// openLocked are the checkouts that are not over.
func (s *sandbox) openLocked() []*checkout {
	return slices.DeleteFunc(slices.Collect(maps.Keys(s.checkouts)), (*checkout).isOver)
}

// takenAt is where the session of a task was taken.
func (s *sandbox) takenAt() string {
	for _, h := range s.inner.Holders() {
		for _, f := range h.TakenAt {
			return f.String()
		}
	}
	return "an unknown place"
}

// cutLocked records what c has open if the end of t.Context() ends it. That happens before the cleanups of
// the test, so close cannot see it. Whether database/sql or a cleanup ends it is chance, and makes no
// difference. opened is the context with which it was opened. If the program has given that context an end
// of its own, nobody can tell which end came first, and cutLocked records nothing.
//
// If another goroutine has used c last, cutLocked records nothing: that goroutine may live for as long as
// t.Context(), and then the rollback of its last transaction is correct.
func (s *sandbox) cutLocked(c *checkout, opened context.Context) {
	if s.testCtx.Err() == nil || opened.Done() != s.testCtx.Done() || !s.isTest(c.at) {
		return
	}
	s.cut = append(s.cut, fmt.Sprintf("sandbox: the test has ended with %s, from %v, and the end of t.Context() has ended it: close or end it before the function of the test returns; if a cleanup does that, open it with context.WithoutCancel",
		c.describe(s), c.since()))
}

// isTest reports whether a call came from a test function, or from one of its subtests. When the
// cleanups of a test run, all these have returned.
func (s *sandbox) isTest(at place) bool {
	return at.goroutine == s.goroutine || at.through("testing.tRunner")
}
