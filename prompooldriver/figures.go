package prompooldriver

import "github.com/pooldriver/pooldriver"

// gauges are the figures that package metrics does not have: otelpooldriver shows most of them under the names of
// OpenTelemetry.
var gauges = []struct {
	name, help string
	value      func(*pooldriver.Stats) int
}{
	{"connections_max", "Most connections at a time.", func(s *pooldriver.Stats) int { return s.Pool.Max }},
	{"connections_allowed", "How many of the most connections the server allows; fewer while it is full.", func(s *pooldriver.Stats) int { return s.Pool.Allowed }},
	{"connections_idle_min", "Idle connections that are kept.", func(s *pooldriver.Stats) int { return s.MinIdle }},
	{"waiters", "Statements that wait for a connection.", func(s *pooldriver.Stats) int { return s.Pool.Waiting }},
}

// histograms are the metrics of durations.
var histograms = []struct {
	name, help string
	of         func(*pooldriver.Stats) *pooldriver.Histogram
}{
	{"acquire_wait_seconds", "Time that statements took to get a connection, or an error instead.", func(s *pooldriver.Stats) *pooldriver.Histogram { return &s.Wait }},
	{"dial_seconds", "Time of the dials, also of those that failed.", func(s *pooldriver.Stats) *pooldriver.Histogram { return &s.Connect }},
	{"hold_seconds", "Time for which connections were held.", func(s *pooldriver.Stats) *pooldriver.Histogram { return &s.Hold }},
	{"idle_pinned_seconds", "Time for which connections were held and no statement was running.", func(s *pooldriver.Stats) *pooldriver.Histogram { return &s.IdlePinned }},
	{"replica_wait_seconds", "Time for which reads have waited for a replica that had not replayed the writes of their context.", func(s *pooldriver.Stats) *pooldriver.Histogram { return &s.Replica.Wait }},
}
