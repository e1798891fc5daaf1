// Package fairlock is a mutex that callers get in the order of arrival. A context can end the wait.
package fairlock

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Mutex is a mutual exclusion lock. Unlock hands it directly to the first waiter, so
// nobody overtakes. The zero value is unlocked. A Mutex must not be copied after first
// use.
type Mutex struct {
	// state leaves contended only under mu. So a caller that finds state unlocked overtakes nobody.
	state   atomic.Int32
	mu      sync.Mutex // protects following fields
	waiting []chan struct{}
}

const (
	unlocked int32 = iota
	locked
	contended // locked, and others wait
)

// TryLock locks m if it is unlocked, and reports whether it did.
func (m *Mutex) TryLock() bool { return m.state.CompareAndSwap(unlocked, locked) }

// Lock locks m. If ctx ends first it returns ctx's error, and m is not locked by the
// caller. If m is unlocked, Lock locks m even if ctx has ended.
func (m *Mutex) Lock(ctx context.Context) error {
	if m.TryLock() {
		return nil
	}
	return m.lockSlow(ctx)
}

// lockSlow is Lock under contention, so that Lock is inlined.
func (m *Mutex) lockSlow(ctx context.Context) error {
	m.mu.Lock()
	if m.TryLock() || m.state.Swap(contended) == unlocked {
		// Unlocked meanwhile. Nobody waits: a waiter would have got it.
		m.state.Store(locked)
		m.mu.Unlock()
		return nil
	}
	granted := make(chan struct{})
	m.waiting = append(m.waiting, granted)
	m.mu.Unlock()
	select {
	case <-granted:
		return nil
	case <-ctx.Done():
	}
	m.mu.Lock()
	i := slices.Index(m.waiting, granted)
	if i < 0 { // Unlock has given m to the caller at the same moment
		m.mu.Unlock()
		m.Unlock()
		return ctx.Err()
	}
	m.waiting = slices.Delete(m.waiting, i, i+1)
	if len(m.waiting) == 0 {
		m.state.Store(locked)
	}
	m.mu.Unlock()
	return ctx.Err()
}

// Unlock hands m to the first waiter, or unlocks it.
func (m *Mutex) Unlock() {
	if !m.state.CompareAndSwap(locked, unlocked) {
		m.unlockSlow()
	}
}

// unlockSlow is Unlock under contention, so that Unlock is inlined.
func (m *Mutex) unlockSlow() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.waiting) == 0 { // the last waiter has just left
		m.state.Store(unlocked)
		return
	}
	first := m.waiting[0]
	m.waiting = slices.Delete(m.waiting, 0, 1)
	if len(m.waiting) == 0 {
		m.state.Store(locked)
	}
	close(first)
}

// Locked reports whether somebody has m. The answer may be out of date when Locked returns.
func (m *Mutex) Locked() bool { return m.state.Load() != unlocked }

// Contended reports whether callers wait for m. The answer may be out of date when Contended
// returns.
func (m *Mutex) Contended() bool { return m.state.Load() == contended }
