package sandboxes

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// recorder is a test that only records what is said of it. Its cleanups run when end is called.
type recorder struct {
	testing.TB
	name string

	mu       sync.Mutex // protects following fields
	errors   []string
	logs     []string
	cleanups []func()
}

func record(t *testing.T) *recorder { return &recorder{TB: t, name: t.Name()} }

func (r *recorder) say(to *[]string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*to = append(*to, strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
}

func (r *recorder) Name() string                      { return r.name }
func (r *recorder) Helper()                           {}
func (r *recorder) Log(args ...any)                   { r.say(&r.logs, args...) }
func (r *recorder) Error(args ...any)                 { r.say(&r.errors, args...) }
func (r *recorder) Errorf(format string, args ...any) { r.Error(fmt.Sprintf(format, args...)) }
func (r *recorder) Logf(format string, args ...any)   { r.Log(fmt.Sprintf(format, args...)) }
func (r *recorder) Cleanup(fn func())                 { r.cleanups = append(r.cleanups, fn) }

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.errors) > 0
}

func (r *recorder) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.logs, "\n")
}

// end runs the cleanups, and returns the errors.
func (r *recorder) end() []string {
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.errors
}
