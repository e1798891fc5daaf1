package pooldriver

import (
	"context"
	"database/sql/driver"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/beneath"
	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/observe/report"
	"github.com/pooldriver/pooldriver/pool"
)

// This file gives package sandbox its access to a Connector.

// inside is the access to a Connector in which New or Wrap has found no mistake.
type inside struct{ c *Connector }

func (i inside) Config() *config.Config      { return &i.c.settings }
func (i inside) Template() dialects.Template { return i.c.template }

func (i inside) LastStatement(process uint64) (outline string, ours bool) {
	for _, h := range i.c.Holders() {
		if h.ProcessID == process {
			return h.Statement, true
		}
	}
	return "", false
}

// Take takes a connection with the settings of the *sql.DB.
func (i inside) Take(ctx context.Context) (beneath.Taken, error) {
	r, err := i.c.pool.Acquire(ctx, nil, pool.PriorityHigh)
	if err != nil {
		return nil, i.c.pool.Explain(err)
	}
	if err := i.c.pool.BringUp(ctx, r); err != nil {
		return nil, err
	}
	return taken{r}, nil
}

type taken struct{ r *connpool.Conn }

func (t taken) Session() dialects.Session { return t.r.Session.Server() }

func (t taken) GiveBack(effect dialects.Effect) {
	t.r.Session.RecordEffect(effect)
	t.r.GiveBackNow(nil)
}

func (t taken) Discard() { t.r.Discard(report.Lost) }

// ConnectorOver copies the configuration, without the fields for real connections: this Connector has opened
// the real connections already.
func (i inside) ConnectorOver(t dialects.Template, o beneath.Over) driver.Connector {
	c := &Connector{config: i.c.config}
	c.config.MaxConns, c.config.MinConns, c.config.MinIdleConns, c.config.MaxWaiters = 1, 0, 0, 0
	c.config.MaxConnLifetime, c.config.MaxConnLifetimeJitter, c.config.MaxConnIdleTime = 0, 0, 0
	c.config.HealthCheckPeriod, c.config.BreakerFailures, c.config.LeakAfter = 0, 0, 0
	c.config.Credentials, c.config.Dial, c.config.Replicas = nil, nil, nil
	c.config.SampleStacks, c.config.AcquireTimeout, c.config.Pipeline = 1, o.Patience, 0
	c.err = c.init(i.c.settings.Dialect, t, nil)
	c.source.Inside, c.source.Watch = nil, o.Watch
	return c
}
