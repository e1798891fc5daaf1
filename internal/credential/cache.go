// Package credential caches rotating credentials: one call of the source serves all
// dials, and the next credential is fetched before the last one expires.
package credential

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
)

const (
	// renewPause is the pause between two tries to renew a credential.
	renewPause = 5 * time.Second
	// undatedPause is the pause between two changes of undated credentials that replace
	// connections.
	undatedPause = time.Minute
)

// Source supplies a credential. It is the program's code.
type Source func(context.Context) (dialects.Credential, error)

// turn is a lock with a context. It is held while the source runs.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the credential source, which has not answered another dial yet: %w", ctx.Err())
	}
}

func (t turn) giveBack() { <-t }

// InTurn returns a source whose calls never overlap, however many caches ask it: those of a primary and its replicas do.
// It is nil if source is.
func InTurn(source Source) Source {
	if source == nil {
		return nil
	}
	asking := newTurn()
	return func(ctx context.Context) (dialects.Credential, error) {
		if err := asking.take(ctx); err != nil {
			return dialects.Credential{}, err
		}
		defer asking.giveBack()
		return source(ctx)
	}
}

// Cache keeps the last credential of a source. It is safe for concurrent use. A method may be
// called on a nil Cache only if its comment says so.
type Cache struct {
	source Source
	ctx    context.Context // ends with the cache
	end    context.CancelFunc
	asking turn
	// expiring is called on its own goroutine when the credential must be renewed.
	expiring func()

	mu       sync.Mutex // protects following fields, which change while asking is held
	current  *dialects.Credential
	serial   uint64    // counts the credentials that the source has given
	calls    int       // completed calls of the source, except those whose caller gave up
	failed   error     // of the last call; nil if it gave a credential
	expires  time.Time // of current, by this process's clock; zero: not known
	renew    time.Time // when to ask for the next credential
	replaced time.Time // when connections were last replaced
	// owed: an undated credential changed soon after another change. Connections must be replaced
	// once more.
	owed bool

	timer    *time.Timer // calls expiring
	renewing bool        // expiring runs
}

// New returns a cache of what source gives. expiring is called, on its own goroutine,
// when Renew is due.
func New(source Source, expiring func()) *Cache {
	c := &Cache{source: source, expiring: expiring, asking: newTurn()}
	c.ctx, c.end = context.WithCancel(context.Background())
	c.ctx.Done() // makes the channel now: later it could belong to a bubble of testing/synctest
	return c
}

// Context ends when the cache is closed.
func (c *Cache) Context() context.Context { return c.ctx }

// Close stops the renewals. A nil Cache may be closed.
func (c *Cache) Close() {
	if c == nil {
		return
	}
	c.end()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wakeLocked(0)
}

// Get returns a credential that is valid now. refused is the serial of a credential
// that the server has refused, 0 if none. changed reports that the source gave another
// user or password than before: connections made with the old one must be replaced.
func (c *Cache) Get(ctx context.Context, refused uint64) (cred dialects.Credential, serial uint64, changed bool, err error) {
	cred, serial, calls, ok := c.good(refused)
	if ok {
		return cred, serial, false, nil
	}
	if err := c.asking.take(ctx); err != nil {
		return cred, 0, false, err
	}
	defer c.asking.giveBack()
	// A call that ended while we waited is as good as our own call.
	cred, serial, ok, err = c.answer(calls, refused)
	if ok || err != nil {
		return cred, serial, false, err
	}
	if changed, err = c.fetch(ctx); err != nil {
		return cred, 0, false, err
	}
	if ctx.Err() != nil {
		return cred, 0, changed, fmt.Errorf("the credential source took all the time of the dial: %w", ctx.Err())
	}
	cred, serial, _, err = c.answer(-1, refused)
	return cred, serial, changed, err
}

// good returns the cached credential if it has not expired, and starts the renewal
// when that is due.
func (c *Cache) good(refused uint64) (cred dialects.Credential, serial uint64, calls int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.current == nil || c.serial == refused || !now.Before(c.expires) {
		return dialects.Credential{}, 0, c.calls, false
	}
	if !now.Before(c.renew) && c.timer == nil && !c.renewing {
		c.wakeLocked(1)
	}
	return *c.current, c.serial, c.calls, true
}

// answer returns the outcome of a call of the source that completed after the first
// since calls. ok is false if there is no such call.
func (c *Cache) answer(since int, refused uint64) (cred dialects.Credential, serial uint64, ok bool, _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.calls == since:
		return cred, 0, false, nil
	case c.failed != nil:
		return cred, 0, false, c.failed
	case c.serial == refused:
		return cred, 0, false, nil
	}
	return *c.current, c.serial, true, nil
}

// Renew asks the source for the next credential, unless somebody has asked already.
func (c *Cache) Renew(ctx context.Context) (changed bool, err error) {
	if err := c.asking.take(ctx); err != nil {
		return false, err
	}
	defer c.asking.giveBack()
	c.mu.Lock()
	wait := time.Until(c.renew)
	if wait > 0 {
		c.wakeLocked(wait)
	}
	c.mu.Unlock()
	if wait > 0 {
		return false, nil
	}
	return c.fetch(ctx)
}

// fetch asks the source. The caller holds asking.
func (c *Cache) fetch(ctx context.Context) (changed bool, _ error) {
	next, err := c.source(ctx)
	now := time.Now()
	switch {
	case err != nil:
		err = fmt.Errorf("the credential source failed: %w", err)
	case !next.Expires.IsZero() && !now.Before(next.Expires):
		err = fmt.Errorf("the credential source gave a credential that expired %v ago", now.Sub(next.Expires).Round(time.Second))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil { // else the error may concern only this caller
			c.failed = err
			c.calls++
		}
		if !c.expires.IsZero() {
			c.wakeLocked(renewPause)
		}
		return false, err
	}
	changed = c.current != nil && (c.current.User != next.User || c.current.Password != next.Password)
	c.current, c.failed = &next, nil
	c.serial++
	c.calls++
	c.expires, c.renew = time.Time{}, time.Time{}
	if next.Expires.IsZero() {
		c.wakeLocked(0)
		changed = changed || c.owed
		c.owed = changed && !c.replaced.IsZero() && now.Sub(c.replaced) < undatedPause
		changed = changed && !c.owed
	} else {
		lasts := next.Expires.Sub(now)
		c.expires, c.renew = now.Add(lasts), now.Add(renewal(lasts))
		c.wakeLocked(renewal(lasts))
	}
	if changed {
		c.replaced, c.owed = now, false
	}
	return changed, nil
}

// wakeLocked schedules the only call of expiring. An after of zero cancels it.
func (c *Cache) wakeLocked(after time.Duration) {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	if after <= 0 || c.ctx.Err() != nil {
		return
	}
	var own *time.Timer
	own = time.AfterFunc(after, func() {
		c.mu.Lock()
		if c.timer != own {
			c.mu.Unlock()
			return
		}
		c.timer, c.renewing = nil, true
		c.mu.Unlock()
		defer func() {
			c.mu.Lock()
			c.renewing = false
			c.mu.Unlock()
		}()
		c.expiring()
	})
	c.timer = own
}

// renewal is the age at which a credential is renewed: a minute before it expires, or
// after four fifths of its time if that is later.
func renewal(lasts time.Duration) time.Duration {
	return max(lasts-time.Minute, lasts*4/5)
}
