package otelpooldriver

import (
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/semconv/v1.43.0/dbconv"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/pool"
)

// The reasons of events. Their values are those of pooldriver.Stats.
const (
	// ReasonKey is the attribute of pooldriver.connection.closed: a pooldriver.CloseReason.
	ReasonKey = attribute.Key("pooldriver.close.reason")
	// FailureKey is the attribute of pooldriver.acquire.failures: a pooldriver.AcquireFailure.
	FailureKey = attribute.Key("pooldriver.acquire.failure")
	// OutcomeKey is the attribute of pooldriver.replica.reads: a pooldriver.ReplicaRead.
	OutcomeKey = attribute.Key("pooldriver.replica.outcome")
	// ReplicaKey is the attribute of the other metrics of replicas: the host.
	ReplicaKey = attribute.Key("pooldriver.replica.host")
)

// counters are our own counters.
var counters = []struct {
	name, unit, description string
	value                   func(*figures) uint64
}{
	{"pooldriver.connection.create_errors", "{error}", "Dials that failed.", func(f *figures) uint64 { return f.DialErrors }},
	{"pooldriver.connection.orphans", "{connection}", "Connections whose end the server did not confirm.", func(f *figures) uint64 { return f.Orphans }},
	{"pooldriver.connection.cleanings", "{cleaning}", "Connections brought back to their state at connect.", func(f *figures) uint64 { return f.Cleanings }},
	{"pooldriver.connection.rollbacks", "{rollback}", "Transactions that were open when their connection came back.", func(f *figures) uint64 { return f.Rollbacks }},
	{"pooldriver.acquire.would_refuse", "{statement}", "Statements that pool_queue_dry has let pass.", func(f *figures) uint64 { return f.WouldRefuse }},
	{"pooldriver.operation.retries", "{operation}", "Operations moved to another connection because theirs was dead.", func(f *figures) uint64 { return f.Retries }},
	{"pooldriver.transaction.retries", "{transaction}", "Transactions of InTx that were run once more.", func(f *figures) uint64 { return f.TxRetries }},
	{"pooldriver.pipeline.queries", "{query}", "Queries that waited for a connection, and were answered in the pipeline of another one.", func(f *figures) uint64 { return f.Pipelined }},
	{"pooldriver.pipelines", "{pipeline}", "Pipelines that took queries along.", func(f *figures) uint64 { return f.Pool.Pipelines }},
	{"pooldriver.pipeline.repeats", "{query}", "Queries that were sent again, because they got no answer in a pipeline.", func(f *figures) uint64 { return f.PipelineRepeats }},
	{"pooldriver.rows.read_aheads", "{result}", "Results read into memory because their connection was needed.", func(f *figures) uint64 { return f.ReadAheads }},
	{"pooldriver.rows.reclaims", "{connection}", "Connections taken back from open rows for others that waited.", func(f *figures) uint64 { return f.Reclaims }},
	{"pooldriver.session.state_dropped", "{statement}", "Statements whose session state ended with them.", func(f *figures) uint64 { return f.StateDropped }},
	{"pooldriver.statement.cache.hits", "{lookup}", "Prepared statements that were found.", func(f *figures) uint64 { return f.StmtHits }},
	{"pooldriver.listen.notifications", "{notification}", "Notifications that the server has sent.", func(f *figures) uint64 { return f.Listen.Received }},
	{"pooldriver.listen.dropped", "{notification}", "Notifications that a listener was too slow to take.", func(f *figures) uint64 { return f.Listen.Dropped }},
	{"pooldriver.listen.gaps", "{gap}", "Gaps that listeners were told of, but for the first one of each.", func(f *figures) uint64 { return f.Listen.Gaps }},
	{"pooldriver.listen.losses", "{connection}", "Connections of listeners that were lost.", func(f *figures) uint64 { return f.Listen.Losses }},
	{"pooldriver.statement.cache.misses", "{lookup}", "Prepared statements that had to be prepared.", func(f *figures) uint64 { return f.StmtMisses }},
}

// addOurs adds our own instruments. begun has the present figures. Each reason in begun is shown
// from the beginning, so that the first event is an increase.
func (a *observers) addOurs(meter metric.Meter, pool attribute.KeyValue, begun *pooldriver.Stats) error {
	for _, m := range counters {
		counter, err := meter.Int64ObservableCounter(m.name, metric.WithUnit(m.unit), metric.WithDescription(m.description))
		if err != nil {
			return err
		}
		a.add(counter, func(f *figures) int64 { return int64(m.value(f)) }, pool)
	}
	closed, err := meter.Int64ObservableCounter("pooldriver.connection.closed", metric.WithUnit("{connection}"),
		metric.WithDescription("Connections that were closed, by reason."))
	if err != nil {
		return err
	}
	for why := range begun.Closed {
		a.add(closed, func(f *figures) int64 { return int64(f.Closed[why]) }, pool, ReasonKey.String(string(why)))
	}
	failed, err := meter.Int64ObservableCounter("pooldriver.acquire.failures", metric.WithUnit("{statement}"),
		metric.WithDescription("Statements that got no connection, by reason."))
	if err != nil {
		return err
	}
	for why := range begun.AcquireFailures {
		a.add(failed, func(f *figures) int64 { return int64(f.AcquireFailures[why]) }, pool, FailureKey.String(string(why)))
	}
	reads, err := meter.Int64ObservableCounter("pooldriver.replica.reads", metric.WithUnit("{read}"),
		metric.WithDescription("Reads that a replica may serve, by what has become of them."))
	if err != nil {
		return err
	}
	for outcome := range begun.Replica.Reads {
		a.add(reads, func(f *figures) int64 { return int64(f.Replica.Reads[outcome]) }, pool, OutcomeKey.String(string(outcome)))
	}
	if err := a.addReplicas(meter, pool, begun); err != nil {
		return err
	}
	return a.addStates(meter, pool)
}

