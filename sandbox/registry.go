package sandbox

import (
	"fmt"
	"strings"
	"sync"

	"github.com/pooldriver/pooldriver/internal/beneath"
)

// open are the sandboxes of this program that are open.
var open registry

type registry struct {
	mu  sync.Mutex
	all map[*sandbox]bool // guarded by mu
}

func (r *registry) add(s *sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[*sandbox]bool{}
	}
	r.all[s] = true
}

func (r *registry) remove(s *sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, s)
}

// has reports whether a sandbox is open on a connector.
func (r *registry) has(of beneath.Beneath) bool {
	return r.on(of) != nil
}

// ofTest reports whether a test, or one around it, has a sandbox already: it must not wait for
// itself.
func (r *registry) ofTest(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.all {
		if s.name == name || strings.HasPrefix(name, s.name+"/") {
			return true
		}
	}
	return false
}

// byProcess names a session of the server.
func (r *registry) byProcess(of beneath.Beneath, process uint64) string {
	if s := r.ofProcess(of, process); s != nil {
		return s.described()
	}
	if last, ours := of.LastStatement(process); ours {
		return fmt.Sprintf("session %d of the server, which this program uses beside the sandboxes, and whose last statement was %s: let it use the handle of the test", process, last)
	}
	return fmt.Sprintf("session %d of the server, which is none of this program's", process)
}

// placeOf returns the place from which a statement that runs on a stage was called.
func (r *registry) placeOf(st *stage, text string) place {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.all {
		if s.stage != st {
			continue
		}
		if at, ok := s.placeOf(text); ok {
			return at
		}
	}
	return place{}
}

// ofProcess returns the sandbox whose session has that number on the server; nil: none.
func (r *registry) ofProcess(of beneath.Beneath, process uint64) *sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.all {
		if s.parent == nil && s.stage.process() == process && s.target() == of.Template().Target() {
			return s
		}
	}
	return nil
}

// on returns a sandbox on a connector that has begun a transaction there; nil: none.
func (r *registry) on(of beneath.Beneath) *sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.all {
		if s.of == of && s.parent == nil {
			return s
		}
	}
	return nil
}

// others names the other tests on the same server.
func (r *registry) others(than *stage) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.all {
		if s.parent == nil && s.stage != than && s.target() == than.of.Template().Target() {
			names = append(names, s.described())
		}
	}
	return names
}

// around returns the innermost open sandbox of a test around the test of that name, on the same
// connector. nil: there is none.
func (r *registry) around(of beneath.Beneath, test string) (found *sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.all {
		if s.of == of && (s.name == test || strings.HasPrefix(test, s.name+"/")) && (found == nil || len(s.name) > len(found.name)) {
			found = s
		}
	}
	return found
}
