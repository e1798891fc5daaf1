package prompooldriver

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pooldriver/pooldriver"
)

const (
	gauge   = prometheus.GaugeValue
	counter = prometheus.CounterValue
)

// figures are the metrics that have one value.
var figures = []struct {
	name  string
	kind  prometheus.ValueType
	help  string
	value func(*pooldriver.Stats) float64
}{
	{"connections_max", gauge, "Most connections at a time.", func(s *pooldriver.Stats) float64 { return float64(s.Pool.Max) }},
	{"connections_allowed", gauge, "How many of the most connections the server allows; fewer while it is full.", func(s *pooldriver.Stats) float64 { return float64(s.Pool.Allowed) }},
	{"connections_idle_min", gauge, "Idle connections that are kept.", func(s *pooldriver.Stats) float64 { return float64(s.MinIdle) }},
	{"waiters", gauge, "Statements that wait for a connection.", func(s *pooldriver.Stats) float64 { return float64(s.Pool.Waiting) }},
	{"breaker_open", gauge, "1 while the circuit breaker refuses, 0 otherwise.", breakerOpen},
	{"overloaded", gauge, "1 while statements have waited for longer than pool_queue_target for pool_queue_interval, 0 otherwise.", overloaded},
	{"buffered_bytes", gauge, "Memory of rows that were read ahead.", func(s *pooldriver.Stats) float64 { return float64(s.BufferedBytes) }},
	{"dial_errors_total", counter, "Dials that failed.", func(s *pooldriver.Stats) float64 { return float64(s.DialErrors) }},
	{"connections_orphaned_total", counter, "Connections whose end the server did not confirm.", func(s *pooldriver.Stats) float64 { return float64(s.Orphans) }},
	{"cleanings_total", counter, "Connections brought back to their state at connect.", func(s *pooldriver.Stats) float64 { return float64(s.Cleanings) }},
	{"rollbacks_total", counter, "Transactions that were open when their connection came back.", func(s *pooldriver.Stats) float64 { return float64(s.Rollbacks) }},
	{"would_refuse_total", counter, "Statements that pool_queue_dry has let pass.", func(s *pooldriver.Stats) float64 { return float64(s.WouldRefuse) }},
	{"retries_total", counter, "Operations moved to another connection because theirs was dead.", func(s *pooldriver.Stats) float64 { return float64(s.Retries) }},
	{"transaction_retries_total", counter, "Transactions of InTx that were run once more.", func(s *pooldriver.Stats) float64 { return float64(s.TxRetries) }},
	{"pipelined_queries_total", counter, "Queries that waited for a connection, and were answered in the pipeline of another one.", func(s *pooldriver.Stats) float64 { return float64(s.Pipelined) }},
	{"pipelines_total", counter, "Pipelines that took queries along.", func(s *pooldriver.Stats) float64 { return float64(s.Pool.Pipelines) }},
	{"pipeline_repeats_total", counter, "Queries that were sent again, because they got no answer in a pipeline.", func(s *pooldriver.Stats) float64 { return float64(s.PipelineRepeats) }},
	{"read_aheads_total", counter, "Results read into memory because their connection was needed.", func(s *pooldriver.Stats) float64 { return float64(s.ReadAheads) }},
	{"reclaims_total", counter, "Connections taken back from open rows for others that waited.", func(s *pooldriver.Stats) float64 { return float64(s.Reclaims) }},
	{"state_dropped_total", counter, "Statements whose session state ended with them.", func(s *pooldriver.Stats) float64 { return float64(s.StateDropped) }},
	{"statement_cache_hits_total", counter, "Prepared statements that were found.", func(s *pooldriver.Stats) float64 { return float64(s.StmtHits) }},
	{"listeners", gauge, "Calls of Connector.Listen.", func(s *pooldriver.Stats) float64 { return float64(s.Listen.Listeners) }},
	{"listen_channels", gauge, "Channels that have listeners.", func(s *pooldriver.Stats) float64 { return float64(s.Listen.Channels) }},
	{"listening", gauge, "1 while the server sends notifications, 0 otherwise.", listening},
	{"notifications_total", counter, "Notifications that the server has sent.", func(s *pooldriver.Stats) float64 { return float64(s.Listen.Received) }},
	{"notifications_dropped_total", counter, "Notifications that a listener was too slow to take.", func(s *pooldriver.Stats) float64 { return float64(s.Listen.Dropped) }},
	{"notification_gaps_total", counter, "Gaps that listeners were told of, but for the first one of each.", func(s *pooldriver.Stats) float64 { return float64(s.Listen.Gaps) }},
	{"listen_connections_lost_total", counter, "Connections of listeners that were lost.", func(s *pooldriver.Stats) float64 { return float64(s.Listen.Losses) }},
	{"statement_cache_misses_total", counter, "Prepared statements that had to be prepared.", func(s *pooldriver.Stats) float64 { return float64(s.StmtMisses) }},
}

func listening(s *pooldriver.Stats) float64 {
	if s.Listen.State == pooldriver.ListenListening {
		return 1
	}
	return 0
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
