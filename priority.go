package pooldriver

import (
	"context"

	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/pool"
)

// Priority says whom Config.QueueTarget refuses first. It changes neither the order in which statements are
// served nor anything else.
type Priority = pool.Priority

// The priorities of WithPriority.
const (
	PriorityNormal = pool.PriorityNormal
	// PriorityLow is for work that can be done later, such as reports and prefetching.
	PriorityLow = pool.PriorityLow
	// PriorityHigh is for what the program needs to go on, such as a job queue's own statements: it is never
	// refused. Config.MaxWaiters bounds it, too.
	PriorityHigh = pool.PriorityHigh
)

// WithPriority returns a context for statements of this priority. Tasks that are made of the context have
// it, too. A priority other than these is PriorityNormal.
func WithPriority(ctx context.Context, p Priority) context.Context {
	if p > PriorityHigh {
		p = PriorityNormal
	}
	return task.WithPriority(ctx, p)
}
