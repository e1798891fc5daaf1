package otelpooldriver

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/pool"
)

// The reasons of events. Their values are those of pooldriver.Stats.
const (
	// ReasonKey is the attribute of pooldriver.connection.closed: a pooldriver.CloseReason.
	ReasonKey = attribute.Key("pooldriver.close.reason")
	// FailureKey is the attribute of pooldriver.acquire.failures: a pooldriver.AcquireFailure.
	FailureKey = attribute.Key("pooldriver.acquire.failure")
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
	{"pooldriver.operation.retries", "{operation}", "Operations moved to another connection because theirs was dead.", func(f *figures) uint64 { return f.Retries }},
	{"pooldriver.transaction.retries", "{transaction}", "Transactions of InTx that were run once more.", func(f *figures) uint64 { return f.TxRetries }},
	{"pooldriver.pipeline.queries", "{query}", "Queries that waited for a connection, and were answered in the pipeline of another one.", func(f *figures) uint64 { return f.Pipelined }},
	{"pooldriver.pipelines", "{pipeline}", "Pipelines that took queries along.", func(f *figures) uint64 { return f.Pool.Pipelines }},
	{"pooldriver.pipeline.repeats", "{query}", "Queries that were sent again, because they got no answer in a pipeline.", func(f *figures) uint64 { return f.PipelineRepeats }},
	{"pooldriver.rows.read_aheads", "{result}", "Results read into memory because their connection was needed.", func(f *figures) uint64 { return f.ReadAheads }},
	{"pooldriver.rows.reclaims", "{connection}", "Connections taken back from open rows for others that waited.", func(f *figures) uint64 { return f.Reclaims }},
	{"pooldriver.session.state_dropped", "{statement}", "Statements whose session state ended with them.", func(f *figures) uint64 { return f.StateDropped }},
	{"pooldriver.statement.cache.hits", "{lookup}", "Prepared statements that were found.", func(f *figures) uint64 { return f.StmtHits }},
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
	return a.addStates(meter, pool)
}

// addStates adds the instruments for the present state.
func (a *observers) addStates(meter metric.Meter, pool attribute.KeyValue) error {
	buffered, err := meter.Int64ObservableUpDownCounter("pooldriver.rows.buffered", metric.WithUnit("By"),
		metric.WithDescription("Memory of rows that were read ahead."))
	if err != nil {
		return err
	}
	a.add(buffered, func(f *figures) int64 { return f.BufferedBytes }, pool)
	breaker, err := meter.Int64ObservableUpDownCounter("pooldriver.breaker.open", metric.WithUnit("1"),
		metric.WithDescription("1 while the circuit breaker refuses, 0 otherwise."))
	if err != nil {
		return err
	}
	a.add(breaker, breakerOpen, pool)
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

// longest returns the longest time for which a connection is held, and the longest time for which a
// held connection runs no statement.
func longest(holders []pooldriver.Holder, now time.Time) (held, idle time.Duration) {
	for _, h := range holders {
		held = max(held, now.Sub(h.Since))
		idle = max(idle, h.Idle)
	}
	return held, idle
}
