package pooldriver

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/credential"
	"github.com/pooldriver/pooldriver/internal/pinning"
	"github.com/pooldriver/pooldriver/internal/report"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/textcache"
	"github.com/pooldriver/pooldriver/internal/usage"
)

// core is what the checkouts of a Connector share: the pool of real connections, and what
// decides on them.
type core struct {
	// The fields that every statement reads come first, close together.

	pool   *connpool.Pool
	traits dialects.Traits
	config Config
	env    session.Env

	dialect  dialects.Dialect
	template dialects.Template

	report      report.Report
	usage       usage.Env
	leaks       leakWatch
	generations stmtcache.Generations
	starvation  starvation
	keyedTasks  task.Keyed
	taskKey     task.KeyFunc // nil: there is none
	// hiddenValidator: the log knows of a wrapper that keeps IsValid from us.
	hiddenValidator atomic.Bool
	// unattached counts what has begun and is without a connection for a while: a transaction
	// that was deferred and has run no statement, and a statement that moves from a dead
	// connection to another one. It counts both from before they have no connection until they
	// have one again or are over. Nothing that is new comes to be counted once the pool drains: a
	// deferred transaction is counted first and looks at draining then.
	unattached atomic.Int64

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
	c.report.Init(c.config.logger(), t.Target(), c.config.Observer.listener())
	c.taskKey = c.guardedKey()
	c.leaks.core = c
	c.env = c.sessionEnv()
	c.usage.Clock, c.usage.EveryStack, c.usage.Observed = usage.NewClock(), c.config.SampleStacks, c.report.HearsReleased()
	p, err := connpool.New(c.connpoolConfig(), &c.report)
	c.pool = p
	return err
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

// connpoolConfig says how the real connections are made, and what they tell their borrowers.
func (c *core) connpoolConfig() connpool.Config {
	config := &c.config
	return connpool.Config{
		Dialect: c.dialect, Template: c.template, Session: c.env, Usage: &c.usage,
		Limits: connpool.Limits{
			Max: config.MaxConns, Min: config.MinConns, MinIdle: config.MinIdleConns, MaxWaiters: config.MaxWaiters,
			AcquireTimeout: config.AcquireTimeout, ConnectTimeout: config.ConnectTimeout,
			PingTimeout: config.PingTimeout, CleanTimeout: config.CleanTimeout,
			HealthCheckPeriod: config.HealthCheckPeriod, MaxLifetime: config.MaxConnLifetime,
			Jitter: config.jitter(), MaxIdleTime: config.MaxConnIdleTime,
			BreakerFailures: config.BreakerFailures, BreakerCooldown: config.BreakerCooldown,
		},
		Reset:        pinning.Mode(config.Reset),
		AfterConnect: config.AfterConnect,
		Credentials:  credential.Source(config.Credentials),
		Starving:     c.starving,
		StarveAfter:  starveAfter,
		NewSeat:      newRealConn,
		HeldBy:       c.heldBy,
	}
}

// drain is Connector.Drain.
func (c *core) drain(ctx context.Context) error {
	err := c.pool.Drain(ctx, connpool.Begun{Unattached: c.unattached.Load, Holders: c.holders})
	if err == nil {
		c.leaks.stop()
	}
	return err
}

func (c *core) close() {
	c.leaks.stop() // Close may wait, and what comes back then is no leak
	c.pool.Close()
}

// guardedKey is Config.TaskKey with a guard. A statement whose task is not known is refused.
func (c *core) guardedKey() task.KeyFunc {
	of := c.config.TaskKey
	if of == nil {
		return nil
	}
	return func(ctx context.Context) (key any, lifetime context.Context) {
		var err error
		defer func() {
			if err != nil {
				key, lifetime = task.NoKey{Why: err}, ctx
			}
		}()
		defer c.report.Guarded("Config.TaskKey", &err)
		return of(ctx)
	}
}

// useDial gives Config.Dial to the template.
func (c *core) useDial(d dialects.Dialect, t dialects.Template) error {
	if c.config.Dial == nil {
		return nil
	}
	network, ok := t.(dialects.NetworkTemplate)
	if !ok {
		return fmt.Errorf("pooldriver: Config.Dial cannot be used with this %s connection: pooldriver opens no network connection for it; leave Config.Dial out, or use New with a DSN for PostgreSQL or MySQL", d.Name())
	}
	network.DialNetworkBy(connpool.BoundedDial(c.config.Dial))
	return nil
}
