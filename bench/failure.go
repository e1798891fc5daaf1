package main

import (
	"errors"
	"sync"
	"testing"
)

// failure is what went wrong in the turn that is running. testing.Benchmark
// does not pass on what b.Fatal was told.
var failure struct {
	mu  sync.Mutex
	err error // the first
}

// note makes the turn a failed one. Any goroutine of the turn may call it.
func note(b *testing.B, err error) {
	failure.mu.Lock()
	defer failure.mu.Unlock()
	if failure.err == nil {
		failure.err = err
	}
	b.Fail()
}

// fail ends the turn. Only the turn's own goroutine may call it.
func fail(b *testing.B, err error) {
	note(b, err)
	b.FailNow()
}

// takeFailure returns what went wrong, and forgets it.
func takeFailure() error {
	failure.mu.Lock()
	defer failure.mu.Unlock()
	err := failure.err
	failure.err = nil
	return err
}

var errUnsaid = errors.New("it failed and did not say why")
