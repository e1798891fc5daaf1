// Package metrics has the figures of a Connector that the modules otelpooldriver and prompooldriver export alike. Installed versions of the
// modules call it: what they use stays, also when they use something new.
package metrics

import (
	"time"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/pool"
)

// Metric is a figure under its names.
type Metric struct {
	Prometheus string // behind pooldriver_
	OTel, Unit string // behind pooldriver.
	Help       string
	Value      func(*pooldriver.Stats) int64
}

func count(of func(*pooldriver.Stats) uint64) func(*pooldriver.Stats) int64 {
	return func(s *pooldriver.Stats) int64 { return int64(of(s)) }
}

// Counters only grow.
var Counters = []Metric{
	{"dial_errors_total", "connection.create_errors", "{error}", "Dials that failed.", count(func(s *pooldriver.Stats) uint64 { return s.DialErrors })},
	{"connections_orphaned_total", "connection.orphans", "{connection}", "Connections whose end the server did not confirm.", count(func(s *pooldriver.Stats) uint64 { return s.Orphans })},
	{"cleanings_total", "connection.cleanings", "{cleaning}", "Connections brought back to their state at connect.", count(func(s *pooldriver.Stats) uint64 { return s.Cleanings })},
	{"rollbacks_total", "connection.rollbacks", "{rollback}", "Transactions that were open when their connection came back.", count(func(s *pooldriver.Stats) uint64 { return s.Rollbacks })},
	{"would_refuse_total", "acquire.would_refuse", "{statement}", "Statements that pool_queue_dry has let pass.", count(func(s *pooldriver.Stats) uint64 { return s.WouldRefuse })},
	{"retries_total", "operation.retries", "{operation}", "Operations moved to another connection because theirs was dead.", count(func(s *pooldriver.Stats) uint64 { return s.Retries })},
	{"transaction_retries_total", "transaction.retries", "{transaction}", "Transactions of InTx that were run once more.", count(func(s *pooldriver.Stats) uint64 { return s.TxRetries })},
	{"pipelined_queries_total", "pipeline.queries", "{query}", "Queries that waited for a connection, and were answered in the pipeline of another one.", count(func(s *pooldriver.Stats) uint64 { return s.Pipelined })},
	{"pipelines_total", "pipelines", "{pipeline}", "Pipelines that took queries along.", count(func(s *pooldriver.Stats) uint64 { return s.Pool.Pipelines })},
	{"pipeline_repeats_total", "pipeline.repeats", "{query}", "Queries that were sent again, because they got no answer in a pipeline.", count(func(s *pooldriver.Stats) uint64 { return s.PipelineRepeats })},
	{"read_aheads_total", "rows.read_aheads", "{result}", "Results read into memory because their connection was needed.", count(func(s *pooldriver.Stats) uint64 { return s.ReadAheads })},
	{"reclaims_total", "rows.reclaims", "{connection}", "Connections taken back from open rows for others that waited.", count(func(s *pooldriver.Stats) uint64 { return s.Reclaims })},
	{"state_dropped_total", "session.state_dropped", "{statement}", "Statements whose session state ended with them.", count(func(s *pooldriver.Stats) uint64 { return s.StateDropped })},
	{"statement_cache_hits_total", "statement.cache.hits", "{lookup}", "Prepared statements that were found.", count(func(s *pooldriver.Stats) uint64 { return s.StmtHits })},
	{"statement_cache_misses_total", "statement.cache.misses", "{lookup}", "Prepared statements that had to be prepared.", count(func(s *pooldriver.Stats) uint64 { return s.StmtMisses })},
	{"notifications_total", "listen.notifications", "{notification}", "Notifications that the server has sent.", count(func(s *pooldriver.Stats) uint64 { return s.Listen.Received })},
	{"notifications_dropped_total", "listen.dropped", "{notification}", "Notifications that a listener was too slow to take.", count(func(s *pooldriver.Stats) uint64 { return s.Listen.Dropped })},
	{"notification_gaps_total", "listen.gaps", "{gap}", "Gaps that listeners were told of, but for the first one of each.", count(func(s *pooldriver.Stats) uint64 { return s.Listen.Gaps })},
	{"listen_connections_lost_total", "listen.losses", "{connection}", "Connections of listeners that were lost.", count(func(s *pooldriver.Stats) uint64 { return s.Listen.Losses })},
}

// States are figures of the present.
var States = []Metric{
	{"buffered_bytes", "rows.buffered", "By", "Memory of rows that were read ahead.", func(s *pooldriver.Stats) int64 { return s.BufferedBytes }},
	{"breaker_open", "breaker.open", "1", "1 while the circuit breaker refuses, 0 otherwise.", func(s *pooldriver.Stats) int64 { return one(s.Pool.State != pool.Active) }},
	{"overloaded", "overloaded", "1", "1 while statements have waited for longer than pool_queue_target for pool_queue_interval, 0 otherwise.", func(s *pooldriver.Stats) int64 { return one(s.Pool.Overloaded) }},
	{"listeners", "listen.listeners", "{listener}", "Calls of Connector.Listen.", func(s *pooldriver.Stats) int64 { return int64(s.Listen.Listeners) }},
	{"listen_channels", "listen.channels", "{channel}", "Channels that have listeners.", func(s *pooldriver.Stats) int64 { return int64(s.Listen.Channels) }},
	{"listening", "listen.listening", "1", "1 while the server sends notifications, 0 otherwise.", func(s *pooldriver.Stats) int64 {
		return one(s.Listen.State == pooldriver.ListenListening || s.Listen.State == pooldriver.ListenUnproven)
	}},
}

// Serving is 1 if a replica serves.
func Serving(r *pooldriver.ReplicaPool) int64 { return one(r.State == pooldriver.ReplicaServed) }

func one(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// Longest returns the longest time for which a connection is held, and the longest time for which a
// held connection runs no statement.
func Longest(holders []pooldriver.Holder, now time.Time) (held, idle time.Duration) {
	for _, h := range holders {
		if h.Pin == pooldriver.PinListen {
			continue // it is held for as long as somebody listens
		}
		held = max(held, now.Sub(h.Since))
		idle = max(idle, h.Idle)
	}
	return held, idle
}
