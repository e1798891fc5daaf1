package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Where one goroutine talks to one server process, either the one is at work or the
// other. Left to itself the operating system lets the two share a processor for a
// while, or not, and a query takes 0.7 to 1.4 times as long by that. So each gets half
// of the processors to itself, as it has them on a machine of its own.

// standApart gives the server half of the processors and the bench the other half,
// and keeps all of them awake, until together is called. With a single processor it
// does nothing.
func (s *server) standApart(ctx context.Context) (together func() error, err error) {
	if _, err := s.start(); err != nil {
		return nil, err
	}
	all, err := processors()
	if err != nil || len(all) < 2 {
		return func() error { return nil }, err
	}
	before, half := runtime.GOMAXPROCS(0), len(all)/2
	rest := func() {}
	if s.awake {
		if rest, err = keepAwake(all); err != nil {
			return nil, err
		}
	}
	together = func() error {
		rest()
		err := errors.Join(keepTo(all, before), s.running.Confine(context.WithoutCancel(ctx), setOf(all)))
		if err != nil {
			return fmt.Errorf("the processors were not given back, and what follows may have fewer: %w", err)
		}
		return nil
	}
	if err := errors.Join(keepTo(all[:half], half), s.running.Confine(ctx, setOf(all[half:]))); err != nil {
		return nil, errors.Join(err, together())
	}
	return together, nil
}

// processors are those that this process may use.
func processors() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	var all []int
	for i := 0; len(all) < set.Count(); i++ {
		if set.IsSet(i) {
			all = append(all, i)
		}
	}
	return all, nil
}

// keepTo lets this process use some processors only, with so many Ps.
func keepTo(processors []int, ps int) error {
	runtime.GOMAXPROCS(ps)
	var set unix.CPUSet
	for _, p := range processors {
		set.Set(p)
	}
	return eachThread(func(id int) error { return unix.SchedSetaffinity(id, &set) })
}

// eachThread calls f for every thread of this process that lives on. Threads inherit
// what f does from the one that makes them, so once is enough, unless one is made
// meanwhile by one whose turn is still to come.
func eachThread(f func(id int) error) error {
	for range 2 {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				return err
			}
			if err := f(id); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
	}
	return nil
}

// setOf is how Linux writes a set of processors.
func setOf(processors []int) string {
	var names []string
	for _, p := range processors {
		names = append(names, strconv.Itoa(p))
	}
	return strings.Join(names, ",")
}
