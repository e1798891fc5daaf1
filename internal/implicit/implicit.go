// Package implicit lets packages of this module begin tasks for programs that
// do not know of them.
package implicit

import "context"

// Key finds the innermost of the contexts that say something of tasks: the
// root package's, and Marked.
type Key struct{}

// Marked is a context of which a task that is made of it is an implicit one.
type Marked struct{ context.Context }

// Mark returns such a context.
func Mark(ctx context.Context) *Marked { return &Marked{ctx} }

// Value answers Key with m itself.
func (m *Marked) Value(key any) any {
	if key == (Key{}) {
		return m
	}
	return m.Context.Value(key)
}
