package otelpooldriver

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/semconv/v1.43.0/dbconv"

	"github.com/pooldriver/pooldriver"
)

// Register makes the asynchronous instruments of c. When a reader collects, it reads them by one
// call of c.Stats and one call of c.Holders. The error is the error that pooldriver.New found in c,
// or an error of the provider.
//
// Unregister of the result ends this. A closed Connector gives its last figures.
func Register(c *pooldriver.Connector, options ...Option) (metric.Registration, error) {
	if _, err := c.Connect(context.Background()); err != nil { // opens nothing; returns New's error
		return nil, err
	}
	cfg := newConfig(c, options)
	meter := cfg.provider.Meter(ScopeName, metric.WithSchemaURL(SchemaURL))
	var all observers
	begun := c.Stats()
	err := errors.Join(all.addConventions(meter, cfg.pool()), all.addOurs(meter, cfg.pool(), &begun))
	if err != nil {
		return nil, err
	}
	return meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		f := figures{c.Stats(), c.Holders()}
		for _, observe := range all.observe {
			observe(o, &f)
		}
		return nil
	}, all.instruments...)
}

// figures are what the instruments show.
type figures struct {
	pooldriver.Stats
	holders []pooldriver.Holder
}

// observers collects instruments, and the functions that give them their values.
type observers struct {
	instruments []metric.Observable
	observe     []func(metric.Observer, *figures)
}

// add adds an instrument with one set of attributes. i may be an instrument that could not be made:
// then Register fails.
func (a *observers) add(i metric.Int64Observable, value func(*figures) int64, attributes ...attribute.KeyValue) {
	with := metric.WithAttributeSet(attribute.NewSet(attributes...))
	a.instruments = append(a.instruments, i)
	a.observe = append(a.observe, func(o metric.Observer, f *figures) { o.ObserveInt64(i, value(f), with) })
}

// addConventions adds the instruments of the semantic conventions.
func (a *observers) addConventions(meter metric.Meter, pool attribute.KeyValue) error {
	count, err1 := dbconv.NewClientConnectionCountObservable(meter)
	a.add(count.Inst(), func(f *figures) int64 { return int64(f.Pool.Idle) },
		pool, count.AttrClientConnectionState(dbconv.ClientConnectionStateIdle))
	// Connections that are being dialled, checked or closed count as used: nobody can have them.
	a.add(count.Inst(), func(f *figures) int64 { return int64(f.Pool.Active) },
		pool, count.AttrClientConnectionState(dbconv.ClientConnectionStateUsed))
	idleMax, err2 := dbconv.NewClientConnectionIdleMaxObservable(meter)
	a.add(idleMax.Inst(), func(f *figures) int64 { return int64(f.MaxIdle) }, pool)
	idleMin, err3 := dbconv.NewClientConnectionIdleMinObservable(meter)
	a.add(idleMin.Inst(), func(f *figures) int64 { return int64(f.MinIdle) }, pool)
	most, err4 := dbconv.NewClientConnectionMaxObservable(meter)
	a.add(most.Inst(), func(f *figures) int64 { return int64(f.Pool.Max) }, pool)
	pending, err5 := dbconv.NewClientConnectionPendingRequestsObservable(meter)
	a.add(pending.Inst(), func(f *figures) int64 { return int64(f.Pool.Waiting) }, pool)
	timeouts, err6 := dbconv.NewClientConnectionTimeoutsObservable(meter)
	a.add(timeouts.Inst(), func(f *figures) int64 { return int64(f.AcquireFailures[pooldriver.AcquireTimeout]) }, pool)
	return errors.Join(err1, err2, err3, err4, err5, err6)
}
