// Package metrics is the table of a Connector's figures: the modules otelpooldriver and prompooldriver export its rows, and
// the page of package inspect prints them.
package metrics

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/judge"
	"github.com/pooldriver/pooldriver/pool"
)

// Kind says how a figure moves.
type Kind uint8

// The kinds.
const (
	Counter Kind = iota // it only grows
	State               // a number of the present
	Seconds             // a duration of the present
)

// Figure is one row.
type Figure struct {
	Prometheus string // its name behind pooldriver_; empty: it is not exported there
	OTel, Unit string // its name: that of the conventions if it begins with db., else behind pooldriver.
	Help       string
	Kind       Kind
	Labels     []Label
	Get        func(s *Snapshot, add func(value float64, labels ...string))
}

// Label is the name of a label in Prometheus, and the attribute in OpenTelemetry.
type Label struct{ Prometheus, OTel string }

// The labels.
var (
	state   = Label{"state", "db.client.connection.state"}
	closed  = Label{"reason", "pooldriver.close.reason"}
	failure = Label{"reason", "pooldriver.acquire.failure"}
	outcome = Label{"outcome", "pooldriver.replica.outcome"}
	label   = Label{"label", "pooldriver.label"}
	class   = Label{"class", "pooldriver.sqlstate.class"}
	rule    = Label{"rule", "pooldriver.verdict.rule"}
	replica = Label{"replica", "pooldriver.replica.host"}
)

// Snapshot is what the figures are of.
type Snapshot struct {
	pooldriver.Stats
	Holders  []pooldriver.Holder
	At       time.Time
	Verdicts []judge.Verdict
}

// Look asks a Connector. It has no verdicts in a program without package inspect.
func Look(c *pooldriver.Connector) *Snapshot {
	s := &Snapshot{c.Stats(), c.Holders(), time.Now(), nil}
	if judge.Judge != nil {
		s.Verdicts = judge.Judge(c)
	}
	return s
}

type add = func(value float64, labels ...string)

