// Package floor knows how new a replica has to be to serve a context.
package floor

import (
	"context"
	"slices"
	"sync"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/task"
)

// Floors are those of a context, or of a task. The zero value has none. The methods may be called at the same time.
type Floors struct {
	mu     sync.Mutex // protects following fields
	own    []*Floor
	tokens []string // positions that came in tokens
}

// Floor is how new a replica has to be to serve a context: it has everything that the context has written to one
// database. The methods may be called at the same time.
type Floor struct {
	of        any // the Connector's replicas
	positions dialects.Positions

	mu       sync.Mutex // protects following fields
	position string     // empty: nothing is written, or unknown
	unknown  bool       // a write has no known position
	lost     uint64     // how many writes have had none
	replica  any        // from which the context reads; nil: from none
}

type key struct{}

// With returns a context that keeps floors. If ctx does already, or has a task, it is ctx.
func With(ctx context.Context) context.Context {
	if floorsOf(ctx, nil) != nil {
		return ctx
	}
	return context.WithValue(ctx, key{}, &Floors{})
}

// WithToken is With for a context that has written what a token says.
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

// Of returns the floor of ctx for a Connector's replicas; nil: none is kept. t is the task of ctx there; nil: it has none.
func Of(ctx context.Context, t *task.Task, replicas any, p dialects.Positions) *Floor {
	all := floorsOf(ctx, t)
	if all == nil {
		return nil
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	i := slices.IndexFunc(all.own, func(f *Floor) bool { return f.of == replicas })
	if i >= 0 {
		return all.own[i]
	}
	f := &Floor{of: replicas, positions: p}
	for _, position := range all.tokens {
		f.add(position)
	}
	all.own = append(all.own, f)
	return f
}

// add adds a position of a token. What f does not understand only the primary is sure to have.
func (f *Floor) add(position string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch p := f.positions; {
	case !p.Valid(position):
		f.unknown = true
	case f.position == "" || p.Reached(f.position, position):
		f.position = position
	case !p.Reached(position, f.position):
		f.unknown = true
	}
}

// Mark is for Raise: it is taken before the primary is asked.
func (f *Floor) Mark() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

// Raise adds a write. to is a position of the primary that has it, and everything before. It was asked for after mark. It
// may lack a write whose position became unknown since then.
func (f *Floor) Raise(mark uint64, to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// A position of another history has everything of the primary, too: the failover has lost the rest.
	if f.position != "" && f.positions.Reached(to, f.position) {
		to = f.position
	}
	f.position, f.unknown = to, f.lost != mark
}

// Unknown adds a write whose position is not known. Until the next Raise only the primary has everything.
func (f *Floor) Unknown() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unknown = true
	f.lost++
}

// Now returns the position that a replica has to have; empty: any replica will do. primaryOnly: none will.
func (f *Floor) Now() (position string, primaryOnly bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.position, f.unknown
}

// Replica returns the replica from which the context reads; nil: from none.
func (f *Floor) Replica() any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.replica
}

// Stay makes r the replica from which the context reads, unless it reads from one already: at the same time another
// read may have chosen another one. It returns the replica, and Now.
func (f *Floor) Stay(r any) (stays any, position string, primaryOnly bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.replica == nil {
		f.replica = r
	}
	return f.replica, f.position, f.unknown
}

// Leave ends the stay with a replica. What the context has read there only the primary is sure to have, until the
// next Raise.
func (f *Floor) Leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.replica != nil {
		f.replica, f.unknown = nil, true
		f.lost++
	}
}

// Unknown adds a write of ctx, to any database, whose position is not known. t is the task of ctx; nil: it has none.
func Unknown(ctx context.Context, t *task.Task) {
	all := floorsOf(ctx, t)
	if all == nil {
		return
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if !slices.Contains(all.tokens, unknown) {
		all.tokens = append(all.tokens, unknown)
	}
	for _, f := range all.own {
		f.Unknown()
	}
}