// addReplicas adds the instruments for the state of each replica.
func (a *observers) addReplicas(meter metric.Meter, pool attribute.KeyValue, begun *pooldriver.Stats) error {
	conns, err1 := meter.Int64ObservableUpDownCounter("pooldriver.replica.connections", metric.WithUnit("{connection}"),
		metric.WithDescription("Connections to the replicas, by state."))
	serves, err2 := meter.Int64ObservableUpDownCounter("pooldriver.replica.serving", metric.WithUnit("1"),
		metric.WithDescription("1 while a replica serves, 0 otherwise."))
	lag, err3 := meter.Float64ObservableGauge("pooldriver.replica.lag", metric.WithUnit("s"),
		metric.WithDescription("How far a replica is behind the primary, where that is known."))
	if err := errors.Join(err1, err2, err3); err != nil || len(begun.Replica.Pools) == 0 {
		return err
	}
	state := dbconv.ClientConnectionCountObservable{}
	a.instruments = append(a.instruments, lag)
	for i, r := range begun.Replica.Pools {
		of := func(f *figures) *pooldriver.ReplicaPool { return &f.Replica.Pools[i] }
		host := ReplicaKey.String(r.Host)
		a.add(conns, func(f *figures) int64 { return int64(of(f).Pool.Idle) }, pool, host, state.AttrClientConnectionState(dbconv.ClientConnectionStateIdle))
		a.add(conns, func(f *figures) int64 { return int64(of(f).Pool.Active) }, pool, host, state.AttrClientConnectionState(dbconv.ClientConnectionStateUsed))
		a.add(serves, func(f *figures) int64 { return serving(of(f)) }, pool, host)
		with := metric.WithAttributeSet(attribute.NewSet(pool, host))
		a.observe = append(a.observe, func(o metric.Observer, f *figures) {
			if late := of(f).Lag; late >= 0 {
				o.ObserveFloat64(lag, late.Seconds(), with)
			}
		})
	}
	return nil
}

func serving(r *pooldriver.ReplicaPool) int64 {
	if r.State == pooldriver.ReplicaServed {
		return 1
	}
	return 0
}

// states are our own instruments for the present state.
var states = []struct {
	name, unit, description string
	value                   func(*figures) int64
}{
	{"pooldriver.rows.buffered", "By", "Memory of rows that were read ahead.", func(f *figures) int64 { return f.BufferedBytes }},
	{"pooldriver.breaker.open", "1", "1 while the circuit breaker refuses, 0 otherwise.", breakerOpen},
	{"pooldriver.overloaded", "1", "1 while statements have waited for longer than pool_queue_target for pool_queue_interval, 0 otherwise.", overloaded},
	{"pooldriver.listen.listeners", "{listener}", "Calls of Connector.Listen.", func(f *figures) int64 { return int64(f.Listen.Listeners) }},
	{"pooldriver.listen.channels", "{channel}", "Channels that have listeners.", func(f *figures) int64 { return int64(f.Listen.Channels) }},
	{"pooldriver.listen.listening", "1", "1 while the server sends notifications, 0 otherwise.", listening},
}

// addStates adds the instruments for the present state.
func (a *observers) addStates(meter metric.Meter, pool attribute.KeyValue) error {
	for _, m := range states {
		state, err := meter.Int64ObservableUpDownCounter(m.name, metric.WithUnit(m.unit), metric.WithDescription(m.description))
		if err != nil {
			return err
		}
		a.add(state, m.value, pool)
	}
	hold, err := meter.Float64ObservableGauge("pooldriver.connection.longest_hold", metric.WithUnit("s"),
		metric.WithDescription("How long the connection that is held longest has been held."))
	if err != nil {
		return err
	}
	idle, err := meter.Float64ObservableGauge("pooldriver.connection.longest_idle_hold", metric.WithUnit("s"),
		metric.WithDescription("How long the longest time is for which a held connection has now run no statement."))
	if err != nil {
		return err
	}
	with := metric.WithAttributeSet(attribute.NewSet(pool))
	a.instruments = append(a.instruments, hold, idle)
	a.observe = append(a.observe, func(o metric.Observer, f *figures) {
		held, still := longest(f.holders, time.Now())
		o.ObserveFloat64(hold, held.Seconds(), with)
		o.ObserveFloat64(idle, still.Seconds(), with)
	})
	return nil
}

func breakerOpen(f *figures) int64 {
	if f.Pool.State == pool.Active {
		return 0
	}
	return 1
}

func listening(f *figures) int64 {
	if f.Listen.State == pooldriver.ListenListening {
		return 1
	}
	return 0
}

func overloaded(f *figures) int64 {
	if f.Pool.Overloaded {
		return 1
	}
	return 0
}

// longest returns the longest time for which a connection is held, and the longest time for which a
// held connection runs no statement.
func longest(holders []pooldriver.Holder, now time.Time) (held, idle time.Duration) {
	for _, h := range holders {
		if h.Pin == pooldriver.PinListen {
			continue // it is held for as long as somebody listens
		}
		held = max(held, now.Sub(h.Since))
		idle = max(idle, h.Idle)
	}
	return held, idle
}
