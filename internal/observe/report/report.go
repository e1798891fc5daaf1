// Package report is told of every event that people may want to know of. It counts, writes the
// log, and tells the program's Observer. No method is called under a lock.
package report

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/internal/droppedstate"
	"github.com/pooldriver/pooldriver/internal/observe/usage"
	"github.com/pooldriver/pooldriver/internal/repeated"
	"github.com/pooldriver/pooldriver/pool"
)

// Report has a method for each event.
type Report struct {
	Counters
	target  string
	log     *slog.Logger
	to      Listener
	Dials   Dials
	Listens Dials // the dials of the connection that listens
	conns   int   // pool_max_conns
	// DialEnded, if set, is called after each dial. It is set before the first one.
	DialEnded func()

	// The log gets each of these now and then, because they may happen often.
	endedOpen, backOpen, uncleaned, refused, outlasts, inRaw, forgotten, full, listenLost, overflowed repeated.Line
	// The log gets each of these once for each statement.
	dropped, shared droppedstate.Told
	openLimit, inTx atomic.Bool // OpenLimit has warned, FirstInTx was called
	failed          tally       // statements, by class of SQLSTATE
	arrivals        arrivals
	slow            slowLines
}

// Listener is the program's Observer. Each function may be nil.
type Listener struct {
	Dialled   func(host string, took time.Duration, err error)
	Acquired  func(ctx context.Context, wait time.Duration, who Who, pipelined bool, err error)
	Released  func(use usage.Use, who Who, host string)
	Reset     func(took time.Duration, rolledBack, cleaned bool, err error)
	Closed    func(why Reason, age time.Duration, host string)
	TaskEnded func(who Who, lasted time.Duration, rolledBack bool)
}

// Who is the task and the label for which something happened.
type Who struct {
	Task, Label string
	Implicit    bool
}

// Init makes r the report of a connector to target, which has conns real connections at most.
func (r *Report) Init(log *slog.Logger, target string, conns int, to Listener) {
	r.log, r.target, r.conns, r.to = log, target, conns, to
}

// Target is what the connector connects to, without secrets.
func (r *Report) Target() string { return r.target }

// write writes a line of the log.
func (r *Report) write(level slog.Level, message string, args ...any) {
	r.log.Log(context.Background(), level, "pooldriver: "+message, append([]any{"target", r.target}, args...)...)
}

// nowAndThen writes a line that may come often: once in ten seconds.
func (r *Report) nowAndThen(line *repeated.Line, message string, args ...any) {
	if since, due := line.Due(); due {
		if since > 0 {
			args = append(args, "others", since)
		}
		r.write(slog.LevelWarn, message, args...)
	}
}

// Guarded is deferred. It ends a panic of a function of the program. The panic goes to the log
// with its stack, and to err. user is for whom the function was called; nil: for nobody.
//
// pooldriver calls such functions (Observer, Credentials, Config.TaskKey) for itself, and not for
// a caller who waits for their result. Their panic must not end the process, or a statement that
// has nothing to do with them. The logger has its own guard (internal/repeated), because Guarded
// reports to the logger. The pool guards the functions that it calls in a dial (AfterConnect,
// Dial, and Credentials there). The statement gets the pool's PanicError.
func (r *Report) Guarded(function string, user *Who, err *error) {
	v := recover()
	if v == nil {
		return
	}
	p := &pool.PanicError{Hook: function, Value: v, Stack: debug.Stack()}
	args := []any{"function", function}
	if user != nil && user.Label != "" {
		args = append(args, "label", user.Label)
	}
	if user != nil && user.Task != "" {
		args = append(args, "task", user.Task)
	}
	r.write(slog.LevelError, "a function of the program panicked", append(args, "panic", fmt.Sprintf("%T", v), "stack", string(p.Stack))...)
	*err = fmt.Errorf("pooldriver: %w", p)
}

// tell calls a function of the listener. Its panic is logged, and goes no further. user is as in
// Guarded.
func (r *Report) tell(function string, user *Who, call func()) {
	var logged error
	defer r.Guarded(function, user, &logged)
	call()
}

// SettingIdle: a setting of the program has no effect.
func (r *Report) SettingIdle(name, value, why string) {
	r.write(slog.LevelWarn, "a setting has no effect", "setting", name, "value", value, "because", why)
}

