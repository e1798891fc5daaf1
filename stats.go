package pooldriver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/listen"
	"github.com/pooldriver/pooldriver/internal/observe/histogram"
	"github.com/pooldriver/pooldriver/internal/observe/report"
	"github.com/pooldriver/pooldriver/pool"
)

// AcquireFailure says why a statement got no connection. It is a label for metrics.
type AcquireFailure string

// The reasons.
const (
	AcquireTimeout     AcquireFailure = "timeout"      // pool_acquire_timeout
	AcquireGaveUp      AcquireFailure = "gave_up"      // the statement's context has ended: by its deadline, or cancelled after a wait of a second
	AcquireCancelled   AcquireFailure = "cancelled"    // it was cancelled sooner
	AcquireQueueFull   AcquireFailure = "queue_full"   // pool_max_waiters
	AcquireBreakerOpen AcquireFailure = "breaker_open" // pool_breaker_failures
	AcquireDialFailed  AcquireFailure = "dial_failed"  // the dial, or all of the last dials
	AcquireDeadlock    AcquireFailure = "deadlock"     // ErrDeadlock
	AcquireClosed      AcquireFailure = "closed"       // the Connector was closed
	AcquireOverloaded  AcquireFailure = "overloaded"   // pool_queue_target
)

// acquireFailures are the names of the failures of package report.
var acquireFailures = [report.Failures]AcquireFailure{
	report.Timeout:     AcquireTimeout,
	report.Cancelled:   AcquireCancelled,
	report.QueueFull:   AcquireQueueFull,
	report.BreakerOpen: AcquireBreakerOpen,
	report.DialFailed:  AcquireDialFailed,
	report.Deadlock:    AcquireDeadlock,
	report.Closed:      AcquireClosed,
	report.Overloaded:  AcquireOverloaded,
	report.GaveUp:      AcquireGaveUp,
}

// Stats describes a Connector at a moment, and since its beginning. Its own
// fields count since the beginning.
type Stats struct {
	// Pool is the pool of real connections.
	Pool pool.Stats
	// Min and MinIdle are Config.MinConns and Config.MinIdleConns. MaxIdle is the most
	// connections that may be idle, which is Pool.Max.
	Min, MinIdle, MaxIdle int
	// Peak is the highest number of connections that were in use at the same time in the last hour.
	Peak int
	// AcquireFailures counts the statements that got no connection, by reason. It has an
	// entry for each reason.
	AcquireFailures map[AcquireFailure]uint64
	// WouldRefuse counts the statements that Config.QueueDry has let pass: without it they would have got
	// ErrOverloaded. It is Pool.WouldRefuse.
	WouldRefuse uint64
	// Wait is the time that statements took to get a connection, also those that did not
	// wait, and those that gave up waiting. The wait of a pipelined query ends when it is taken along.
	// Connect is the time of the dials, also of those that failed.
	Wait, Connect Histogram
	// Hold is the time for which connections were held. IdlePinned is the part of that time in
	// which no statement was running. Connections that are held now are not counted yet.
	Hold, IdlePinned Histogram
	// Cleanings counts connections brought back to their state at connect.
	Cleanings uint64
	// Rollbacks counts transactions that were still open when their
	// connection came back (raw BEGIN, or autocommit switched off) or their
	// task ended.
	Rollbacks uint64
	// Discards counts connections closed at their return: lost, in doubt, or
	// beyond cleaning.
	Discards uint64
	// Closed counts the connections that were closed, by reason; Discards, FoundDead and WrongRoles
	// are among them. It has an entry for each reason.
	Closed map[CloseReason]uint64
	// Retries counts operations that were moved to another connection, because their connection
	// was dead before the server could execute anything.
	Retries uint64
	// TxRetries counts transactions of InTx with Retry that were run once more, because other
	// transactions were in the way.
	TxRetries uint64
	// Pipelined counts queries that waited for a connection, and were answered in the pipeline of
	// another query instead (Config.Pipeline). Wait counts them, Pool.Acquires does not. The pipelines
	// are Pool.Pipelines.
	Pipelined uint64
	// PipelineRepeats counts how often a query of a pipeline got no answer there and was sent again, in
	// another pipeline or alone: the connection was lost, an answer before its own took more than 20 ms,
	// the result was too large, or only the driver itself can execute it.
	PipelineRepeats uint64
	// FoundDead counts idle connections that were found dead when they were taken.
	FoundDead uint64
	// DialErrors counts failed dials. DialsFailing describes the failed dials since the last dial
	// that has succeeded.
	DialErrors   uint64
	DialsFailing DialsFailing
	// Orphans counts connections whose end the server did not confirm within 5 s, or refused to
	// confirm. Other connections got their places all the same, so the server may have shown more
	// than MaxConns connections.
	Orphans uint64
	// WrongRoles counts connections closed because their server was asked and
	// is no longer what the DSN asks for (target_session_attrs).
	WrongRoles uint64
	// StateDropped counts statements that set session state (a setting, an
	// advisory lock, a temporary table) outside of any task, transaction and
	// *sql.Conn. Their state ended with them. The log has one warning for each
	// beginning of such a text, 256 of them at most.
	StateDropped uint64
	// ReadAheads counts rows that were read into memory because their connection was needed.
	// Reclaims counts how many of these rows lost their connection to other statements that had
	// waited.
	ReadAheads, Reclaims uint64
	// StatementErrors counts the errors of statements, of their rows, and of the begin and the end of transactions, by the class of
	// their SQLSTATE: "23" is a constraint, "40" a conflict, "42" a wrong text or a missing right, "57" a server that leaves. It is "ended" where the
	// caller's context has ended, and "other" where the driver gives no SQLSTATE, and beyond 20 classes. Errors of statements that were tried again count, too.
	StatementErrors map[string]uint64
	// Arrivals counts, by label, what has asked for a connection, or has begun a checkout in a task. The replicas' is not in it. There are
	// 32 labels at most, and then "other". What has no label is not counted. The label that comes most often comes first.
	Arrivals []LabelArrivals
	// BufferedBytes is the memory that such rows take now.
	BufferedBytes int64
	// StmtHits and StmtMisses count the look-ups of prepared statements, also in pgx's own cache, unless the
	// Connector is one of Wrap.
	StmtHits, StmtMisses uint64
	// Listen has the figures of Connector.Listen. Its connection is no part of Pool, but its dials are
	// counted in Connect, and those that fail in DialErrors.
	Listen ListenStats
	// Replica has the figures of the replicas (Config.Replicas). Those of their connections are in Replica.Pools, and
	// nowhere else in Stats.
	Replica ReplicaStats
}