// Figures are all figures but the histograms. A row without a name in one of the two exporters is there under
// another name.
var Figures = []Figure{
	{"verdict", "verdict", "1", "The rows of the inspector's table that apply now, by name: 2 is bad, 1 is busy, 0 is calm.", State, []Label{rule}, func(s *Snapshot, add add) {
		for _, v := range s.Verdicts {
			add(float64(v.Level), v.Rule)
		}
	}},
	{"connections", "db.client.connection.count", "{connection}", "Connections to the database, by state.", State, []Label{state}, func(s *Snapshot, add add) {
		add(float64(s.Pool.Idle), "idle")
		add(float64(s.Pool.Active), "used") // also those that are being dialled, checked or closed: nobody can have them
	}},
	{"connections_max", "db.client.connection.max", "{connection}", "Most connections at a time.", State, nil, number(func(s *Snapshot) int { return s.Pool.Max })},
	{"connections_allowed", "connection.allowed", "{connection}", "How many of the most connections the server allows; fewer while it is full.", State, nil, number(func(s *Snapshot) int { return s.Pool.Allowed })},
	{"connections_peak", "connection.peak", "{connection}", "Most connections that were in use at the same time in the last hour.", State, nil, number(func(s *Snapshot) int { return s.Peak })},
	{"", "db.client.connection.idle.max", "{connection}", "", State, nil, number(func(s *Snapshot) int { return s.MaxIdle })},
	{"connections_idle_min", "db.client.connection.idle.min", "{connection}", "Idle connections that are kept.", State, nil, number(func(s *Snapshot) int { return s.MinIdle })},
	{"waiters", "db.client.connection.pending_requests", "{request}", "Statements that wait for a connection.", State, nil, number(func(s *Snapshot) int { return s.Pool.Waiting })},
	{"longest_wait_seconds", "connection.longest_wait", "s", "How long the statement that waits longest for a connection has been waiting.", Seconds, nil, seconds(func(s *Snapshot) time.Duration { return s.Pool.LongestWait })},
	{"", "db.client.connection.timeouts", "{timeout}", "", Counter, nil, count(func(s *Snapshot) uint64 {
		return s.AcquireFailures[pooldriver.AcquireTimeout] + s.AcquireFailures[pooldriver.AcquireGaveUp]
	})},
	{"acquire_failures_total", "acquire.failures", "{statement}", "Statements that got no connection, by reason.", Counter, []Label{failure}, each(func(s *Snapshot) map[pooldriver.AcquireFailure]uint64 { return s.AcquireFailures })},
	{"connections_closed_total", "connection.closed", "{connection}", "Connections that were closed, by reason.", Counter, []Label{closed}, each(func(s *Snapshot) map[pooldriver.CloseReason]uint64 { return s.Closed })},
	{"longest_hold_seconds", "connection.longest_hold", "s", "How long the connection that is held longest has been held.", Seconds, nil, longest(func(s *Snapshot, h *pooldriver.Holder) time.Duration { return s.At.Sub(h.Since) })},
	{"longest_idle_hold_seconds", "connection.longest_idle_hold", "s", "How long the longest time is for which a held connection has now run no statement.", Seconds, nil, longest(func(_ *Snapshot, h *pooldriver.Holder) time.Duration { return h.Idle })},

	{"dial_errors_total", "connection.create_errors", "{error}", "Dials that failed.", Counter, nil, count(func(s *Snapshot) uint64 { return s.DialErrors })},
	{"connections_orphaned_total", "connection.orphans", "{connection}", "Connections whose end the server did not confirm.", Counter, nil, count(func(s *Snapshot) uint64 { return s.Orphans })},
	{"cleanings_total", "connection.cleanings", "{cleaning}", "Connections brought back to their state at connect.", Counter, nil, count(func(s *Snapshot) uint64 { return s.Cleanings })},
	{"rollbacks_total", "connection.rollbacks", "{rollback}", "Transactions that were open when their connection came back.", Counter, nil, count(func(s *Snapshot) uint64 { return s.Rollbacks })},
	{"would_refuse_total", "acquire.would_refuse", "{statement}", "Statements that pool_queue_dry has let pass.", Counter, nil, count(func(s *Snapshot) uint64 { return s.WouldRefuse })},
	{"arrivals_total", "arrivals", "{statement}", "What has asked for a connection, by label, where it has one.", Counter, []Label{label}, func(s *Snapshot, add add) {
		for _, a := range s.Arrivals {
			add(float64(a.Count), a.Label)
		}
	}},
	{"statement_errors_total", "statement.errors", "{error}", "Errors of statements, by class of SQLSTATE, also of statements that were tried again.", Counter, []Label{class}, each(func(s *Snapshot) map[string]uint64 { return s.StatementErrors })},
	{"retries_total", "operation.retries", "{operation}", "Operations moved to another connection because theirs was dead.", Counter, nil, count(func(s *Snapshot) uint64 { return s.Retries })},
	{"transaction_retries_total", "transaction.retries", "{transaction}", "Transactions of InTx that were run once more.", Counter, nil, count(func(s *Snapshot) uint64 { return s.TxRetries })},
	{"pipelined_queries_total", "pipeline.queries", "{query}", "Queries that waited for a connection, and were answered in the pipeline of another one.", Counter, nil, count(func(s *Snapshot) uint64 { return s.Pipelined })},
	{"pipelines_total", "pipelines", "{pipeline}", "Pipelines that took queries along.", Counter, nil, count(func(s *Snapshot) uint64 { return s.Pool.Pipelines })},
	{"pipeline_repeats_total", "pipeline.repeats", "{query}", "Queries that were sent again, because they got no answer in a pipeline.", Counter, nil, count(func(s *Snapshot) uint64 { return s.PipelineRepeats })},
	{"read_aheads_total", "rows.read_aheads", "{result}", "Results read into memory because their connection was needed.", Counter, nil, count(func(s *Snapshot) uint64 { return s.ReadAheads })},
	{"reclaims_total", "rows.reclaims", "{connection}", "Connections taken back from open rows for others that waited.", Counter, nil, count(func(s *Snapshot) uint64 { return s.Reclaims })},
	{"state_dropped_total", "session.state_dropped", "{statement}", "Statements whose session state ended with them.", Counter, nil, count(func(s *Snapshot) uint64 { return s.StateDropped })},
	{"statement_cache_hits_total", "statement.cache.hits", "{lookup}", "Prepared statements that were found.", Counter, nil, count(func(s *Snapshot) uint64 { return s.StmtHits })},
	{"statement_cache_misses_total", "statement.cache.misses", "{lookup}", "Prepared statements that had to be prepared.", Counter, nil, count(func(s *Snapshot) uint64 { return s.StmtMisses })},
	{"buffered_bytes", "rows.buffered", "By", "Memory of rows that were read ahead.", State, nil, number(func(s *Snapshot) int { return int(s.BufferedBytes) })},
	{"breaker_open", "breaker.open", "1", "1 while the circuit breaker refuses, 0 otherwise.", State, nil, yes(func(s *Snapshot) bool { return s.Pool.State != pool.Active })},
	{"overloaded", "overloaded", "1", "1 while statements have waited for longer than pool_queue_target for pool_queue_interval, 0 otherwise.", State, nil, yes(func(s *Snapshot) bool { return s.Pool.Overloaded })},

	{"listeners", "listen.listeners", "{listener}", "Calls of Connector.Listen.", State, nil, number(func(s *Snapshot) int { return s.Listen.Listeners })},
	{"listen_channels", "listen.channels", "{channel}", "Channels that have listeners.", State, nil, number(func(s *Snapshot) int { return s.Listen.Channels })},
	{"listening", "listen.listening", "1", "1 while the server sends notifications, 0 otherwise.", State, nil, yes(func(s *Snapshot) bool {
		return s.Listen.State == pooldriver.ListenListening || s.Listen.State == pooldriver.ListenUnproven
	})},
	{"listen_dials_failing", "listen.dials_failing", "{dial}", "Dials of the connection of listeners that have failed in a row.", State, nil, number(func(s *Snapshot) int { return s.Listen.Failing.Failed })},
	{"notifications_total", "listen.notifications", "{notification}", "Notifications that the server has sent.", Counter, nil, count(func(s *Snapshot) uint64 { return s.Listen.Received })},
	{"notifications_dropped_total", "listen.dropped", "{notification}", "Notifications that a listener was too slow to take.", Counter, nil, count(func(s *Snapshot) uint64 { return s.Listen.Dropped })},
	{"notification_gaps_total", "listen.gaps", "{gap}", "Gaps that listeners were told of, but for the first one of each.", Counter, nil, count(func(s *Snapshot) uint64 { return s.Listen.Gaps })},
	{"listen_connections_lost_total", "listen.losses", "{connection}", "Connections of listeners that were lost.", Counter, nil, count(func(s *Snapshot) uint64 { return s.Listen.Losses })},

	{"replica_reads_total", "replica.reads", "{read}", "Reads that a replica may serve, by what has become of them.", Counter, []Label{outcome}, each(func(s *Snapshot) map[pooldriver.ReplicaRead]uint64 { return s.Replica.Reads })},
	{"replica_connections", "replica.connections", "{connection}", "Connections to the replicas, by state.", State, []Label{replica, state}, func(s *Snapshot, add add) {
		for _, r := range s.Replica.Pools {
			add(float64(r.Pool.Idle), r.Host, "idle")
			add(float64(r.Pool.Active), r.Host, "used")
		}
	}},
	{"replica_serving", "replica.serving", "1", "1 while a replica serves, 0 otherwise.", State, []Label{replica}, ofReplicas(func(r *pooldriver.ReplicaPool) (float64, bool) {
		return one(r.State == pooldriver.ReplicaServed), true
	})},
	{"replica_lag_seconds", "replica.lag", "s", "How far a replica is behind the primary, where that is known.", Seconds, []Label{replica}, ofReplicas(func(r *pooldriver.ReplicaPool) (float64, bool) { return r.Lag.Seconds(), r.Lag >= 0 })},
	{"replica_waiters", "replica.pending_requests", "{request}", "Statements that wait for a connection to a replica.", State, []Label{replica}, ofReplicas(func(r *pooldriver.ReplicaPool) (float64, bool) { return float64(r.Pool.Waiting), true })},
	{"replica_connections_max", "replica.max", "{connection}", "Most connections to a replica at a time.", State, []Label{replica}, ofReplicas(func(r *pooldriver.ReplicaPool) (float64, bool) { return float64(r.Pool.Max), true })},
	{"replica_dial_errors_total", "replica.create_errors", "{error}", "Dials to a replica that failed.", Counter, []Label{replica}, ofReplicas(func(r *pooldriver.ReplicaPool) (float64, bool) { return float64(r.Pool.CreateErrors), true })},
}

