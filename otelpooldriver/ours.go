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
	return errors.Join(
		addEvents(a, meter, pool, begun, "connection.closed", "{connection}", "Connections that were closed, by reason.",
			ReasonKey, func(s *pooldriver.Stats) map[pooldriver.CloseReason]uint64 { return s.Closed }),
		addEvents(a, meter, pool, begun, "acquire.failures", "{statement}", "Statements that got no connection, by reason.",
			FailureKey, func(s *pooldriver.Stats) map[pooldriver.AcquireFailure]uint64 { return s.AcquireFailures }),
		addEvents(a, meter, pool, begun, "replica.reads", "{read}", "Reads that a replica may serve, by what has become of them.",
			OutcomeKey, func(s *pooldriver.Stats) map[pooldriver.ReplicaRead]uint64 { return s.Replica.Reads }),
		a.addReplicas(meter, pool, begun),
		a.addStates(meter, pool),
	)
}

// addEvents adds a counter of events by their reason, which is the attribute key.
func addEvents[R ~string](a *observers, meter metric.Meter, pool attribute.KeyValue, begun *pooldriver.Stats, name, unit, help string,
	key attribute.Key, of func(*pooldriver.Stats) map[R]uint64) error {
	counter, err := meter.Int64ObservableCounter("pooldriver."+name, metric.WithUnit(unit), metric.WithDescription(help))
	if err != nil {
		return err
	}
	for why := range of(begun) {
		a.add(counter, func(f *figures) int64 { return int64(of(&f.Stats)[why]) }, pool, key.String(string(why)))
	}
	return nil
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
