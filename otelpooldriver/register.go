package otelpooldriver

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/semconv/v1.43.0/dbconv"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/inspect" // for the verdict
	"github.com/pooldriver/pooldriver/internal/observe/metrics"
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

// Register makes the asynchronous instruments of c. When a reader collects, it reads them by one
// call of c.Stats and one call of c.Holders. The error is the error that pooldriver.New found in c,
// or an error of the provider.
//
// Unregister of the returned Registration stops the reading. A closed Connector gives its last
// figures.
func Register(c *pooldriver.Connector, options ...Option) (metric.Registration, error) {
	if _, err := c.Connect(context.Background()); err != nil { // opens nothing; returns New's error
		return nil, err
	}
	cfg := newConfig(c, options)
	meter := cfg.provider.Meter(ScopeName, metric.WithSchemaURL(SchemaURL))
	instruments := make([]metric.Observable, len(metrics.Figures))
	for i := range metrics.Figures {
		var err error
		if instruments[i], err = instrumentOf(meter, &metrics.Figures[i]); err != nil {
			return nil, err
		}
	}
	return meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := metrics.Look(c)
		for i, f := range metrics.Figures {
			f.Get(s, func(value float64, labels ...string) {
				attributes := []attribute.KeyValue{cfg.pool()}
				for n, label := range labels {
					attributes = append(attributes, attribute.String(f.Labels[n].OTel, label))
				}
				with := metric.WithAttributeSet(attribute.NewSet(attributes...))
				if seconds, ok := instruments[i].(metric.Float64Observable); ok {
					o.ObserveFloat64(seconds, value, with)
				} else {
					o.ObserveInt64(instruments[i].(metric.Int64Observable), int64(value), with)
				}
			})
		}
		return nil
	}, instruments...)
}

// instrumentOf makes the instrument of a figure.
func instrumentOf(meter metric.Meter, f *metrics.Figure) (metric.Observable, error) {
	name, unit, text := nameOf(f.OTel), metric.WithUnit(f.Unit), metric.WithDescription(textOf(f.OTel, f.Help))
	switch f.Kind {
	case metrics.Counter:
		return meter.Int64ObservableCounter(name, unit, text)
	case metrics.Seconds:
		return meter.Float64ObservableGauge(name, unit, text)
	}
	return meter.Int64ObservableUpDownCounter(name, unit, text)
}

// nameOf is the name of a metric: that of the conventions, or our own.
func nameOf(name string) string {
	if strings.HasPrefix(name, "db.") {
		return name
	}
	return "pooldriver." + name
}

// conventions are the metrics of the semantic conventions.
var conventions = []interface {
	Name() string
	Description() string
}{
	dbconv.ClientConnectionCount{}, dbconv.ClientConnectionMax{}, dbconv.ClientConnectionIdleMax{}, dbconv.ClientConnectionIdleMin{},
	dbconv.ClientConnectionPendingRequests{}, dbconv.ClientConnectionTimeouts{}, dbconv.ClientConnectionCreateTime{},
	dbconv.ClientConnectionWaitTime{}, dbconv.ClientConnectionUseTime{},
}

// textOf is the text of a metric: that of the conventions, or our own.
func textOf(name, help string) string {
	for _, c := range conventions {
		if c.Name() == name {
			return c.Description()
		}
	}
	return help
}
