package pooldriver

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/replica"
)

// Replica returns a context whose reads go to a replica of Config.Replicas: a statement whose text is known to read
// and do nothing else, and a transaction with ReadOnly: true that is not serializable. The primary serves everything
// else, whatever no replica can serve, and whatever belongs to an open transaction or session of the context's
// task, or to a *sql.Conn that has used the primary. Without replicas Replica changes nothing. See
// docs/replicas.md.
func Replica(ctx context.Context) context.Context { return replica.With(ctx) }

// ReadsMode says which reads go to a replica.
type ReadsMode uint8

const (
	// ReadsExplicit: those of a context of Replica.
	ReadsExplicit ReadsMode = iota
	// ReadsTx: also every transaction with ReadOnly: true that is not serializable.
	ReadsTx
	// ReadsAuto: also every statement outside of transactions whose text is known to read and do nothing else.
	ReadsAuto
)

var readsModes = [...]string{"explicit", "tx", "auto"}

// String is the mode as a DSN spells it.
func (m ReadsMode) String() string {
	if int(m) < len(readsModes) {
		return readsModes[m]
	}
	return fmt.Sprintf("ReadsMode(%d)", uint8(m))
}

// ReplicaFallback says whether the primary serves the reads that no replica can serve.
type ReplicaFallback uint8

const (
	// ReplicaFallbackOn: it does.
	ReplicaFallbackOn ReplicaFallback = iota
	// ReplicaFallbackOff: such a read gets ErrNoReplica.
	ReplicaFallbackOff
)

var replicaFallbacks = [...]string{"on", "off"}

// String is the value as a DSN spells it.
func (f ReplicaFallback) String() string {
	if int(f) < len(replicaFallbacks) {
		return replicaFallbacks[f]
	}
	return fmt.Sprintf("ReplicaFallback(%d)", uint8(f))
}

// ErrNoReplica is in the error of a read that no replica can serve, with ReplicaFallbackOff.
var ErrNoReplica = replica.ErrNone

// initReplicas makes the pools of the replicas. Nothing is opened.
func initReplicas(c *Connector, d dialects.Dialect) error {
	if len(c.config.Replicas) == 0 {
		return nil
	}
	t, ok := c.template.(dialects.ReplicaTemplate)
	if !ok {
		return fmt.Errorf("pooldriver: pool_replicas cannot be used with this %s connection: it works on PostgreSQL and MySQL, by New", d.Name())
	}
	list := c.config.Replicas
	if slices.Equal(list, []string{"auto"}) {
		var err error
		if list, err = t.Standbys(); err != nil {
			return fmt.Errorf("pooldriver: pool_replicas=auto: %w", err)
		}
	}
	c.replicas = replica.New(c.usage.Config, &c.source, c.engine)
	for _, host := range list {
		if err := addReplica(c, d, t, host); err != nil {
			return err
		}
	}
	return nil
}

// addReplica makes the pool of the replica at host.
func addReplica(c *Connector, d dialects.Dialect, from dialects.ReplicaTemplate, host string) error {
	t, err := from.Replica(host)
	if err != nil {
		return fmt.Errorf("pooldriver: pool_replicas: %w", err)
	}
	if err := c.config.fit(d, t); err != nil {
		return err
	}
	r := &replica.Replica{Host: host, Settings: c.settings}
	r.Settings.MaxConns = c.config.ReplicaMaxConns
	r.Settings.MinConns = min(c.config.MinConns, r.Settings.MaxConns)
	r.Settings.MinIdleConns = min(c.config.MinIdleConns, r.Settings.MaxConns)
	r.Report.Init(c.config.logger(), t.Target(), r.Settings.MaxConns, c.config.Observer.listener())
	r.Usage.Config, r.Usage.Clock = &r.Settings, c.usage.Clock
	r.Usage.Observed, r.Usage.TellSlow = c.usage.Observed, c.usage.TellSlow
	if err := c.replicas.Add(r, t); err != nil {
		return err
	}
	r.Engine.Pool().HeldBy = func() string { return heldBy(r.Engine, &c.config) }
	return nil
}

// connOf makes a connection for database/sql.
func connOf(ctx context.Context, c *Connector, closer func()) driver.Conn {
	if c.replicas != nil {
		return c.replicas.Conn(ctx, closer)
	}
	return c.source.Conn(ctx, closer)
}

// eachReplica calls f for each replica, and returns the joined errors.
func eachReplica(c *Connector, f func(*replica.Replica) error) error {
	if c.replicas == nil {
		return nil
	}
	var errs []error
	for _, r := range c.replicas.All {
		if err := f(r); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
