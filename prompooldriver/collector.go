package prompooldriver

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/metrics"
)

// NewCollector returns a collector of the figures of c. Its metrics have the label pool with the
// value name. If name is empty, the value is c's Target: dialect, user, host, port and database,
// such as "postgres app@db:5432/shop". Errors, logs and package inspect use this name. It holds no
// secret. Collectors of several Connectors can be registered side by side; their names must differ.
//
// A closed Connector gives its last figures: unregister its collector.
func NewCollector(c *pooldriver.Connector, name string) prometheus.Collector {
	k := &collector{connector: c, pool: prometheus.Labels{"pool": cmp.Or(name, c.Target())}}
	k.connections = k.desc("connections", "Connections to the database, by state.", "state")
	k.failures = k.desc("acquire_failures_total", "Statements that got no connection, by reason.", "reason")
	k.closed = k.desc("connections_closed_total", "Connections that were closed, by reason.", "reason")
	k.longestHold = k.desc("longest_hold_seconds", "How long the connection that is held longest has been held.")
	k.longestIdleHold = k.desc("longest_idle_hold_seconds", "How long the longest time is for which a held connection has now run no statement.")
	k.reads = k.desc("replica_reads_total", "Reads that a replica may serve, by what has become of them.", "outcome")
	k.replicas = k.desc("replica_connections", "Connections to the replicas, by state.", "replica", "state")
	k.serving = k.desc("replica_serving", "1 while a replica serves, 0 otherwise.", "replica")
	k.lag = k.desc("replica_lag_seconds", "How far a replica is behind the primary, where that is known.", "replica")
	for _, g := range gauges {
		k.gauges = append(k.gauges, k.desc(g.name, g.help))
	}
	for _, m := range metrics.States {
		k.states = append(k.states, k.desc(m.Prometheus, m.Help))
	}
	for _, m := range metrics.Counters {
		k.counters = append(k.counters, k.desc(m.Prometheus, m.Help))
	}
	for _, h := range histograms {
		k.histograms = append(k.histograms, k.desc(h.name, h.help))
	}
	return k
}

// collector is a prometheus.Collector. It is immutable.
type collector struct {
	connector *pooldriver.Connector
	pool      prometheus.Labels

	all                                  []*prometheus.Desc
	connections, failures, closed        *prometheus.Desc
	longestHold, longestIdleHold         *prometheus.Desc
	reads, replicas, serving, lag        *prometheus.Desc
	gauges, states, counters, histograms []*prometheus.Desc // in the order of the tables
}

func (k *collector) desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("pooldriver_"+name, help, labels, k.pool)
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
	s := k.connector.Stats()
	send := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, t, v, labels...)
	}
	// Connections that are being dialled, checked or closed count as used: nobody can have them.
	send(k.connections, prometheus.GaugeValue, float64(s.Pool.Idle), "idle")
	send(k.connections, prometheus.GaugeValue, float64(s.Pool.Active), "used")
	for reason, n := range s.AcquireFailures {
		send(k.failures, prometheus.CounterValue, float64(n), string(reason))
	}
	for reason, n := range s.Closed {
		send(k.closed, prometheus.CounterValue, float64(n), string(reason))
	}
	held, idle := metrics.Longest(k.connector.Holders(), time.Now())
	send(k.longestHold, prometheus.GaugeValue, held.Seconds())
	send(k.longestIdleHold, prometheus.GaugeValue, idle.Seconds())
	for outcome, n := range s.Replica.Reads {
		send(k.reads, prometheus.CounterValue, float64(n), string(outcome))
	}
	for _, r := range s.Replica.Pools {
		send(k.replicas, prometheus.GaugeValue, float64(r.Pool.Idle), r.Host, "idle")
		send(k.replicas, prometheus.GaugeValue, float64(r.Pool.Active), r.Host, "used")
		send(k.serving, prometheus.GaugeValue, float64(metrics.Serving(&r)), r.Host)
		if r.Lag >= 0 {
			send(k.lag, prometheus.GaugeValue, r.Lag.Seconds(), r.Host)
		}
	}
	for i, g := range gauges {
		send(k.gauges[i], prometheus.GaugeValue, float64(g.value(&s)))
	}
	for i, m := range metrics.States {
		send(k.states[i], prometheus.GaugeValue, float64(m.Value(&s)))
	}
	for i, m := range metrics.Counters {
		send(k.counters[i], prometheus.CounterValue, float64(m.Value(&s)))
	}
	for i, h := range histograms {
		out <- constHistogram(k.histograms[i], h.of(&s))
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
