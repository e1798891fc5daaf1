package mergedctx

import (
	"context"
	"sync/atomic"
	"time"
)

// Successive is a context that stands for one context after the other: the last one that was given to Become. Become has to be
// called before it is used.
type Successive struct {
	now atomic.Pointer[context.Context]
}

// Become makes s stand for *ctx, which does not change any more.
func (s *Successive) Become(ctx *context.Context) { s.now.Store(ctx) }

func (s *Successive) Deadline() (time.Time, bool) { return (*s.now.Load()).Deadline() }
func (s *Successive) Done() <-chan struct{}       { return (*s.now.Load()).Done() }
func (s *Successive) Err() error                  { return (*s.now.Load()).Err() }
func (s *Successive) Value(key any) any           { return (*s.now.Load()).Value(key) }