// OpenLimit is told how many connections SetMaxOpenConns allows a *sql.DB of the connector; 0 is any
// number. It warns once.
func (r *Report) OpenLimit(most int) {
	if most > 0 && most <= r.conns && !r.openLimit.Swap(true) {
		r.write(slog.LevelWarn, "SetMaxOpenConns undoes the nesting of statements: when so many are in use, a statement inside another one waits in database/sql, where pooldriver neither sees nor ends the wait; do not call SetMaxOpenConns: pool_max_conns bounds the connections",
			"max_open_conns", most, "pool_max_conns", r.conns)
	}
}

// FirstInTx reports whether this is its first call: only the first InTx looks at its *sql.DB.
func (r *Report) FirstInTx() bool { return !r.inTx.Load() && !r.inTx.Swap(true) }

// Dialled is told of a dial that has ended. host is the server, where the DSN names several.
func (r *Report) Dialled(host string, took time.Duration, err error) {
	r.Connect.Record(took, 1)
	if r.DialEnded != nil {
		r.DialEnded()
	}
	if r.to.Dialled != nil {
		r.tell("Config.Observer.DialDone", nil, func() { r.to.Dialled(host, took, err) })
	}
}

// DialsEnded tells the log of an outage: at its beginning, from time to time, and at its end.
// err is that of the last dial, nil if it has succeeded.
func (r *Report) DialsEnded(err error) {
	r.tellOutage(&r.Dials, err, "connecting succeeds again", "connecting fails")
}

// ListenDialled tells the log of an outage, as DialsEnded does: here of the connection that listens.
func (r *Report) ListenDialled(err error) {
	r.tellOutage(&r.Listens, err, "listening for notifications succeeds again",
		"listening for notifications fails; it is tried again, and the listeners are told of the gap")
}

func (r *Report) tellOutage(dials *Dials, err error, again, fails string) {
	look := dials.Count(err, time.Now())
	lasted := rounded(look.For)
	switch {
	case !look.Tell:
	case err == nil:
		r.write(slog.LevelInfo, again, "failed", look.Failed, "after", lasted)
	default:
		r.write(slog.LevelWarn, fails, "error", err, "failed", look.Failed, "for", lasted)
	}
}

// ListenLost: the connection that listens was lost.
func (r *Report) ListenLost(err error) {
	r.nowAndThen(&r.listenLost, "the connection that listens for notifications was lost; a new one takes its place, and the listeners are told of the gap", "error", err)
}

// ListenOverflowed: a listener was too slow.
func (r *Report) ListenOverflowed(channel string) {
	r.nowAndThen(&r.overflowed, "a listener does not take its notifications as fast as they come; what waited for it was dropped, and it is told of the gap", "channel", channel)
}

// DialsFail reports whether the last dial has failed.
func (r *Report) DialsFail() bool {
	failed, _, _, _ := r.Dials.Failing(time.Time{})
	return failed > 0
}

// ServerFull: the server takes no more connections than those that are open.
func (r *Report) ServerFull(open int, err error) {
	r.nowAndThen(&r.full, "the server has no room for more connections; statements wait for the open connections", "connections", open, "error", err)
}

// CannotPipeline: queries that wait share no pipeline although the program has asked for it.
func (r *Report) CannotPipeline(err error) {
	r.write(slog.LevelWarn, "pool_pipeline has no effect: queries that are sent together are not answered on the way to this server, or the driver's settings rule it out", "error", err)
}

// OtherServer: the last dial went to another server than the one before it. passed are the
// servers that it has passed over.
func (r *Report) OtherServer(host, before, passed string) {
	r.write(slog.LevelInfo, "now connecting to another server", "host", host, "before", before, "passed", passed)
}

// RoleChanged: the server of a connection is not what the DSN asks for any more. first: from now
// on the server's connections are replaced.
func (r *Report) RoleChanged(first bool, host string, err error) {
	r.WrongRoles.Add(1)
	if first {
		r.write(slog.LevelWarn, "a server is no longer what the DSN asks for; its connections are replaced", "host", host, "error", err)
	}
}

// HookReturned: AfterConnect has returned after its dial was given up.
func (r *Report) HookReturned(err error) {
	r.write(slog.LevelDebug, "AfterConnect has returned after its dial was given up", "error", err)
}

