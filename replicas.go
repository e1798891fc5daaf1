package pooldriver

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/binding"
	"github.com/pooldriver/pooldriver/internal/optiontable"
	"github.com/pooldriver/pooldriver/internal/replica"
	"github.com/pooldriver/pooldriver/pool"
)

// Replica returns a context whose reads go to a replica of Config.Replicas: a statement whose text is known to read
// and do nothing else, and a transaction with ReadOnly: true that is not serializable. The primary serves everything
// else, whatever no replica can serve, and whatever belongs to an open transaction or session of the context's
// task, or to a *sql.Conn that has used the primary. Without replicas Replica changes nothing. See
// docs/replicas.md.
func Replica(ctx context.Context) context.Context { return replica.MayServe(ctx, true) }

// Primary returns a context whose reads the primary serves, whatever Config.ReplicaReads says and Replica has said around it: for
// reads that must be of now, and for transactions that take advisory locks.
func Primary(ctx context.Context) context.Context { return replica.MayServe(ctx, false) }

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
func (m ReadsMode) String() string { return optiontable.WordOf(readsModes[:], m) }

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
func (f ReplicaFallback) String() string { return optiontable.WordOf(replicaFallbacks[:], f) }

// ErrNoReplica is in the error of a read that no replica can serve, with ReplicaFallbackOff.
var ErrNoReplica = replica.ErrNone

// ReplicaRead says what has become of a read that a replica may serve. It is a label for metrics.
type ReplicaRead string

// What has become of it. A replica has served the first two. The primary has served the others, unless Config.ReplicaFallback
// keeps those from it that no replica could serve.
const (
	ReplicaServed  ReplicaRead = "served"
	ReplicaWaited  ReplicaRead = "waited"     // the replica had to replay the writes of the context first
	ReplicaBehind  ReplicaRead = "behind"     // the replica has not replayed them within Config.ReplicaWait
	ReplicaWriting ReplicaRead = "writing"    // a transaction or rows of the context, which may write, are open
	ReplicaUnknown ReplicaRead = "unknown"    // how far a replica must have come is not known
	ReplicaLate    ReplicaRead = "late"       // Config.ReplicaMaxLag
	ReplicaDead    ReplicaRead = "dead"       // no connection to a replica could be had
	ReplicaNone    ReplicaRead = "no_standby" // the replica is no standby any more
	ReplicaJoined  ReplicaRead = "joined"     // a transaction or session that the read belongs to is on the primary
	ReplicaWrites  ReplicaRead = "not_read"   // the text is not known to read and do nothing else
	ReplicaRefused ReplicaRead = "refused"    // the replica has refused the statement: it writes, or is in the way of the replication
)

// ReplicaStats describes the replicas of a Connector at a moment.
type ReplicaStats struct {
	// Reads counts the reads that a replica may serve, by what has become of them. A transaction is one read, and so
	// is the preparation of a statement. Reads has an entry for each ReplicaRead.
	Reads map[ReplicaRead]uint64
	// Wait is the time for which reads have waited for a replica that had not replayed the writes of their context.
	Wait Histogram
	// Pools are the pools of the replicas, in the order of Config.Replicas.
	Pools []ReplicaPool
}

// ReplicaPool describes one replica at a moment. What is known of the server is up to a second old.
type ReplicaPool struct {
	Host string
	// State is ReplicaServed if the replica serves, or the reason why not. Since is when Stats, or a second in which the Connector
	// was in use, first found it so.
	State ReplicaRead
	Since time.Time
	Lag   time.Duration // how far it is behind; negative: not known
	Pool  pool.Stats
	// Failing describes the dials to the replica, or the questions how far it is, since the last that has succeeded.
	Failing DialsFailing
}

// replicaStats are the figures of a Connector's replicas.
func replicaStats(c *Connector) ReplicaStats {
	s := c.replicas
	to := ReplicaStats{Reads: map[ReplicaRead]uint64{}}
	for why := range replica.Reason(replica.Reasons) {
		n := uint64(0)
		if s != nil {
			n = s.Reads[why].Load()
		}
		to.Reads[ReplicaRead(why.String())] = n
	}
	if s == nil {
		return to
	}
	to.Wait = Histogram(s.Wait.Snapshot())
	for _, r := range s.All {
		state, since, lag := r.State()
		to.Pools = append(to.Pools, ReplicaPool{r.Host, ReplicaRead(state.String()), since, lag, r.Engine.Pool().Stats(), dialsFailing(c, r.Failing())})
	}
	return to
}

// enginesOf yields the engines of a Connector: with an empty name that of the primary, and with its host that of each
// replica.
func enginesOf(c *Connector) iter.Seq2[string, *binding.Engine] {
	return func(yield func(string, *binding.Engine) bool) {
		if !yield("", c.engine) {
			return
		}
		for _, r := range replicasOf(c) {
			if !yield(r.Host, r.Engine) {
				return
			}
		}
	}
}

// initReplicas makes the pools of the replicas. Nothing is opened.
func initReplicas(c *Connector, d dialects.Dialect) error {
	if len(c.config.Replicas) == 0 || hasNoStandby(c) {
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
	c.replicas = replica.New(c.usage.Config, c.engine)
	c.source.Replicas = c.replicas
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
	r.Settings.LazyBegin = false // a transaction that has begun cannot go to the primary any more
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

// replicasOf are the replicas of a Connector.
func replicasOf(c *Connector) []*replica.Replica {
	if c.replicas == nil {
		return nil
	}
	return c.replicas.All
}