// Histogram is one row of durations.
type Histogram struct {
	Prometheus, OTel string // as of a Figure
	Help             string
	Get              func(*pooldriver.Stats) *pooldriver.Histogram
}

// Histograms are all histograms.
var Histograms = []Histogram{
	{"acquire_wait_seconds", "db.client.connection.wait_time", "Time that statements took to get a connection, or an error instead.", func(s *pooldriver.Stats) *pooldriver.Histogram { return &s.Wait }},
	{"dial_seconds", "db.client.connection.create_time", "Time of the dials, also of those that failed.", func(s *pooldriver.Stats) *pooldriver.Histogram { return &s.Connect }},
	{"hold_seconds", "db.client.connection.use_time", "Time for which connections were held.", func(s *pooldriver.Stats) *pooldriver.Histogram { return &s.Hold }},
	{"idle_pinned_seconds", "connection.idle_pinned_time", "Time for which connections were held and no statement was running.", func(s *pooldriver.Stats) *pooldriver.Histogram { return &s.IdlePinned }},
	{"replica_wait_seconds", "replica.wait_time", "Time for which reads have waited for a replica that had not replayed the writes of their context.", func(s *pooldriver.Stats) *pooldriver.Histogram { return &s.Replica.Wait }},
}

func count(of func(*Snapshot) uint64) func(*Snapshot, add) {
	return func(s *Snapshot, add add) { add(float64(of(s))) }
}