// NoCredential: the source of credentials has given no new one.
func (r *Report) NoCredential(err error) {
	r.write(slog.LevelWarn, "no new credential; open connections go on", "error", err)
}

// HearsAcquired reports whether somebody listens to Acquired.
func (r *Report) HearsAcquired() bool { return r.to.Acquired != nil }

// Acquired: a statement has got a connection after wait. Only the listener is told. ended is called
// if the listener has ended the goroutine: then the connection goes back.
func (r *Report) Acquired(ctx context.Context, wait time.Duration, who Who, ended func()) {
	r.acquired(ctx, wait, who, false, ended)
}

func (r *Report) acquired(ctx context.Context, wait time.Duration, who Who, pipelined bool, ended func()) {
	returned := false
	defer func() {
		if !returned {
			ended()
		}
	}()
	r.tell("Config.Observer.AcquireDone", &who, func() { r.to.Acquired(ctx, wait, who, pipelined, nil) })
	returned = true
}

// Pipelined records that a query was answered in a pipeline, on the connection of another query, after it had waited
// for wait. ended is called if the Observer ends the goroutine: then nobody takes the answer.
func (r *Report) Pipelined(ctx context.Context, wait time.Duration, who Who, ended func()) {
	r.Wait.Record(wait, 1)
	r.Counters.Pipelined.Add(1)
	if r.HearsAcquired() {
		r.acquired(ctx, wait, who, true, ended)
	}
}

// NotAcquired: a statement has got no connection. wait is 0 if it has not waited. who is called
// only if somebody listens: in an outage many statements get no connection.
func (r *Report) NotAcquired(ctx context.Context, wait time.Duration, who func() Who, err error) {
	if wait > 0 {
		r.Wait.Record(wait, 1)
	}
	if r.to.Acquired != nil {
		of := who()
		r.tell("Config.Observer.AcquireDone", &of, func() { r.to.Acquired(ctx, wait, of, false, err) })
	}
}

// AcquireFailed counts a statement that got no connection, by the reason why.
func (r *Report) AcquireFailed(why Failure) { r.AcquireFailures[why].Add(1) }

// HearsReleased reports whether somebody listens to Released.
func (r *Report) HearsReleased() bool { return r.to.Released != nil }

// Released: a connection has gone back. The listener is told after that, because the listener may
// need a connection.
func (r *Report) Released(use usage.Use, who Who, host string) {
	r.tell("Config.Observer.ReleaseDone", &who, func() { r.to.Released(use, who, host) })
}

// Reset: a connection was rolled back or cleaned, or could not be.
func (r *Report) Reset(took time.Duration, rolledBack, cleaned bool, err error) {
	if r.to.Reset != nil {
		r.tell("Config.Observer.ResetDone", nil, func() { r.to.Reset(took, rolledBack, cleaned, err) })
	}
}

// Closing: a connection is about to be closed.
func (r *Report) Closing(why Reason, age time.Duration, host string) {
	r.Counters.Closed[why].Add(1)
	if r.to.Closed != nil {
		r.tell("Config.Observer.Closed", nil, func() { r.to.Closed(why, age, host) })
	}
}

// CloseFailed: the server has not confirmed the end of a connection.
func (r *Report) CloseFailed(err error) {
	r.Orphans.Add(1)
	r.write(slog.LevelDebug, "the server has not confirmed the end of a connection", "error", err)
}

// TemplateCloseFailed: the template, which dials the connections, could not be closed.
func (r *Report) TemplateCloseFailed(err error) {
	r.write(slog.LevelDebug, "the Connector could not be closed completely", "error", err)
}

// TaskEnded: a task that has used the connector has ended.
func (r *Report) TaskEnded(who func() Who, begun time.Time, rolledBack bool) {
	if r.to.TaskEnded != nil {
		of := who()
		r.tell("Config.Observer.TaskDone", &of, func() { r.to.TaskEnded(of, time.Since(begun), rolledBack) })
	}
}

// TaskOutlasted: a task has ended, and a statement of it has not.
func (r *Report) TaskOutlasted(task string) {
	r.nowAndThen(&r.outlasts, "a task has ended, but its statement has not; the connection comes back when the statement ends", "task", task)
}

