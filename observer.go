package pooldriver

import (
	"context"
	"time"

	"github.com/pooldriver/pooldriver/internal/observe/report"
	"github.com/pooldriver/pooldriver/internal/observe/usage"
	"github.com/pooldriver/pooldriver/pool"
)

// Observer has functions that a Connector calls when something happens to its real connections. Each
// function may be nil. Set an Observer with Config.Observer:
//
//	pooldriver.New(dsn, func(c *pooldriver.Config) {
//		c.Observer = &pooldriver.Observer{
//			ReleaseDone: func(i pooldriver.ReleaseInfo) { … },
//		}
//	})
//
// No function is called while a lock is held, so a function may use the database. Several
// goroutines call the functions at the same time. AcquireDone and, mostly, ReleaseDone run
// on the goroutine of the statement, which waits for them: they should be quick. If a
// function panics, the panic is recovered and logged: no connection is lost by it.
//
// No argument holds a statement's text, an argument of a statement, or a secret.
type Observer struct {
	// DialDone is called for each dial, when the dial has succeeded or failed.
	DialDone func(DialInfo)
	// AcquireDone is called when a statement has got a real connection from the pool, and
	// when it has failed to get one. ctx is the statement's context. For a query that another one's
	// connection has answered (Config.Pipeline), it is called when the answer has come.
	AcquireDone func(ctx context.Context, info AcquireInfo)
	// ReleaseDone is called for each real connection that its borrower has given back. The
	// connection may still be rolled back or cleaned: see ResetDone.
	ReleaseDone func(ReleaseInfo)
	// ResetDone is called for each connection that was rolled back or cleaned after its
	// borrower had given it back, also if the rollback or the cleaning has failed.
	ResetDone func(ResetInfo)
	// Closed is called for each real connection that is about to be closed.
	Closed func(CloseInfo)
	// TaskDone is called for each task that has used the Connector, when the task has ended.
	TaskDone func(TaskInfo)
}

// DialInfo describes a dial.
type DialInfo struct {
	Host     string        // the server, where the DSN names several; else empty
	Duration time.Duration // until the connection can be used: with TLS, login and AfterConnect
	Err      error         // nil: it has succeeded
}

// AcquireInfo describes how a statement got a connection, or why it got none.
type AcquireInfo struct {
	Wait  time.Duration // 0: a connection was idle
	Label string        // see Label
	Task  string        // the name of its task, as in errors; empty: none
	// Pipelined: it is a query that has no connection, because the pipeline of another one has taken it
	// along, after Wait, and has answered it. No ReleaseDone follows.
	Pipelined bool
	Err       error // nil: it got a connection, or an answer
}

// ReleaseInfo describes the time for which somebody had a connection.
type ReleaseInfo struct {
	// Held is how long somebody had the connection. IdlePinned is the part of that time in which
	// no statement was running. If Timed is true, Held is exact (see Histogram), and IdlePinned
	// is exact, too, for pins that are stronger than rows. Otherwise a clock of 10 ms measures
	// both.
	Held, IdlePinned time.Duration
	Timed            bool
	Pin              Pin    // the strongest reason for which it was held
	Statements       uint64 // the number of operations, BeginTx, Commit and the queries of its pipeline among them
	Label            string // see Label
	Task             string // the name of its task, as in errors; empty: none
	Host             string // the server, where the DSN names several; else empty
}

// ResetInfo describes how a connection was made ready for the next borrower.
type ResetInfo struct {
	Duration   time.Duration
	RolledBack bool  // a transaction was open, and was rolled back
	Cleaned    bool  // the session was brought back to its state at connect
	Err        error // why the connection is closed; nil: it is lent again
}

// CloseInfo describes the end of a real connection.
type CloseInfo struct {
	Reason CloseReason
	Age    time.Duration
	Host   string // the server, where the DSN names several; else empty
}

// CloseReason says why a real connection is closed. It is a text for people, and a label
// for metrics.
type CloseReason string