func number(of func(*Snapshot) int) func(*Snapshot, add) {
	return func(s *Snapshot, add add) { add(float64(of(s))) }
}

func seconds(of func(*Snapshot) time.Duration) func(*Snapshot, add) {
	return func(s *Snapshot, add add) { add(of(s).Seconds()) }
}

func yes(of func(*Snapshot) bool) func(*Snapshot, add) {
	return func(s *Snapshot, add add) { add(one(of(s))) }
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// each has a value for each reason.
func each[K ~string](of func(*Snapshot) map[K]uint64) func(*Snapshot, add) {
	return func(s *Snapshot, add add) {
		for why, n := range of(s) {
			add(float64(n), string(why))
		}
	}
}

// ofReplicas has a value for each replica where it is known.
func ofReplicas(of func(*pooldriver.ReplicaPool) (value float64, known bool)) func(*Snapshot, add) {
	return func(s *Snapshot, add add) {
		for i := range s.Replica.Pools {
			if value, known := of(&s.Replica.Pools[i]); known {
				add(value, s.Replica.Pools[i].Host)
			}
		}
	}
}

// longest is the longest of the times that of returns for each connection that is held. That of a listener is held
// for as long as somebody listens.
func longest(of func(*Snapshot, *pooldriver.Holder) time.Duration) func(*Snapshot, add) {
	return func(s *Snapshot, add add) {
		most := time.Duration(0)
		for i := range s.Holders {
			if s.Holders[i].Pin != pooldriver.PinListen {
				most = max(most, of(s, &s.Holders[i]))
			}
		}
		add(most.Seconds())
	}
}

// Printed is a figure for people.
type Printed struct{ Name, Value, Help string }

// Print returns the figures that are not 0, in the order of the table.
func Print(s *Snapshot) (all []Printed) {
	for _, f := range Figures {
		first := len(all)
		f.Get(s, func(value float64, labels ...string) {
			if value != 0 && f.Prometheus != "" {
				all = append(all, Printed{strings.Join(append([]string{f.Prometheus}, labels...), " "), strconv.FormatFloat(value, 'f', -1, 64), f.Help})
			}
		})
		slices.SortFunc(all[first:], func(a, b Printed) int { return cmp.Compare(a.Name, b.Name) }) // reasons come in no order
	}
	return all
}
