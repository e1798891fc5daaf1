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
)

// WithPriority returns a context for statements of this priority. Tasks that are made of the context have
// it, too. Every priority but PriorityLow is PriorityNormal.
func WithPriority(ctx context.Context, p Priority) context.Context {
	return task.WithLow(ctx, p == PriorityLow)
}
