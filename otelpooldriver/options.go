package otelpooldriver

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/pooldriver/pooldriver"
)

// SchemaURL names the version of the semantic conventions that the metrics follow.
const SchemaURL = semconv.SchemaURL

// ScopeName is the instrumentation scope of all metrics.
const ScopeName = "github.com/pooldriver/pooldriver/otelpooldriver"

// Option changes what Register or NewProducer does.
type Option func(*config)

type config struct {
	provider    metric.MeterProvider
	name        string
	temporality metricdata.Temporality
}

// WithMeterProvider sets the provider for Register. The default is the global one,
// otel.GetMeterProvider.
func WithMeterProvider(provider metric.MeterProvider) Option {
	return func(c *config) { c.provider = provider }
}

// WithPoolName sets the attribute db.client.connection.pool.name. The default is the
// Connector's Target: dialect, user, host, port and database, such as
// "postgres app@db:5432/shop". Errors, logs and package inspect use this name. It holds no secret.
// Connectors of one program need different names.
func WithPoolName(name string) Option {
	return func(c *config) { c.name = name }
}

// WithDeltaTemporality makes a Producer give the counts since its last collection. The default is
// the counts since NewProducer. A Producer with delta temporality is for one reader. Use it for
// backends that take only deltas, and whose exporters also prefer deltas for other instruments: the
// SDK does not convert the output of a Producer.
func WithDeltaTemporality() Option {
	return func(c *config) { c.temporality = metricdata.DeltaTemporality }
}

func newConfig(c *pooldriver.Connector, options []Option) config {
	cfg := config{name: c.Target(), temporality: metricdata.CumulativeTemporality}
	for _, o := range options {
		o(&cfg)
	}
	if cfg.provider == nil {
		cfg.provider = otel.GetMeterProvider()
	}
	return cfg
}

// pool is the attribute that every metric has.
func (c config) pool() attribute.KeyValue { return semconv.DBClientConnectionPoolName(c.name) }
