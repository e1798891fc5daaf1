package sandbox

import (
	"sync"
	"sync/atomic"
	"testing"
)

// speaker speaks to one test, until the test ends: after that nothing may.
type speaker struct {
	mu   sync.Mutex
	t    testing.TB
	said map[string]bool
	over bool
}

func newSpeaker(t testing.TB) *speaker { return &speaker{t: t, said: map[string]bool{}} }

// once calls how unless the test has ended, or text was said before.
func (s *speaker) once(text string, how func(args ...any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.said[text] {
		return
	}
	s.said[text] = true
	how(text)
}

// close is called when the test ends.
func (s *speaker) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

// speech is how a stage speaks: to the test, or subtest, that runs on it now.
type speech struct{ to atomic.Pointer[speaker] }

// note writes a line to the test's log, once.
func (s *speech) note(text string) {
	to := s.to.Load()
	to.once("sandbox: "+text, to.t.Log)
}

// fail fails the test, once for each text.
func (s *speech) fail(err error) {
	to := s.to.Load()
	to.once(err.Error(), to.t.Error)
}
