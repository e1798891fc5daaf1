package sandbox

import (
	"sync"
	"sync/atomic"
	"testing"
)

// testLog reports to one test, until the test ends. After that nothing may be reported to the test.
type testLog struct {
	mu   sync.Mutex
	t    testing.TB
	said map[string]bool
	over bool
}

func newTestLog(t testing.TB) *testLog { return &testLog{t: t, said: map[string]bool{}} }

// once calls how with the text and its place, unless the test has ended, or the text was said before. The
// calls between the program and this package are those of database/sql, so t.Helper finds no line.
func (s *testLog) once(text string, at place, how func(args ...any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.said[text] {
		return
	}
	s.said[text] = true
	if calls := at.frames(1); len(calls) > 0 {
		text += " (at " + calls[0] + ")"
	}
	how(text)
}

// close is called when the test ends.
func (s *testLog) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

// speech reports for a stage, to the test or subtest that runs on the stage now.
type speech struct{ to atomic.Pointer[testLog] }

// note writes a line to the test's log, once, with the place of the call.
func (s *speech) note(text string) { s.noteAt(text, hereBelow()) }

// noteAt is note for what another place has done.
func (s *speech) noteAt(text string, at place) {
	to := s.to.Load()
	to.once("sandbox: "+text, at, to.t.Log)
}

// fail fails the test, once for each text.
func (s *speech) fail(err error) {
	to := s.to.Load()
	to.once(err.Error(), hereBelow(), to.t.Error)
}
