package main

import (
	"context"
	"sync"
	"testing"
	"time"
)

// crowd splits b.N cycles among the goroutines, each with a cancellable
// context of its own. Everything is held, and all of them stand in the queue,
// before the measurement begins with giveBack: else one might run through all
// its cycles before the next one has started, and nobody would ever wait.
func crowd(b *testing.B, goroutines int, giveBack func(), cycle func(context.Context) error) {
	var ready, done sync.WaitGroup
	for g := range goroutines {
		n := b.N / goroutines
		if g < b.N%goroutines {
			n++
		}
		ready.Add(1)
		done.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			ready.Done()
			for range n {
				if err := cycle(ctx); err != nil {
					note(b, err)
					return
				}
			}
		})
	}
	ready.Wait()
	time.Sleep(10 * time.Millisecond) // nobody tells when all are asleep
	b.ResetTimer()
	giveBack()
	done.Wait()
}
