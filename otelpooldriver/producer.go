package otelpooldriver

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/observe/metrics"
)

// Producer gives the histograms of a Connector to a reader of the SDK. It is a
// Producer of go.opentelemetry.io/otel/sdk/metric, and safe for concurrent use.
type Producer struct {
	connector   *pooldriver.Connector
	attributes  attribute.Set
	temporality metricdata.Temporality
	bounds      []float64

	mu    sync.Mutex // protects following fields
	start time.Time
	base  pooldriver.Stats // at start
}

// NewProducer returns a Producer for c, which counts from now on. Give it to a reader with the
// SDK's option WithProducer. If pooldriver.New found a mistake, the histograms of the Producer are
// empty, and Register returns the error.
func NewProducer(c *pooldriver.Connector, options ...Option) *Producer {
	cfg := newConfig(c, options)
	p := &Producer{
		connector:   c,
		attributes:  attribute.NewSet(cfg.pool()),
		temporality: cfg.temporality,
		start:       time.Now(),
		base:        c.Stats(),
	}
	for _, bound := range pooldriver.HistogramBounds() {
		p.bounds = append(p.bounds, bound.Seconds())
	}
	return p
}

// Produce returns the histograms.
func (p *Producer) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, s := time.Now(), p.connector.Stats()
	var all []metricdata.Metrics
	for _, h := range metrics.Histograms {
		all = append(all, metricdata.Metrics{
			Name: nameOf(h.OTel), Description: textOf(h.OTel, h.Help), Unit: "s",
			Data: metricdata.Histogram[float64]{
				Temporality: p.temporality,
				DataPoints:  []metricdata.HistogramDataPoint[float64]{p.point(*h.Get(&s), *h.Get(&p.base), now)},
			},
		})
	}
	if p.temporality == metricdata.DeltaTemporality {
		p.start, p.base = now, s
	}
	scope := instrumentation.Scope{Name: ScopeName, SchemaURL: SchemaURL}
	return []metricdata.ScopeMetrics{{Scope: scope, Metrics: all}}, nil
}

// point is what a histogram has counted since base.
func (p *Producer) point(h, base pooldriver.Histogram, now time.Time) metricdata.HistogramDataPoint[float64] {
	counts := make([]uint64, len(h.Buckets))
	for i := range counts {
		counts[i] = h.Buckets[i] - base.Buckets[i]
	}
	return metricdata.HistogramDataPoint[float64]{
		Attributes: p.attributes, StartTime: p.start, Time: now,
		Count: h.Count - base.Count, Sum: (h.Sum - base.Sum).Seconds(),
		Bounds: p.bounds, BucketCounts: counts,
	}
}
