// Package promtest tests package prompooldriver as programs see it: with a Prometheus that scrapes
// it, and with the dashboard and the alert rules of docs/grafana. Where the programs prometheus and
// promtool are missing (Debian: package prometheus), the tests that need them are skipped.
package promtest
