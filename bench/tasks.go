package main

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/pooldriver/pooldriver"
)

// The contests of tasks that use no database show what it costs to give each
// request one, whether it turns out to need it or not. The baseline is the
// least that a context with an end and a cause can be.

func taskContests() []contest {
	return []contest{
		{
			section:    sectionTasks,
			name:       "a task's beginning and end, without a database",
			contenders: beginnings(background),
			promises:   []promise{atMost(2), allocs(4)},
		},
		{
			section:    sectionTasks,
			name:       "the same below a context that can be cancelled",
			contenders: beginnings(cancellable),
			promises:   []promise{atMost(2), allocs(4)},
		},
		{
			section: sectionTasks,
			name:    fmt.Sprintf("memory of %d idle tasks", crowdOfTasks),
			contenders: []contender{
				{"context.WithCancel", memory(context.WithCancel, nil)},
				{"pooldriver", memory(withTask, nil)},
			},
			own:      []metric{inUse, live},
			promises: []promise{within(inUse, 250)},
		},
		{
			section: sectionTasks,
			name:    fmt.Sprintf("memory of %d tasks that have executed a statement", crowdOfTasks),
			contenders: []contender{
				{"idle tasks", memory(withTask, nil)},
				{"pooldriver", memory(withTask, execOnce)},
			},
			own: []metric{inUse, live},
		},
	}
}

// begin makes a context with an end.
type begin func(context.Context) (context.Context, context.CancelFunc)

func withTask(ctx context.Context) (context.Context, context.CancelFunc) {
	return pooldriver.WithTask(ctx)
}

func beginnings(below func() (context.Context, context.CancelFunc)) []contender {
	return []contender{
		{"context.WithCancelCause", func(b *testing.B) {
			parent, end := below()
			defer end()
			b.ReportAllocs()
			for b.Loop() {
				_, cancel := context.WithCancelCause(parent)
				cancel(pooldriver.ErrTaskEnded)
			}
		}},
		{"pooldriver", func(b *testing.B) {
			parent, end := below()
			defer end()
			b.ReportAllocs()
			for b.Loop() {
				_, end := pooldriver.WithTask(parent)
				end()
			}
		}},
	}
}

func background() (context.Context, context.CancelFunc) { return context.Background(), func() {} }

// cancellable is a context as requests have it.
func cancellable() (context.Context, context.CancelFunc) {
	return context.WithCancel(context.Background())
}

const crowdOfTasks = 100_000

var (
	inUse = metric{unit: "in-use-B", title: "heap in use, each", spread: true, format: bytes}
	live  = metric{unit: "live-B", title: "of it live", format: bytes}
)

// memory measures what a crowd of begun contexts keeps, with the functions that
// end them: they share one parent, which can be cancelled, and knows them all.
// use, if set, is called with each before it is measured.
func memory(begin begin, use func(*testing.B) func(context.Context) error) func(*testing.B) {
	type kept struct {
		ctx context.Context
		end func()
	}
	return func(b *testing.B) {
		parent, cancel := context.WithCancel(context.Background())
		defer cancel()
		touch := func(context.Context) error { return nil }
		if use != nil {
			touch = use(b)
		}
		if err := touch(parent); err != nil { // what the first use makes is not the tasks'
			fail(b, err)
		}
		all := make([]kept, crowdOfTasks)
		before := heap()
		for i := range all {
			ctx, end := begin(parent)
			if err := touch(ctx); err != nil {
				fail(b, err)
			}
			all[i] = kept{ctx, end}
		}
		after := heap()
		b.ReportMetric(float64(after.HeapInuse-before.HeapInuse)/crowdOfTasks, inUse.unit)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/crowdOfTasks, live.unit)
		for _, k := range all {
			k.end()
		}
	}
}

// heap is what remains after a collection.
func heap() (m runtime.MemStats) {
	runtime.GC()
	runtime.GC() // what the first one found to have finalizers or to be swept late
	runtime.ReadMemStats(&m)
	return m
}

func execOnce(b *testing.B) func(context.Context) error {
	db := oursNull(4)
	b.Cleanup(func() { _ = db.Close() })
	return func(ctx context.Context) error {
		_, err := db.ExecContext(ctx, nullInsert, int64(7), "three")
		return err
	}
}
