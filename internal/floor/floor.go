// Package floor knows how new a replica has to be to serve a context.
package floor

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/task"
)

// Floors are those of a context, or of a task. The zero value has none. The methods may be called at the same time.
type Floors struct {
	mu         sync.Mutex // protects following fields, and those of the floors
	own        []*Floor
	tokens     []string // positions that came in tokens
	changes    uint64   // counts writes whose position became unknown, and reads on replicas: after one, an older answer of the primary does not count
	askPrimary bool     // the context must see what the primary has now, so the primary is asked for its position
}

// Floor is how new a replica has to be to serve a context: it has everything that the context has written to one
// database, and has seen there. The methods may be called at the same time.
type Floor struct {
	all       *Floors
	of        any                // the Connector whose database it is about
	positions dialects.Positions // how positions of that database are compared

	pending    int    // sessions that owe a position: statements that may write have run there
	position   string // empty: nothing is written, or unknown
	lazy       bool   // the primary had not flushed position: no replica has it soon
	unknown    bool   // only the primary is sure to have everything
	askPrimary bool   // the primary has not been asked yet for the position that counts
	shown      Server // from which the context has read what position may not have; zero: from none
	reads      int    // reads that run on the server shown
}

// Server is a replica since its watcher is connected to it. What it shows never goes back. After a crash, or when another
// server answers at its address, Era is another one.
type Server struct {
	Replica any
	Era     uint64
}

type key struct{}

// used: there is a Connector with replicas in the process.
var used atomic.Bool

// Enable says that there are replicas, so that writes are recorded. Enabled reports whether there are some.
func Enable()       { used.Store(true) }
func Enabled() bool { return used.Load() }

// With returns a context that keeps floors. If ctx does already, or has a task, it is ctx.
func With(ctx context.Context) context.Context {
	if floorsOf(ctx, nil) != nil {
		return ctx
	}
	return context.WithValue(ctx, key{}, &Floors{})
}

// WithNow returns a context whose reads show what the primary has now, or later. The primary is asked at the first read.
func WithNow(ctx context.Context) context.Context {
	if !Enabled() {
		return ctx
	}
	ctx = With(ctx)
	all := floorsOf(ctx, nil)
	all.mu.Lock()
	defer all.mu.Unlock()
	all.askPrimary = true
	for _, f := range all.own {
		f.unknown, f.askPrimary = true, true
		all.changes++
	}
	return ctx
}

// WithToken returns a context whose reads show the writes that the token stands for.
func WithToken(ctx context.Context, token string) context.Context {
	ctx = With(ctx)
	floorsOf(ctx, nil).add(token)
	return ctx
}

// Token is the floors of ctx as text for another process. It is empty if the context has written nothing.
func Token(ctx context.Context) string {
	if f := floorsOf(ctx, nil); f != nil {
		return f.token()
	}
	return ""
}

// Keeps reports whether something keeps what ctx writes: a task, With or WithToken.
func Keeps(ctx context.Context) bool { return floorsOf(ctx, nil) != nil }

// floorsOf returns the floors of ctx, or those of its task; nil: none are kept. t is the task if it is known. Tasks in tasks
// share the floors of the outermost: what one of them writes, the program expects to read in the others.
func floorsOf(ctx context.Context, t *task.Task) *Floors {
	if f, ok := ctx.Value(key{}).(*Floors); ok {
		return f
	}
	if t == nil {
		at := task.PlaceOf(ctx)
		if t = at.Task; t == nil {
			t = at.From
		}
	}
	if t == nil {
		return nil
	}
	for t.From() != nil {
		t = t.From()
	}
	return t.Attached(func() any { return &Floors{} }).(*Floors)
}

