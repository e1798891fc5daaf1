package pooldriver

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
)

// Credential is a user and password together, with the time until which they
// are good. It prints without the password; fmt cannot know that of one in an
// unexported field of another struct.
type Credential = dialects.Credential

// CredentialSource supplies user and password for new connections: from a
// vault or a file, or tokens made on the spot (IAM).
//
// A credential that says when it expires serves all dials until then. Shortly
// before, the source is asked for the next one, beside the dials, if there are
// connections that were made with it. One that does not say (Credential.Expires
// is zero) serves the dials that were waiting for it, and each later dial asks
// again: that the password has changed is learned in no other way.
//
// If the server refuses what the source gave, the dial asks it once more and
// tries once more. Calls never overlap. An error fails the dials that wait for
// the answer; open connections go on, and so does what has not expired. When the
// source gives another user or password than before, the connections made with
// the old one are replaced as they come back; where it does not say until when its
// answers are good, at most once a minute, because they may be tokens that differ
// each time. The context is bounded by Config.ConnectTimeout.
type CredentialSource func(ctx context.Context) (Credential, error)

const (
	// renewPause is between two tries to renew a credential.
	renewPause = 5 * time.Second
	// undatedPause is between two changes of undated credentials that replace
	// connections.
	undatedPause = time.Minute
)

// credentials keeps what a source gave.
type credentials struct {
	source CredentialSource
	ctx    context.Context // ends with the connector
	end    context.CancelFunc
	// turn is a lock that can be waited for with a context. It is held while
	// the source, foreign code, runs.
	turn chan struct{}
	// expiring is called, on a goroutine of its own, when it is time to renew.
	expiring func()

	mu       sync.Mutex // protects following fields, which change under turn
	current  *Credential
	serial   uint64    // counts what the source has given
	calls    int       // of the source that have ended, but for those whose caller gave up
	failed   error     // of the last one, nil if it gave something
	expires  time.Time // of current, by this process's clock; zero: not known
	renew    time.Time // when to ask for the next one
	replaced time.Time // when connections were last replaced
	owed     bool      // to replace them once more: an undated one changed soon after

	timer    *time.Timer // that calls expiring
	renewing bool        // it has
}

func newCredentials(source CredentialSource, expiring func()) *credentials {
	if source == nil {
		return nil
	}
	c := &credentials{source: source, expiring: expiring, turn: make(chan struct{}, 1)}
	c.ctx, c.end = context.WithCancel(context.Background())
	return c
}

// close ends what goes on beside the dials.
func (c *credentials) close() {
	if c == nil {
		return
	}
	c.end()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wakeLocked(0)
}

// get returns a credential that is good now. refused is the serial of one that
// the server did not take, 0 if none. changed tells that the source gave another
// user or password than before, for which connections are to be replaced.
func (c *credentials) get(ctx context.Context, refused uint64) (cred Credential, serial uint64, changed bool, err error) {
	cred, serial, calls, ok := c.good(refused)
	if ok {
		return cred, serial, false, nil
	}
	if err := c.lock(ctx); err != nil {
		return cred, 0, false, err
	}
	defer c.unlock()
	// A call that ended while we waited is as good as one of our own.
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

// good returns the credential that is known to be good for some time, if there is
// one, and sees to the next one.
func (c *credentials) good(refused uint64) (cred Credential, serial uint64, calls int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.current == nil || c.serial == refused || !now.Before(c.expires) {
		return Credential{}, 0, c.calls, false
	}
	if !now.Before(c.renew) && c.timer == nil && !c.renewing {
		c.wakeLocked(1)
	}
	return *c.current, c.serial, c.calls, true
}

// answer returns what a call of the source has given since so many had ended.
func (c *credentials) answer(since int, refused uint64) (cred Credential, serial uint64, ok bool, _ error) {
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

// renewDue is get for the next one to come, unless somebody has asked already.
func (c *credentials) renewDue(ctx context.Context) (changed bool, err error) {
	if err := c.lock(ctx); err != nil {
		return false, err
	}
	defer c.unlock()
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

func (c *credentials) lock(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the credential source, which has not answered another dial yet: %w", ctx.Err())
	}
}

func (c *credentials) unlock() { <-c.turn }

// fetch gets the next credential. Its caller has the turn.
func (c *credentials) fetch(ctx context.Context) (changed bool, _ error) {
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
		if ctx.Err() == nil { // else it may be about this caller alone
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

// wakeLocked has expiring called after that time, and no more at another one; not
// at all if it is zero.
func (c *credentials) wakeLocked(after time.Duration) {
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

// renewal is after which part of its time to ask for the next credential: a minute
// before this one expires, or after four fifths of its time if that is later.
func renewal(lasts time.Duration) time.Duration {
	return max(lasts-time.Minute, lasts*4/5)
}

// credential returns what a dial is to use, a copy of its own. Connections made
// with another one are replaced as they come back, but not the one that ctx, the
// pool's, is for.
func (c *Connector) credential(ctx context.Context, refused uint64) (*Credential, uint64, error) {
	cred, serial, changed, err := c.credentials.get(ctx, refused)
	if changed {
		c.pool.FlushOthers(ctx)
	}
	if err != nil {
		return nil, 0, err
	}
	return &cred, serial, nil
}

// renewCredential asks the source for the next credential before this one
// expires, so that no connection outlives its credential for want of a dial. If
// the source fails it is asked again, and connections go on.
func (c *Connector) renewCredential() {
	if c.open.Load() == 0 {
		return // the next dial asks
	}
	ctx, cancel := context.WithTimeout(c.credentials.ctx, c.config.ConnectTimeout)
	defer cancel()
	var panicked error // the next dial reports it
	defer c.guardSource(&panicked)
	changed, err := c.credentials.renewDue(ctx)
	if err != nil && c.credentials.ctx.Err() == nil {
		c.log.Warn("pooldriver: no new credential; open connections go on", "target", c.template.Target(), "error", err)
	}
	if changed {
		c.pool.Flush()
	}
}

// credentialOfNow is for what is to be ended on the server beside the dials: the
// killer of a dialect, on the goroutine that closes a connection.
func (c *Connector) credentialOfNow(ctx context.Context, refused Credential) (_ Credential, err error) {
	if err := c.credentials.ctx.Err(); err != nil {
		return refused, err // the program has closed us, and perhaps its source
	}
	ctx, j := join(ctx, c.credentials.ctx)
	defer j.free()
	defer c.guardSource(&err)
	cred, serial, err := c.credential(ctx, 0)
	if err == nil && !cred.Expires.IsZero() && cred.User == refused.User && cred.Password == refused.Password {
		cred, _, err = c.credential(ctx, serial) // the server did not wait for its end
	}
	if err != nil {
		return refused, err
	}
	return *cred, nil
}

// guardSource, deferred, makes an error of a panic of the source on a goroutine
// that is no dial's: those are the pool's to guard.
func (c *Connector) guardSource(err *error) {
	if v := recover(); v != nil {
		*err = errors.New("the credential source panicked")
		c.log.Error("pooldriver: the credential source panicked", "target", c.template.Target(), "stack", string(debug.Stack()))
	}
}
