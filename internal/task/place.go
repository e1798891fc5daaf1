package task

import (
	"context"

	"github.com/pooldriver/pooldriver/pool"
)

// key finds the innermost context that says something of tasks, labels or priorities: a *Task, a
// *Scope, an *outside or a *labelled. Each returns itself as its value for key.
type key struct{}

// Place is what a context says of tasks. The zero Place says nothing.
type Place struct {
	Task     *Task   // nil: none
	Scope    *Scope  // nil: not inside the function of InTx
	From     *Task   // the outer task, from whose context NewTask or Outside made this one
	Label    *string // nil: none
	Priority pool.Priority
	outside  bool // the context was made by Outside
}

// PlaceOf returns what ctx says of tasks.
func PlaceOf(ctx context.Context) Place { return placeAt(ctx.Value(key{})) }

// placeAt returns what a context says of tasks, from the value that it has returned for key.
func placeAt(value any) Place {
	switch at := value.(type) {
	case *Task:
		return Place{Task: at, From: at.from, Label: at.label, Priority: at.priority}
	case *Scope:
		return Place{Task: at.task, From: at.task.from, Scope: at, Label: at.label, Priority: at.priority}
	case *outside:
		return Place{From: at.from, Label: at.label, Priority: at.priority, outside: true}
	case *labelled:
		return at.place
	}
	return Place{}
}

// IsNone reports whether the context says nothing of tasks.
func (p *Place) IsNone() bool {
	return p.Task == nil && p.From == nil && p.Label == nil && p.Scope == nil && p.Priority == pool.PriorityNormal && !p.outside
}

// nearest returns the task that a context made at this place is derived from.
func (p Place) nearest() *Task {
	if p.Task != nil {
		return p.Task
	}
	return p.From
}

// Outside returns a context without a task, which ends when ctx does.
func Outside(ctx context.Context) context.Context {
	p := PlaceOf(ctx)
	return &outside{ctx, p.nearest(), p.Label, p.Priority}
}

type outside struct {
	context.Context
	from     *Task
	label    *string
	priority pool.Priority
}

func (o *outside) Value(k any) any {
	if _, ok := k.(key); ok {
		return o
	}
	return o.Context.Value(k)
}