// LabelArrivals says how often statements of one label come.
type LabelArrivals struct {
	Label string // see the function Label
	Count uint64
	// Lately is how many come in a second. Usual is the mean of seconds in which nobody waited or failed, and the pool was in use; it is below
	// 0 until ten such seconds are known.
	Lately, Usual float64
	// Since is when Lately grew to three times Usual; zero: it has not, or has fallen again.
	Since time.Time
}

// ListenStats describes the connection of Connector.Listen, and its listeners.
type ListenStats struct {
	State     ListenState
	Since     time.Time // of State
	Channels  int       // that have listeners
	Listeners int
	// Received counts the notifications that the server has sent. Dropped counts those that a listener
	// was too slow to take.
	Received, Dropped uint64
	// Failing describes the dials of this connection since the last that has succeeded.
	Failing DialsFailing
	// Gaps counts the gaps that listeners were told of, or are to be told of, except the first one of
	// each. Losses counts the connections that were lost.
	Gaps, Losses uint64
}

// ListenState says what the connection of Connector.Listen does. It is a text for people.
type ListenState string

// The states.
const (
	ListenUnused     ListenState = "unused"     // nobody listens, and there is no connection
	ListenConnecting ListenState = "connecting" // the server sends nothing now
	ListenListening  ListenState = "listening"
	// ListenUnproven is ListenListening where the server has refused to send a notification as a test (its queue is full, or pg_notify
	// is not ours to call): so nobody knows whether a pooler in between passes notifications on.
	ListenUnproven ListenState = "listening, unproven"
)

// listenStates are the names of the states of package listen.
var listenStates = [...]ListenState{listen.Unused: ListenUnused, listen.Connecting: ListenConnecting, listen.Listening: ListenListening, listen.Unproven: ListenUnproven}

// DialsFailing describes an outage, as far as dials show it. Dials that a full server has
// refused, while connections are open, are not in it.
type DialsFailing struct {
	Failed int           // dials in a row; 0: the last one has succeeded, and the rest is empty
	For    time.Duration // since the first of them
	Ago    time.Duration // since the last of them
	Error  string        // of the last one; it holds no secret
	Cause  DialFailure   // of the last one
}

// DialFailure is the cause of a failed dial.
type DialFailure string

// The causes.
const (
	DialLoginRefused DialFailure = "login refused"  // the server refuses user or password
	DialCertificate  DialFailure = "certificate"    // the server's certificate was not accepted
	DialNoSuchName   DialFailure = "name not found" // DNS has not told the server's address
	DialNoAnswer     DialFailure = "no answer"      // pool_connect_timeout, or another timeout
	DialServerFull   DialFailure = "server full"    // the server, or a bouncer, has no room for one more
	DialOther        DialFailure = "other"          // nothing listens there, the server is starting, …
)

