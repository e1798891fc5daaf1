package task

import (
	"context"
	"sync/atomic"

	"github.com/pooldriver/pooldriver/pool"
)

// Scope is the context of InTx's function. What runs with it belongs to the
// transaction of that InTx. A nil Scope is that of a context outside of InTx.
type Scope struct {
	context.Context
	task        *Task
	own         *Task // the same as task, if InTx has begun the task itself
	label       *string
	priority    pool.Priority
	around      *Scope       // of the InTx around this one; nil: none
	transaction atomic.Value // the transaction of the InTx; nil until BeginTx
	conflict    atomic.Value // the conflict with another transaction that BeginTx has met
	reached     atomic.Bool  // an operation with the scope has come through database/sql
	left        atomic.Bool
}

// NewScope returns a scope in the explicit task that ctx carries. Where ctx carries none,
// the scope begins a task for its time.
func NewScope(ctx context.Context) *Scope {
	p := PlaceOf(ctx)
	if p.Task != nil && !p.Task.implicit {
		return &Scope{Context: ctx, task: p.Task, label: p.Label, priority: p.Priority, around: p.Scope}
	}
	t := begin(ctx, p, false)
	return &Scope{Context: t, task: t, label: p.Label, priority: p.Priority, own: t}
}

// Leave says that the function has returned.
func (s *Scope) Leave() { s.left.Store(true) }

// End is Leave, and ends the task that the scope has begun, if any.
func (s *Scope) End() {
	s.Leave()
	if s.own != nil {
		s.own.End()
	}
}

// Reach records that an operation with the scope has come through database/sql, and Reached reports it. s may be nil.
func (s *Scope) Reach() {
	if s != nil && !s.reached.Load() {
		s.reached.Store(true)
	}
}

func (s *Scope) Reached() bool { return s.reached.Load() }

// Left reports whether the function of InTx has returned, or the function of an InTx
// around it. s may be nil.
func (s *Scope) Left() bool {
	for ; s != nil; s = s.around {
		if s.left.Load() {
			return true
		}
	}
	return false
}

// Begun makes tx the transaction of the scope, if it has none yet: the first one is
// InTx's own. All transactions must have the same type. s may be nil.
func (s *Scope) Begun(tx any) {
	if s != nil {
		s.transaction.CompareAndSwap(nil, tx)
	}
}

// Transaction returns the transaction of the scope, nil where none has begun.
func (s *Scope) Transaction() any { return s.transaction.Load() }

// BeginConflict records that the scope's transaction could not begin, because another transaction was
// in the way. on is the database. All databases must have the same type. s may be nil.
func (s *Scope) BeginConflict(on any) {
	if s != nil {
		s.conflict.Store(on)
	}
}

// Conflict returns the database that BeginConflict has recorded, else nil.
func (s *Scope) Conflict() any { return s.conflict.Load() }

// Around returns the scope of the InTx around this one, nil if there is none.
func (s *Scope) Around() *Scope { return s.around }

// Value returns s for the key of this package.
func (s *Scope) Value(k any) any {
	if _, ok := k.(key); ok {
		return s
	}
	return s.Context.Value(k)
}
