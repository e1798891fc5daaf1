package pooldriver

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/credential"
	"github.com/pooldriver/pooldriver/internal/dbsettings"
	"github.com/pooldriver/pooldriver/internal/registry"
	"github.com/pooldriver/pooldriver/internal/report"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/textcache"
	"github.com/pooldriver/pooldriver/internal/usage"
	"github.com/pooldriver/pooldriver/pool"
)

// core is what the checkouts of a Connector share: the pool of real connections, and what
// decides on them.
type core struct {
	// The fields that every statement reads come first, close together.

	pool   *pool.Pool[*realConn]
	traits dialects.Traits
	config Config
	env    session.Env

	dialect  dialects.Dialect
	template dialects.Template

	credentials    *credential.Cache // nil: the DSN's
	poolGeneration atomic.Uint64
	real           registry.Registry[*realConn] // from before their dial to after their end
	restoring      atomic.Int64                 // connections on their way back, behind their borrowers
	report         report.Report
	usage          usage.Env
	numbers        atomic.Uint64 // of connections
	leaks          leakWatch
	generations    stmtcache.Generations
	starvation     starvation
	host           atomic.Pointer[string] // the last one dialled, of several
	keyedTasks     task.Keyed
	taskKey        task.KeyFunc // nil: there is none
	settings       dbsettings.List
	closingIdle    atomic.Bool // Close has begun
	// hiddenValidator: the log knows of a wrapper that keeps IsValid from us.
	hiddenValidator atomic.Bool
	draining        atomic.Bool
	unattached      atomic.Int64              // what has begun and has no connection now; see drain.go
	proven          atomic.Pointer[time.Time] // when Ready has last asked a server

	texts textcache.Cache // far larger than the rest
}

// use completes the connector. Nothing is opened.
func (c *core) use(d dialects.Dialect, t dialects.Template, options []Option) error {
	for i, o := range options {
		if o == nil {
			return fmt.Errorf("pooldriver: option %d is nil", i+1)
		}
		o(&c.config)
	}
	if err := c.config.check(); err != nil {
		return fmt.Errorf("pooldriver: %w", err)
	}
	if c.config.Credentials != nil && !t.TakesCredential() {
		return fmt.Errorf("pooldriver: Config.Credentials cannot be used with this %s connection: user and password do not come from us", d.Name())
	}
	if err := c.useDial(d, t); err != nil {
		return err
	}
	if own, ok := t.(dialects.OwnDialect); ok {
		d = own.Dialect()
	}
	c.dialect, c.template, c.traits = d, t, t.Traits()
	c.settings.Init(d)
	if source := c.config.Credentials; source != nil {
		c.credentials = credential.New(credential.Source(source), c.renewCredential)
	}
	if asker, ok := t.(dialects.CredentialAsker); ok && c.credentials != nil {
		asker.AskCredentials(c.credentialOfNow)
	}
	c.report.Init(c.config.logger(), t.Target(), c.config.Observer.listener())
	c.taskKey = c.guardedKey()
	c.leaks.core = c
	c.env = c.sessionEnv()
	c.usage.Clock, c.usage.EveryStack, c.usage.Observed = usage.NewClock(), c.config.SampleStacks, c.report.HearsReleased()
	p, err := pool.New(c.poolConfig())
	if err != nil {
		return fmt.Errorf("pooldriver: %w", err)
	}
	c.pool = p
	return nil
}

// sessionEnv is what all sessions share.
func (c *core) sessionEnv() session.Env {
	buffer, total := c.config.NestedBuffer, c.config.NestedBufferTotal
	return session.Env{
		Dialect:      c.dialect,
		Statements:   c.config.stmtsPerConn(),
		CleanTimeout: c.config.CleanTimeout,
		PingTimeout:  c.config.PingTimeout,
		IdleTimeout:  c.config.idleTimeout(),
		Buffer:       buffer,
		BufferTotal:  max(total, buffer),
		// Reading ahead for those who wait may be in vain, and must not use up what tasks
		// need for their own statements: those get an error where there is no room, and
		// who waits only waits on.
		BufferOthers: max(total/2, buffer),
		Buffered:     &c.report.Buffered,
		ReadAheads:   &c.report.ReadAheads,
	}
}

// poolConfig says what the pool does with real connections; lifecycle.go has the functions.
// The pool does not roll back and clean: takeBack and evict do (cleaning.go).
func (c *core) poolConfig() pool.Config[*realConn] {
	p := pool.Config[*realConn]{
		Create:           c.create,
		Denied:           c.refusesUs,
		Full:             c.serverFull,
		FreshCredentials: c.credentials != nil,
		Destroy:          c.destroy,
		Destroying:       c.destroying,
		Check:            c.healthy,
		CheckUnused:      c.traits.RoleMatters, // else a first write would go to what was the primary
		Preserve:         func(r *realConn) bool { return r.Irreplaceable() },
		BeforeAcquire:    c.ready,
		Min:              c.config.MinConns,
		MinIdle:          c.config.MinIdleConns,
		Max:              c.config.MaxConns,
		CheckInterval:    orNever(c.config.HealthCheckPeriod),
		MaxLifetime:      orNever(c.config.MaxConnLifetime),
		Jitter:           orNever(c.config.jitter()),
		MaxIdleTime:      orNever(c.config.MaxConnIdleTime),
		AcquireTimeout:   orNever(c.config.AcquireTimeout),
		CreateTimeout:    c.config.ConnectTimeout,
		CheckTimeout:     c.config.PingTimeout,
		DestroyTimeout:   c.destroyTimeout(),
		MaxWaiters:       c.config.MaxWaiters,
		Starving:         c.starving,
		StarveAfter:      starveAfter,
	}
	if c.config.BreakerFailures > 0 {
		p.Strategy = pool.ConsecutiveFailures(c.config.BreakerFailures, c.config.BreakerCooldown)
	}
	return p
}

// destroyTimeout is how long a connection that is being closed may occupy its place.
func (c *core) destroyTimeout() time.Duration {
	if c.traits.CloseWrites {
		return -1
	}
	return destroyTimeout + time.Second
}

// orNever translates our 0 ("never") to the pool's, whose 0 is its default.
func orNever(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}