// ConnsForgotten: a task has ended, and conns of its *sql.Conns, rows and transactions are still open.
func (r *Report) ConnsForgotten(conns int, task, label string) {
	r.nowAndThen(&r.forgotten, "a task has ended, and a *sql.Conn, rows or a transaction of it are still open; close them: each takes memory, and a place of SetMaxOpenConns", "open", conns, "task", task, "label", label)
}

// TaskEndedInRaw: a task has ended while a function of Raw runs.
func (r *Report) TaskEndedInRaw(task string) {
	r.nowAndThen(&r.inRaw, "a task has ended while a function of Raw has its connection, which comes back when the function returns", "task", task)
}

// TaskEndedOpen: a task has ended with a transaction open. use says whose transaction it was.
func (r *Report) TaskEndedOpen(open string, use ...any) {
	r.nowAndThen(&r.endedOpen, "a task ended with a transaction open, which was rolled back; commit it or roll it back before the task ends", append(use, "open", open)...)
}

// BackOpen: a connection came back with a transaction open. use says whose transaction it was.
func (r *Report) BackOpen(use ...any) {
	r.nowAndThen(&r.backOpen, "a transaction was open when its connection came back, and was rolled back; if it was begun by a BEGIN on a *sql.DB, the next statements commit one by one: use BeginTx, or run all statements of the transaction on one *sql.Conn or in a task (pooldriver.WithTask)", use...)
}

// CannotClean: a connection could not be cleaned.
func (r *Report) CannotClean(err error) {
	r.nowAndThen(&r.uncleaned, "a connection could not be cleaned, and was closed", "error", err)
}

// HookRefused: AfterConnect has refused a connection that was cleaned.
func (r *Report) HookRefused(err error) {
	r.nowAndThen(&r.refused, "AfterConnect refused a cleaned connection, which was closed", "error", err)
}

// DriverPanicked: the driver has panicked with v, and no statement could get the error. doing says
// when, and what has become of the connection.
func (r *Report) DriverPanicked(doing string, v any, args ...any) {
	r.write(slog.LevelError, "the driver panicked "+doing, append(args, "panic", fmt.Sprintf("%T", v))...)
}

// JoinedTx: a statement has joined a transaction of its task.
func (r *Report) JoinedTx(task, open string) {
	r.write(slog.LevelWarn, "a statement joined its task's transaction", "task", task, "open", open)
}

// StateShared: a statement in a task has set state on a session that other checkouts of the task
// use. statement is without literals. at is called only if the log gets a line.
func (r *Report) StateShared(who Who, statement string, at func() string) {
	if r.shared.First(statement) {
		r.write(slog.LevelWarn, "a statement of a task set session state (a setting, a lock), and other statements of the task use the same session now: they have the setting, too, and a lock excludes none of them; if each needs a session of its own, run each with a context of pooldriver.NewTask",
			"task", who.Task, "label", who.Label, "statement", statement, "at", at())
	}
}

// StateLost: a statement, given without literals, has set session state that has ended with it.
func (r *Report) StateLost(statement string) {
	r.StateDropped.Add(1)
	if r.dropped.First(statement) {
		r.write(slog.LevelWarn, "a statement on a *sql.DB set session state (a setting, a lock, a temporary table), and the state ended with the statement: the connection is cleaned before it is lent again; to keep the state, use a task (pooldriver.WithTask) or a *sql.Conn",
			"statement", statement)
	}
}

// ValidatorHidden: a wrapper above hides driver.Validator.
func (r *Report) ValidatorHidden() {
	r.write(slog.LevelWarn, "a wrapper above hides the interface driver.Validator, so real connections go back after each statement that leaves nothing in its session; a *sql.Conn may change its session then (docs/wrappers.md)")
}

// Leak: a connection has been held for long. advice says what to do, args say who holds it.
func (r *Report) Leak(advice string, args ...any) {
	r.write(slog.LevelWarn, "a connection has been held for longer than pool_leak_after: "+advice, args...)
}

// DrainWaits: Drain waits for a function of Raw, which may run for as long as the program.
func (r *Report) DrainWaits(holder, advice string) {
	r.write(slog.LevelWarn, "Drain waits for a connection that a function of Raw has: "+advice, "holder", holder)
}

func rounded(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
