package pool_test

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/puddle/v2"

	"github.com/pooldriver/pooldriver/pool"
)

// subject is a pool under measurement.
type subject interface {
	// cycle is one acquire and release.
	cycle(ctx context.Context) error
	// hold takes the whole pool and returns the function that gives it back.
	hold(b *testing.B) (giveBack func())
}

// twins are the pools the same benchmark runs over. Both lend a resource of
// the same type, have the same size, and keep their statistics.
var twins = []struct {
	name string
	open func(b *testing.B, size int) subject
}{
	{"pooldriver", openPooldriver},
	{"puddle", openPuddle},
}

type pooldriverSubject struct{ *pool.Pool[*int] }

func openPooldriver(b *testing.B, size int) subject {
	p, err := pool.New(pool.Config[*int]{
		Create:  func(context.Context) (*int, error) { return new(int), nil },
		Destroy: func(*int) {},
		Max:     size,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Close)
	return pooldriverSubject{p}
}

func (s pooldriverSubject) cycle(ctx context.Context) error {
	l, err := s.Acquire(ctx)
	if err != nil {
		return err
	}
	return l.Release()
}

func (s pooldriverSubject) hold(b *testing.B) func() {
	var leases []pool.Lease[*int]
	for range s.Stats().Max {
		l, err := s.Acquire(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		leases = append(leases, l)
	}
	return func() {
		for _, l := range leases {
			if err := l.Release(); err != nil {
				b.Error(err)
			}
		}
	}
}

type puddleSubject struct{ *puddle.Pool[*int] }

func openPuddle(b *testing.B, size int) subject {
	p, err := puddle.NewPool(&puddle.Config[*int]{
		Constructor: func(context.Context) (*int, error) { return new(int), nil },
		Destructor:  func(*int) {},
		MaxSize:     int32(size),
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Close)
	return puddleSubject{p}
}

func (s puddleSubject) cycle(ctx context.Context) error {
	r, err := s.Acquire(ctx)
	if err != nil {
		return err
	}
	r.Release()
	return nil
}

func (s puddleSubject) hold(b *testing.B) func() {
	var held []*puddle.Resource[*int]
	for range s.Stat().MaxResources() {
		r, err := s.Acquire(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		held = append(held, r)
	}
	return func() {
		for _, r := range held {
			r.Release()
		}
	}
}

// BenchmarkPool measures one acquire and release, statistics included. Run it
// with -count=10 or more and compare the medians: the twins alternate, so
// that whatever else the machine does hits both.
func BenchmarkPool(b *testing.B) {
	for _, load := range []struct{ goroutines, size int }{{1, 1}, {1, 10}, {4, 4}, {64, 4}} {
		for _, twin := range twins {
			name := fmt.Sprintf("goroutines=%d/size=%d/pool=%s", load.goroutines, load.size, twin.name)
			b.Run(name, func(b *testing.B) {
				s := twin.open(b, load.size)
				s.hold(b)() // everything is created
				b.ReportAllocs()
				if load.goroutines == 1 {
					ctx := context.Background()
					for b.Loop() {
						if err := s.cycle(ctx); err != nil {
							b.Fatal(err)
						}
					}
					return
				}
				crowd(b, load.goroutines, s)
			})
		}
	}
}

// crowd splits b.N cycles among the goroutines, each with a cancellable
// context of its own. All of them stand in the queue before the measurement
// begins: else one might run through all its cycles before the next one has
// started, and nobody would ever wait.
func crowd(b *testing.B, goroutines int, s subject) {
	var ready, done sync.WaitGroup
	giveBack := s.hold(b)
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
				if err := s.cycle(ctx); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	ready.Wait()
	time.Sleep(10 * time.Millisecond) // neither pool tells everybody is asleep
	b.ResetTimer()
	before := processorTime(b)
	giveBack()
	done.Wait()
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
}

// processorTime is what this process has used. On a machine that is busy with
// other things it is the steadier measure.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