// The reasons. Those from CloseLost on are mostly found when a borrower gives a connection back.
const (
	CloseLifetime    CloseReason = "lifetime"     // older than Config.MaxConnLifetime
	CloseIdleTime    CloseReason = "idle_time"    // idle for longer than Config.MaxConnIdleTime
	CloseCheckFailed CloseReason = "check_failed" // a health check has failed
	CloseFoundDead   CloseReason = "found_dead"   // found dead when a statement was to get it
	CloseFlushed     CloseReason = "flushed"      // Connector.Flush, a failover, a new credential
	CloseShutdown    CloseReason = "shutdown"     // Connector.Close

	CloseLost        CloseReason = "lost"         // the connection broke or was ended while it was used, or its state is in doubt
	CloseUncleanable CloseReason = "uncleanable"  // its session cannot be cleaned in place
	CloseResetFailed CloseReason = "reset_failed" // rolling back or cleaning has failed, or took too long
	CloseWrongRole   CloseReason = "wrong_role"   // its server is not what the DSN asks for any more
)

// TaskInfo describes a task that has ended.
type TaskInfo struct {
	Name       string // as in errors
	Label      string // see Label
	Implicit   bool   // of Config.TaskKey or httptask.Separate
	Duration   time.Duration
	RolledBack bool // a transaction was open, and was rolled back
}

// closeReasons are the names of the reasons of package report. A Connector does not resize its pool.
var closeReasons = [report.Reasons]CloseReason{
	pool.ReasonLifetime:      CloseLifetime,
	pool.ReasonIdleTime:      CloseIdleTime,
	pool.ReasonCheckFailed:   CloseCheckFailed,
	pool.ReasonBeforeAcquire: CloseFoundDead,
	report.ResetFailed:       CloseResetFailed,
	report.Lost:              CloseLost,
	pool.ReasonFlushed:       CloseFlushed,
	pool.ReasonClosed:        CloseShutdown,
	report.Uncleanable:       CloseUncleanable,
	report.WrongRole:         CloseWrongRole,
}

// listener returns o as a listener of package report. o may be nil.
func (o *Observer) listener() (l report.Listener) {
	if o == nil {
		return l
	}
	if f := o.DialDone; f != nil {
		l.Dialled = func(host string, took time.Duration, err error) { f(DialInfo{Host: host, Duration: took, Err: err}) }
	}
	if f := o.AcquireDone; f != nil {
		l.Acquired = func(ctx context.Context, wait time.Duration, who report.Who, pipelined bool, err error) {
			f(ctx, AcquireInfo{Wait: wait, Label: who.Label, Task: who.Task, Pipelined: pipelined, Err: err})
		}
	}
	if f := o.ReleaseDone; f != nil {
		l.Released = func(use usage.Use, who report.Who, host string) {
			f(ReleaseInfo{
				Held: use.Held, IdlePinned: use.Idle, Timed: use.Timed > 0, Pin: Pin(use.Pin.String()),
				Statements: use.Operations, Label: who.Label, Task: who.Task, Host: host,
			})
		}
	}
	if f := o.ResetDone; f != nil {
		l.Reset = func(took time.Duration, rolledBack, cleaned bool, err error) {
			f(ResetInfo{Duration: took, RolledBack: rolledBack, Cleaned: cleaned, Err: err})
		}
	}
	if f := o.Closed; f != nil {
		l.Closed = func(why report.Reason, age time.Duration, host string) {
			f(CloseInfo{Reason: closeReasons[why], Age: age, Host: host})
		}
	}
	if f := o.TaskDone; f != nil {
		l.TaskEnded = func(who report.Who, lasted time.Duration, rolledBack bool) {
			f(TaskInfo{Name: who.Task, Label: who.Label, Implicit: who.Implicit, Duration: lasted, RolledBack: rolledBack})
		}
	}
	return l
}
