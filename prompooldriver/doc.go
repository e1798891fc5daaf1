// Package prompooldriver gives the figures of a pooldriver.Connector to Prometheus.
//
//	connector := pooldriver.New(dsn)
//	prometheus.MustRegister(prompooldriver.NewCollector(connector, "shop"))
//	http.Handle("/metrics", promhttp.Handler())
//
// A scrape reads pooldriver.Stats and Holders once. A statement pays nothing for metrics.
//
// The histograms are classic histograms, with the bounds of pooldriver.HistogramBounds, because a
// Connector counts in these buckets. The bounds are no powers, so the histograms are no native
// histograms. Prometheus stores them as native histograms with its setting
// convert_classic_histograms_to_nhcb.
//
// A dashboard for Grafana and alert rules on these metrics are in docs/grafana.
package prompooldriver