// dialFailureOf judges the error of a dial.
func dialFailureOf(err error, d dialects.Dialect) DialFailure {
	switch said := d.Diagnose(err); {
	case said&dialects.AuthFailed != 0:
		return DialLoginRefused
	case said&dialects.ServerFull != 0:
		return DialServerFull
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return DialCertificate
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return DialNoSuchName
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return DialNoAnswer
	}
	return DialOther
}

// dialsFailing describes the dials that d has counted.
func dialsFailing(c *Connector, d *report.Dials) DialsFailing {
	failed, lasts, ago, last := d.Failing(time.Now())
	if failed == 0 {
		return DialsFailing{}
	}
	return DialsFailing{Failed: failed, For: lasts, Ago: ago, Error: last.Error(), Cause: dialFailureOf(last, c.settings.Dialect)}
}

// Histogram counts durations. Buckets[i] counts those that took no longer than
// HistogramBounds()[i] and longer than the bound before; the last one counts the rest.
//
// If a connection is taken more than 20 times in 10 ms, one of 32 further checkouts is timed, and
// counts as 32.
type Histogram struct {
	Count   uint64
	Sum     time.Duration
	Buckets [22]uint64
}

// HistogramBounds returns the upper bounds of all buckets of a Histogram except the last, in
// rising order: 10 µs, 25 µs, 50 µs, 100 µs … 10 s, 30 s, 60 s. The bounds that OpenTelemetry
// advises for db.client.connection metrics are among them.
func HistogramBounds() []time.Duration { return slices.Clone(histogram.Bounds[:]) }

// figures makes the Stats.
func figures(c *Connector) Stats {
	n := &c.report.Counters
	s := Stats{
		Pool:            c.pool.Stats(),
		Min:             c.config.MinConns,
		MinIdle:         c.config.MinIdleConns,
		Wait:            Histogram(n.Wait.Snapshot()),
		Connect:         Histogram(n.Connect.Snapshot()),
		Hold:            Histogram(c.usage.Hold.Snapshot()),
		IdlePinned:      Histogram(c.usage.Idle.Snapshot()),
		Closed:          map[CloseReason]uint64{},
		AcquireFailures: map[AcquireFailure]uint64{},
		StatementErrors: map[string]uint64{},
		Cleanings:       n.Cleanings.Load(),
		Rollbacks:       n.Rollbacks.Load(),
		Discards:        n.Discards.Load(),
		Retries:         n.Retries.Load(),
		TxRetries:       n.TxRetries.Load(),
		Pipelined:       n.Pipelined.Load(),
		PipelineRepeats: n.PipelineRepeats.Load(),
		FoundDead:       n.FoundDead.Load(),
		DialErrors:      n.DialErrors.Load(),
		Orphans:         n.Orphans.Load(),
		WrongRoles:      n.WrongRoles.Load(),
		StateDropped:    n.StateDropped.Load(),
		ReadAheads:      n.ReadAheads.Load(),
		Reclaims:        n.Reclaims.Load(),
		BufferedBytes:   n.Buffered.Load(),
		StmtHits:        n.StmtHits.Load(),
		StmtMisses:      n.StmtMisses.Load(),
		Listen:          listenStats(c.listens),
		Replica:         replicaStats(c),
	}
	s.Peak = max(c.history.Peak(), s.Pool.Peak)
	s.MaxIdle, s.WouldRefuse = s.Pool.Max, s.Pool.WouldRefuse
	s.DialsFailing = dialsFailing(c, &c.report.Dials)
	s.Listen.Failing = dialsFailing(c, &c.report.Listens)
	atOnce := n.AtOnce(s.Pool.Acquires)
	s.Wait.Count += atOnce
	s.Wait.Buckets[0] += atOnce
	for i, why := range closeReasons {
		if why != "" {
			s.Closed[why] = n.Closed[i].Load()
		}
	}
	for _, a := range c.report.Arrivals() {
		s.Arrivals = append(s.Arrivals, LabelArrivals(a))
	}
	slices.SortFunc(s.Arrivals, func(a, b LabelArrivals) int {
		return cmp.Or(cmp.Compare(b.Lately, a.Lately), cmp.Compare(a.Label, b.Label))
	})
	s.addErrors(&c.report)
	for _, r := range replicasOf(c) {
		s.addErrors(&r.Report)
	}
	for i, why := range acquireFailures {
		s.AcquireFailures[why] = n.AcquireFailures[i].Load()
		if why == AcquireDialFailed || why == AcquireBreakerOpen {
			continue // where no replica can be dialled the primary serves
		}
		for _, r := range replicasOf(c) {
			s.AcquireFailures[why] += r.Report.AcquireFailures[i].Load()
		}
	}
	return s
}

func (s *Stats) addErrors(r *report.Report) {
	r.StatementsFailed(func(class string, n uint64) { s.StatementErrors[class] += n })
}
