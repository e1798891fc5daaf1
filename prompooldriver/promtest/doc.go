// Package promtest tests what programs see of package prompooldriver: a Prometheus that
// scrapes it, and the dashboard and the alert rules of docs/grafana. It needs the programs
// prometheus and promtool (Debian: package prometheus).
package promtest
