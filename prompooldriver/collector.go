package prompooldriver

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/inspect" // for the verdict
	"github.com/pooldriver/pooldriver/internal/observe/metrics"
)

// NewCollector returns a collector of the figures of c. Its metrics have the label pool with the
// value name. If name is empty, the value is c's Target: dialect, user, host, port and database,
// such as "postgres app@db:5432/shop". Errors, logs and package inspect use this name. It holds no
// secret. Collectors of several Connectors can be registered side by side; their names must differ.
//
// A closed Connector gives its last figures: unregister its collector.
func NewCollector(c *pooldriver.Connector, name string) prometheus.Collector {
	if name == "" {
		name = c.Target()
	}
	k := &collector{connector: c}
	pool := prometheus.Labels{"pool": name}
	for _, f := range metrics.Figures {
		k.figures = append(k.figures, k.describe(f.Prometheus, f.Help, pool, f.Labels))
	}
	for _, h := range metrics.Histograms {
		k.histograms = append(k.histograms, k.describe(h.Prometheus, h.Help, pool, nil))
	}
	return k
}

// collector is a prometheus.Collector. It is immutable.
type collector struct {
	connector           *pooldriver.Connector
	all                 []*prometheus.Desc
	figures, histograms []*prometheus.Desc // in the order of the tables; nil: it has no name here
}

func (k *collector) describe(name, help string, pool prometheus.Labels, labels []metrics.Label) *prometheus.Desc {
	if name == "" {
		return nil
	}
	var names []string
	for _, l := range labels {
		names = append(names, l.Prometheus)
	}
	d := prometheus.NewDesc("pooldriver_"+name, help, names, pool)
	k.all = append(k.all, d)
	return d
}

// Describe implements prometheus.Collector.
func (k *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range k.all {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (k *collector) Collect(out chan<- prometheus.Metric) {
	s := metrics.Look(k.connector)
	for i, f := range metrics.Figures {
		d, kind := k.figures[i], prometheus.GaugeValue
		if d == nil {
			continue
		}
		if f.Kind == metrics.Counter {
			kind = prometheus.CounterValue
		}
		f.Get(s, func(value float64, labels ...string) { out <- prometheus.MustNewConstMetric(d, kind, value, labels...) })
	}
	for i, h := range metrics.Histograms {
		out <- constHistogram(k.histograms[i], h.Get(&s.Stats))
	}
}

// constHistogram translates a Histogram: a bucket of Prometheus also counts what is in the lower
// buckets.
func constHistogram(d *prometheus.Desc, h *pooldriver.Histogram) prometheus.Metric {
	bounds := pooldriver.HistogramBounds()
	buckets := make(map[float64]uint64, len(bounds))
	var sum uint64
	for i, bound := range bounds {
		sum += h.Buckets[i]
		buckets[bound.Seconds()] = sum
	}
	return prometheus.MustNewConstHistogram(d, h.Count, h.Sum.Seconds(), buckets)
}