// Of returns the floor of ctx for a Connector; nil: none is kept. t is the task of ctx there; nil: it has none.
func Of(ctx context.Context, t *task.Task, connector any, p dialects.Positions) *Floor {
	all := floorsOf(ctx, t)
	if all == nil {
		return nil
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	i := slices.IndexFunc(all.own, func(f *Floor) bool { return f.of == connector })
	if i >= 0 {
		return all.own[i]
	}
	f := &Floor{all: all, of: connector, positions: p, unknown: all.askPrimary, askPrimary: all.askPrimary}
	for _, position := range all.tokens {
		f.add(position)
	}
	for _, other := range all.own {
		f.learn(other, other.position, other.unknown)
	}
	all.own = append(all.own, f)
	return f
}

// add adds a position of a token, or of another Connector. What f does not understand only the primary is sure to have.
func (f *Floor) add(position string) {
	switch p := f.positions; {
	case !p.Valid(position):
		f.unknown = true
	case f.position == "" || p.Reached(f.position, position):
		f.position = position
	case !p.Reached(position, f.position):
		f.unknown = true
	}
}

// learn adds what was written by another Connector, which may lead to the same database.
func (f *Floor) learn(other *Floor, position string, isUnknown bool) {
	switch {
	case f == other || !f.mayBe(other):
	case isUnknown:
		f.unknown = true
	case position != "":
		f.add(position)
	}
}

// mayBe reports whether f and other may be of one database. Where one has no position yet nobody knows.
func (f *Floor) mayBe(other *Floor) bool {
	return f.positions == other.positions &&
		(f.position == "" || other.position == "" || f.positions.SameDatabase(f.position, other.position))
}

// Mark returns the present count of changes. It is taken before the primary is asked, and given to Raise with the answer.
func (f *Floor) Mark() uint64 {
	f.all.mu.Lock()
	defer f.all.mu.Unlock()
	return f.all.changes
}

// Raise adds a write, or what the primary has shown. The primary's log, which has it and everything before,
// was asked for after mark. It may lack a write whose position became unknown since then, and what a replica has shown.
func (f *Floor) Raise(mark uint64, log dialects.Log) {
	f.all.mu.Lock()
	defer f.all.mu.Unlock()
	f.raise(mark, log)
}

func (f *Floor) raise(mark uint64, log dialects.Log) {
	to := log.Position
	// A position of another history has everything of the primary, too: the failover has lost the rest.
	if f.position != "" && f.positions.Reached(to, f.position) {
		to = f.position
	}
	f.position, f.lazy = to, log.Lazy
	if f.all.changes == mark {
		f.unknown, f.askPrimary = false, false
		if f.reads == 0 { // else one may show what the primary had after to
			f.shown = Server{}
		}
	}
	for _, other := range f.all.own {
		other.learn(f, to, false)
	}
}

// lose adds a write whose position is not known. Until the next Raise only the primary has everything.
func (f *Floor) lose() {
	f.all.changes++
	f.unknown = true
	for _, other := range f.all.own {
		other.learn(f, "", true)
	}
}

// Need is what a replica has to have. The zero Need is had by each.
type Need struct {
	Position    string // the position that a replica needs; empty: any replica will do
	Lazy        bool   // the primary had not flushed Position, so no replica will have it soon
	PrimaryOnly bool   // no replica will do
	Pending     bool   // PrimaryOnly is set because something that may write is open
	Asks        bool   // a replica will do if it has what the primary has now
}

// Now returns what a replica has to have.
func (f *Floor) Now() Need {
	f.all.mu.Lock()
	defer f.all.mu.Unlock()
	return f.nowLocked()
}

func (f *Floor) nowLocked() Need {
	pending := slices.ContainsFunc(f.all.own, func(other *Floor) bool { return other.pending > 0 && f.mayBe(other) })
	return Need{f.position, f.lazy, f.unknown || pending, pending, f.askPrimary}
}

// Shown is the server that has shown the context what Now's position may not have; zero: there is none.
func (f *Floor) Shown() Server {
	f.all.mu.Lock()
	defer f.all.mu.Unlock()
	return f.shown
}

// Shows is called before s serves a read, and Showed afterwards. It reports false if s may be older than what the context has seen.
func (f *Floor) Shows(s Server) bool {
	f.all.mu.Lock()
	defer f.all.mu.Unlock()
	if f.nowLocked().PrimaryOnly || f.shown != (Server{}) && f.shown != s {
		return false
	}
	f.shown = s
	f.all.changes++
	f.reads++
	return true
}

// Showed is called when a read has got its answer.
func (f *Floor) Showed() {
	f.all.mu.Lock()
	defer f.all.mu.Unlock()
	f.reads--
}

// LoseServer is called when the server of Shown can serve no more. What it has shown only the primary is sure to have, until the
// next Raise.
func (f *Floor) LoseServer() {
	f.all.mu.Lock()
	defer f.all.mu.Unlock()
	if f.shown != (Server{}) {
		f.shown, f.unknown = Server{}, true
		f.all.changes++
	}
}
