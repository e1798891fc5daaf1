package otelpooldriver

import (
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/semconv/v1.43.0/dbconv"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/metrics"
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

// addOurs adds our own instruments. begun has the present figures. Each reason in begun is shown
// from the beginning, so that the first event is an increase.
func (a *observers) addOurs(meter metric.Meter, pool attribute.KeyValue, begun *pooldriver.Stats) error {
	for _, m := range metrics.Counters {
		counter, err := meter.Int64ObservableCounter("pooldriver."+m.OTel, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
		if err != nil {
			return err
		}
		a.add(counter, func(f *figures) int64 { return m.Value(&f.Stats) }, pool)
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
		a.add(serves, func(f *figures) int64 { return metrics.Serving(of(f)) }, pool, host)
		with := metric.WithAttributeSet(attribute.NewSet(pool, host))
		a.observe = append(a.observe, func(o metric.Observer, f *figures) {
			if late := of(f).Lag; late >= 0 {
				o.ObserveFloat64(lag, late.Seconds(), with)
			}
		})
	}
	return nil
}

// addStates adds the instruments for the present state.
func (a *observers) addStates(meter metric.Meter, pool attribute.KeyValue) error {
	for _, m := range metrics.States {
		state, err := meter.Int64ObservableUpDownCounter("pooldriver."+m.OTel, metric.WithUnit(m.Unit), metric.WithDescription(m.Help))
		if err != nil {
			return err
		}
		a.add(state, func(f *figures) int64 { return m.Value(&f.Stats) }, pool)
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
		held, still := metrics.Longest(f.holders, time.Now())
		o.ObserveFloat64(hold, held.Seconds(), with)
		o.ObserveFloat64(idle, still.Seconds(), with)
	})
	return nil
}
