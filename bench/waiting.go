package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/metrics"
	"sync"
	"testing"
	"time"
)

// The contests of those who wait: nobody gets a connection, all are held.

const (
	cancelledGoroutines = 64
	waitingConns        = 4
	// settling is how long it takes, at least, until all have come to wait.
	settling = 100 * time.Millisecond
)

var (
	bytesEach = metric{unit: "waiting-B", title: "bytes for each", spread: true, format: bytes, compare: less}
	returned  = metric{unit: "returned-ns", title: "until all have returned", spread: true, format: nanos, compare: less}
)

func waitingContests(v venue) []contest {
	memory := v.contest(fmt.Sprintf("memory of %d goroutines that wait", manyGoroutines), everywhere, waitingConns, fillUp(waitingConns, query), memoryOfWaiting)
	memory.own, memory.most = []metric{bytesEach}, 6
	if v.name == sectionNull {
		memory.promises = []promise{better(bytesEach, 1.4)} // twice as much if the wait needs a larger stack than plain's
	}
	cancelled := v.contest(fmt.Sprintf("cancellation of %d goroutines that wait", cancelledGoroutines), everywhere, waitingConns, fillUp(waitingConns, query), cancelWaiting)
	cancelled.own = []metric{returned}
	return []contest{memory, cancelled}
}

// memoryOfWaiting counts heap and stacks, the goroutine itself included.
func memoryOfWaiting(b *testing.B, c client) {
	ctx, cancel := turnContext()
	defer cancel()
	release, err := holdAll(ctx, c, waitingConns)
	if err != nil {
		fail(b, err)
	}
	before := heap()
	done := wait(manyGoroutines, func(int) {
		if err := c.query(ctx, 1); err != nil {
			note(b, err)
		}
	})
	after := heap()
	release()
	done.Wait()
	if b.Failed() {
		b.FailNow()
	}
	used := float64(after.HeapInuse+after.StackInuse) - float64(before.HeapInuse+before.StackInuse)
	b.ReportMetric(used/manyGoroutines, bytesEach.unit)
}

// cancelWaiting ends the contexts of all who wait, and then sees that the
// connections are to be had.
func cancelWaiting(b *testing.B, c client) {
	ctx, cancel := turnContext()
	defer cancel()
	release, err := holdAll(ctx, c, waitingConns)
	if err != nil {
		fail(b, err)
	}
	waiters, cancelWaiters := context.WithCancel(ctx)
	defer cancelWaiters()
	done := wait(cancelledGoroutines, func(int) {
		if err := c.query(waiters, 1); !errors.Is(err, context.Canceled) {
			note(b, fmt.Errorf("a cancelled goroutine got %w", err))
		}
	})
	from := time.Now()
	cancelWaiters()
	done.Wait()
	took := time.Since(from)
	release()
	release, err = holdAll(ctx, c, waitingConns)
	if err != nil {
		fail(b, fmt.Errorf("after the cancellation: %w", err))
	}
	release()
	if b.Failed() {
		b.FailNow()
	}
	b.ReportMetric(float64(took), returned.unit)
}

// wait starts so many goroutines, and returns when they have come to where they wait.
func wait(goroutines int, what func(int)) *sync.WaitGroup {
	var ready, done sync.WaitGroup
	for g := range goroutines {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			what(g)
		})
	}
	ready.Wait()
	settle()
	return &done
}

// settle returns when no goroutine is ready to run: all have come to wait. On a slow machine ten
// thousand need longer than settling. It waits for two seconds at most.
func settle() {
	ready := []metrics.Sample{{Name: "/sched/goroutines/runnable:goroutines"}}
	for range 20 {
		time.Sleep(settling)
		if metrics.Read(ready); ready[0].Value.Uint64() == 0 {
			return
		}
	}
}
