package pooldriver

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/generic"
	"github.com/pooldriver/pooldriver/internal/binding"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/credential"
	"github.com/pooldriver/pooldriver/internal/history"
	"github.com/pooldriver/pooldriver/internal/pinning"
	"github.com/pooldriver/pooldriver/internal/report"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/unwrap"
	"github.com/pooldriver/pooldriver/internal/usage"
	"github.com/pooldriver/pooldriver/internal/virtual"
)

// This file makes a template from a DSN or a wrapped connector, and the parts of a Connector from the
// template.

// parse makes c the connector of a DSN.
func (c *Connector) parse(dsn string, options []Option) error {
	d, err := dialects.Find(dsn)
	if err != nil {
		return fmt.Errorf("pooldriver: %w", err)
	}
	t, err := d.Parse(dsn)
	if err != nil {
		return fmt.Errorf("pooldriver: the DSN for %s: %w", d.Name(), err)
	}
	if err := c.config.apply(t.PoolParams()); err != nil {
		return fmt.Errorf("pooldriver: %w", err)
	}
	return c.use(d, t, options)
}

// wrap makes c the connector that pools the connections of inner.
func (c *Connector) wrap(inner driver.Connector, options []Option) error {
	switch unwrap.Connector(inner).(type) {
	case nil:
		return errors.New("pooldriver: Wrap was given no connector")
	case *Connector:
		return errWrapSelf
	}
	d, t, err := dialects.Wrap(inner, generic.Dialect{})
	_, unknown := d.(generic.Dialect)
	if _, own := t.(dialects.OwnDialect); unknown && !own && err == nil {
		d, t, err = dialects.Wrap(unwrap.Shown(inner), generic.Dialect{})
	}
	if err != nil {
		return fmt.Errorf("pooldriver: Wrap: %w", err)
	}
	return c.use(d, t, options)
}

// use completes the connector. Nothing is opened.
func (c *Connector) use(d dialects.Dialect, t dialects.Template, options []Option) error {
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
		return fmt.Errorf("pooldriver: Config.Credentials cannot be used with this %s connection: pooldriver does not give it a user and password; leave Config.Credentials out, or use New with a DSN for PostgreSQL, MySQL or ODBC", d.Name())
	}
	if err := c.useDial(d, t); err != nil {
		return err
	}
	if own, ok := t.(dialects.OwnDialect); ok {
		d = own.Dialect()
	}
	c.dialect, c.template = d, t
	c.report.Init(c.config.logger(), t.Target(), c.config.MaxConns, c.config.Observer.listener())
	c.usage.Clock, c.usage.EveryStack, c.usage.Observed = usage.NewClock(), c.config.SampleStacks, c.report.HearsReleased()
	c.usage.Slow, c.usage.TellSlow = c.config.SlowQuery, c.tellSlow
	e, err := binding.New(c.bindingConfig(d, t), &c.report)
	if err != nil {
		return err
	}
	c.engine, c.pool = e, e.Pool()
	c.history.Init(func() history.Moment { return momentOf(c.pool.Stats(), &c.report.Counters) })
	c.usage.Clock.Started, c.report.DialEnded = c.history.Wake, c.history.Wake
	c.leaks.engine, c.leaks.report, c.leaks.after = e, &c.report, c.config.LeakAfter
	c.leaks.exempt = slices.Clone(c.config.LeakExempt)
	c.source.Init(virtual.Config{
		Dialect: d, Traits: t.Traits(), LazyBegin: c.config.LazyBegin, CleanTimeout: c.config.CleanTimeout,
	}, e, &c.report)
	return nil
}

// tellSlow logs a slow statement. It uses a goroutine: the caller has locked the connection, and a
// handler of the log may use the database.
func (c *Connector) tellSlow(q usage.SlowQuery) {
	go c.report.Slow(report.SlowQuery{
		Statement: c.engine.Outline(q.Text), Label: usage.Text(q.Label), Waited: q.Waited, Took: q.Took, Idle: q.Idle, Rows: q.Rows,
	})
}

// bindingConfig makes the configuration of the engine.
func (c *Connector) bindingConfig(d dialects.Dialect, t dialects.Template) binding.Config {
	config := binding.Config{
		Pool:          c.connpoolConfig(d, t),
		TaskKey:       c.guardedKey(),
		Ambient:       binding.Ambient(c.config.Ambient),
		TaskTimeout:   c.config.TaskTimeout,
		DeadlockAfter: c.config.DeadlockAfter,
	}
	if c.config.LeakAfter > 0 {
		config.Taken = c.leaks.watch
	}
	return config
}

// sessionEnv is what all sessions share.
func (c *Connector) sessionEnv(d dialects.Dialect) session.Env {
	buffer, total := c.config.NestedBuffer, c.config.NestedBufferTotal
	return session.Env{
		Dialect:      d,
		Statements:   c.config.stmtsPerConn(),
		CleanTimeout: c.config.CleanTimeout,
		PingTimeout:  c.config.PingTimeout,
		IdleTimeout:  c.config.idleTimeout(),
		Buffer:       buffer,
		BufferTotal:  max(total, buffer),
		// Rows that are read ahead for waiting statements may not help. They must not use up the
		// memory that tasks need for their own statements: without room a task's own statement
		// gets an error, but a waiting statement only waits longer.
		BufferOthers: max(total/2, buffer),
		Buffered:     &c.report.Buffered,
		ReadAheads:   &c.report.ReadAheads,
		Hits:         &c.report.StmtHits,
		Misses:       &c.report.StmtMisses,
		Generations:  &c.source.Generations,
	}
}

// connpoolConfig makes the configuration of the pool of real connections.
func (c *Connector) connpoolConfig(d dialects.Dialect, t dialects.Template) connpool.Config {
	config := &c.config
	return connpool.Config{
		Dialect: d, Template: t, Session: c.sessionEnv(d), Usage: &c.usage,
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
		HeldBy:       func() string { return heldBy(c.engine, config.NestedBuffer, config.NestedBufferTotal) },
	}
}

// guardedKey is Config.TaskKey with a guard. A statement whose task is not known is refused.
func (c *Connector) guardedKey() task.KeyFunc {
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
		defer c.report.Guarded("Config.TaskKey", nil, &err)
		return of(ctx)
	}
}

// useDial gives Config.Dial to the template.
func (c *Connector) useDial(d dialects.Dialect, t dialects.Template) error {
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
