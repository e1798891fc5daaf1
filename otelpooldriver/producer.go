package otelpooldriver

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/semconv/v1.43.0/dbconv"

	"github.com/pooldriver/pooldriver"
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
	metrics := make([]metricdata.Metrics, len(histograms))
	for i, h := range histograms {
		metrics[i] = metricdata.Metrics{
			Name: h.Name(), Description: h.Description(), Unit: h.Unit(),
			Data: metricdata.Histogram[float64]{
				Temporality: p.temporality,
				DataPoints:  []metricdata.HistogramDataPoint[float64]{p.point(*h.of(&s), *h.of(&p.base), now)},
			},
		}
	}
	if p.temporality == metricdata.DeltaTemporality {
		p.start, p.base = now, s
	}
	scope := instrumentation.Scope{Name: ScopeName, SchemaURL: SchemaURL}
	return []metricdata.ScopeMetrics{{Scope: scope, Metrics: metrics}}, nil
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

// histograms are what a Producer gives.
var histograms = []struct {
	description
	of func(*pooldriver.Stats) *pooldriver.Histogram
}{
	{dbconv.ClientConnectionCreateTime{}, func(s *pooldriver.Stats) *pooldriver.Histogram { return &s.Connect }},
	{dbconv.ClientConnectionWaitTime{}, func(s *pooldriver.Stats) *pooldriver.Histogram { return &s.Wait }},
	{dbconv.ClientConnectionUseTime{}, func(s *pooldriver.Stats) *pooldriver.Histogram { return &s.Hold }},
	{idlePinnedTime, func(s *pooldriver.Stats) *pooldriver.Histogram { return &s.IdlePinned }},
	{replicaWait, func(s *pooldriver.Stats) *pooldriver.Histogram { return &s.Replica.Wait }},
}

// description is what the types of the semantic conventions say about a metric.
type description interface {
	Name() string
	Unit() string
	Description() string
}

// ours is a metric of our own.
type ours struct{ name, description string }

var (
	idlePinnedTime = ours{"pooldriver.connection.idle_pinned_time", "The time between borrowing a connection and returning it to the pool in which no statement was running."}
	replicaWait    = ours{"pooldriver.replica.wait_time", "The time for which reads have waited for a replica that had not replayed the writes of their context."}
)

func (o ours) Name() string        { return o.name }
func (ours) Unit() string          { return "s" }
func (o ours) Description() string { return o.description }
