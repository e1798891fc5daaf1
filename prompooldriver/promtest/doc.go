// Package promtest tests package prompooldriver as programs see it: with a Prometheus that scrapes
// it, and with the dashboard and the alert rules of docs/grafana. It needs the programs prometheus
// and promtool (Debian: package prometheus).
package promtest
