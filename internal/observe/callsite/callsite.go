// Package callsite counts what the places of a program do, by their call stacks.
package callsite

import (
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Most is how many places a Table remembers. All other places are counted together.
	Most = 1000
	// depth is how many calls of a stack are kept: the innermost calls.
	depth = 32
)

// Table is the places of a program. The zero value is empty. A Table is safe for
// concurrent use.
type Table struct {
	mu    sync.RWMutex // protects following fields
	sites map[uint64][]*Site
	count int

	others Site
}

// Site is one place, and what it has done.
type Site struct {
	calls              []uintptr
	count              atomic.Uint64
	waited, held, idle atomic.Int64
}

// Taken records that the place has taken a connection, weight times.
func (s *Site) Taken(weight uint64, waited time.Duration) {
	s.count.Add(weight)
	s.waited.Add(int64(waited) * int64(weight))
}

// GivenBack records that the place has given a connection back, weight times.
func (s *Site) GivenBack(weight uint64, held, idle time.Duration) {
	s.held.Add(int64(held) * int64(weight))
	s.idle.Add(int64(idle) * int64(weight))
}

// Figures are what a place has done.
type Figures struct {
	Count              uint64
	Waited, Held, Idle time.Duration
}

// Figures returns what the place has done.
func (s *Site) Figures() Figures {
	return Figures{s.count.Load(), time.Duration(s.waited.Load()), time.Duration(s.held.Load()), time.Duration(s.idle.Load())}
}

// Here returns the place of the present call stack, without the innermost skip calls. If skip is 0,
// the stack begins at the caller of Here.
func (t *Table) Here(skip int) *Site {
	var buffer [depth]uintptr
	calls := buffer[:runtime.Callers(2+skip, buffer[:])]
	hash := uint64(len(calls))
	for _, pc := range calls {
		hash = (hash ^ uint64(pc)) * 0x9e3779b97f4a7c15
		hash ^= hash >> 32
	}
	t.mu.RLock()
	site := find(t.sites[hash], calls)
	t.mu.RUnlock()
	if site == nil {
		site = t.add(hash, calls)
	}
	return site
}

func find(sites []*Site, calls []uintptr) *Site {
	for _, s := range sites {
		if slices.Equal(s.calls, calls) {
			return s
		}
	}
	return nil
}

func (t *Table) add(hash uint64, calls []uintptr) *Site {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := find(t.sites[hash], calls); s != nil {
		return s
	}
	if t.count == Most {
		return &t.others
	}
	if t.sites == nil {
		t.sites = map[uint64][]*Site{}
	}
	s := &Site{calls: slices.Clone(calls)}
	t.sites[hash] = append(t.sites[hash], s)
	t.count++
	return s
}

// All returns the places that have taken a connection.
func (t *Table) All() (all []*Site) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, sites := range t.sites {
		for _, s := range sites {
			if s.count.Load() > 0 {
				all = append(all, s)
			}
		}
	}
	if t.others.count.Load() > 0 {
		all = append(all, &t.others)
	}
	return all
}

// Frame is one call of a stack.
type Frame struct {
	Func, File string
	Line       int
}

// String is the function, and the file's name with the line.
func (f Frame) String() string {
	return fmt.Sprintf("%s (%s:%d)", f.Func, path.Base(f.File), f.Line)
}

// Text is a call stack in one line.
func Text(stack []Frame) string {
	const most = 12
	var b strings.Builder
	for i, f := range stack[:min(len(stack), most)] {
		if i > 0 {
			b.WriteString(" < ")
		}
		b.WriteString(f.String())
	}
	return b.String()
}

// Frames returns the calls of the stack, the innermost first. It begins with the program's innermost
// call. It leaves out the calls of this module and of database/sql, and the calls of a driver
// between these two, such as a driver that makes traces. s may be nil.
func (s *Site) Frames() []Frame {
	frames, _ := s.frames()
	return frames
}

// frames returns the frames for Frames. inside reports whether the program is in a call of database/sql.
func (s *Site) frames() (frames []Frame, inside bool) {
	if s == nil || len(s.calls) == 0 {
		return nil, false
	}
	var all []runtime.Frame
	for calls, more := runtime.CallersFrames(s.calls), true; more; {
		var f runtime.Frame
		f, more = calls.Next()
		all = append(all, f)
	}
	first := slices.IndexFunc(all, isDatabaseSQL)
	inside = first >= 0
	for first = max(0, first); first < len(all) && (isDatabaseSQL(all[first]) || isOurs(all[first])); first++ {
	}
	for _, f := range all[first:] {
		frames = append(frames, Frame{f.Function, f.File, f.Line})
	}
	return frames, inside
}

// isOurs reports whether a call is a call of this module on the way to a connection.
func isOurs(f runtime.Frame) bool {
	const module = "github.com/pooldriver/pooldriver"
	name, ours := strings.CutPrefix(f.Function, module)
	if !ours || strings.HasSuffix(f.File, "_test.go") {
		return false
	}
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "/internal/observe/callsite.") || strings.HasPrefix(name, "/internal/observe/usage.")
}
