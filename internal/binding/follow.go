package binding

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/ctxsettings"
	"github.com/pooldriver/pooldriver/internal/floor"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/textcache"
)

// follow is a query that waits for a connection, or for its answer.
type follow struct {
	call      dialects.PipelinedQuery
	pace      *textcache.Pace
	owes      *floor.Floor // see Want.Owes
	label     *string
	size      int
	trials    int // pipelines that were trials
	pipelines int // that it has been in; who has it in its hands writes this: its caller, or the pool's lock

	before time.Duration // the waits that are over

	// The answer: written before Served, or before done is closed.
	answer session.Answer
	waited time.Duration // until it was taken along
	again  bool          // the connection was lost before the answer came
	done   chan struct{}
	fate   atomic.Uint32 // of a leader
}

// What becomes of a leader: the first to say so decides.
const (
	expected = iota
	answered // done is closed now, or very soon
	left     // its context has ended
)

// mostPipelines bounds how many pipelines one query is in. Then it takes a connection for itself: perhaps the
// query itself makes pipelines end.
const mostPipelines = 3

// mayFollow reports whether f may be in a pipeline once more. Whoever has f in his hands asks.
func (f *follow) mayFollow() bool { return !f.answer.Alone && f.pipelines < mostPipelines }

// newFollow is a query whose arguments, and the settings of whose context, the dialect keeps, nil if it cannot. A method of
// an argument runs here, in the goroutine of its caller: in a pipeline others would wait for it.
func newFollow(ctx context.Context, w *Want, d dialects.Dialect, label *string) *follow {
	settings, err := ctxsettings.Of(ctx).List()
	keeper, ok := d.(dialects.ArgumentKeeper)
	if err != nil || !ok && len(w.Args)+len(settings) > 0 || len(settings) > 0 && !keeper.KeepSettings(settings) {
		return nil
	}
	f := &follow{call: dialects.PipelinedQuery{Text: w.Text, Settings: settings}, pace: w.Pace, owes: w.Owes, label: label, size: len(w.Text)}
	for _, set := range settings {
		f.size += len(set.Name) + len(set.Value)
	}
	f.call.Args = slices.Clone(w.Args)
	for i := range f.call.Args {
		arg := &f.call.Args[i]
		kept, size, ok := keeper.KeepArgument(arg.Value)
		if !ok {
			return nil
		}
		arg.Value, f.size = kept, f.size+size
	}
	return f
}

// wait waits for the answer of a leader. It reports false if ctx ends before.
func (f *follow) wait(ctx context.Context) bool {
	select {
	case <-f.done:
		return true
	case <-ctx.Done():
		if f.fate.CompareAndSwap(expected, left) {
			return false
		}
		<-f.done
		return true
	}
}
