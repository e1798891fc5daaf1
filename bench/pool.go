package main

import (
	"context"
	"fmt"
	"testing"

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

// twins are the pools the same contest runs over. Both lend a resource of the
// same type, have the same size, and keep their statistics.
var twins = []struct {
	name string
	open func(b *testing.B, size int) subject
}{
	{"puddle", openPuddle},
	{"pooldriver", openPooldriver},
}

type pooldriverSubject struct{ *pool.Pool[*int] }

func openPooldriver(b *testing.B, size int) subject {
	p, err := pool.New(pool.Config[*int]{
		Create:  func(context.Context) (*int, error) { return new(int), nil },
		Destroy: func(*int) {},
		Max:     size,
	})
	if err != nil {
		fail(b, err)
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
			fail(b, err)
		}
		leases = append(leases, l)
	}
	return func() {
		for _, l := range leases {
			if err := l.Release(); err != nil {
				note(b, err)
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
		fail(b, err)
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
			fail(b, err)
		}
		held = append(held, r)
	}
	return func() {
		for _, r := range held {
			r.Release()
		}
	}
}

// poolContests measure one acquire and release, statistics included.
func poolContests() []contest {
	var contests []contest
	for _, load := range []struct {
		goroutines, size int
		atMost           float64
	}{{1, 1, 0.35}, {1, 10, 0.35}, {4, 4, 0}, {64, 4, 0.55}} {
		c := contest{
			section: sectionPool,
			name:    fmt.Sprintf("acquire and release, %d goroutines on %d resources", load.goroutines, load.size),
		}
		if load.atMost > 0 {
			c.promises = []promise{atMost(load.atMost)}
		}
		for _, twin := range twins {
			c.contenders = append(c.contenders, contender{twin.name, func(b *testing.B) {
				s := twin.open(b, load.size)
				s.hold(b)() // everything is created
				b.ReportAllocs()
				if load.goroutines == 1 {
					ctx := context.Background()
					for b.Loop() {
						if err := s.cycle(ctx); err != nil {
							fail(b, err)
						}
					}
					return
				}
				crowd(b, load.goroutines, s.hold(b), s.cycle)
			}})
		}
		contests = append(contests, c)
	}
	return contests
}
