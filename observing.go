package pooldriver

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/usage"
	"github.com/pooldriver/pooldriver/pool"
)

// This file calls the functions of Config.Observer. They are the program's code, so none
// is called under a lock. No connection is lost if one of them panics or ends its
// goroutine: the connection is in the pool already, or a deferred call gives it back.

// closeReasons are all reasons. A reason of the pool is at its number.
var closeReasons = [...]CloseReason{
	pool.ReasonLifetime:      CloseLifetime,
	pool.ReasonIdleTime:      CloseIdleTime,
	pool.ReasonCheckFailed:   CloseCheckFailed,
	pool.ReasonBeforeAcquire: CloseFoundDead,
	pool.ReasonBeforeRelease: CloseResetFailed, // we have no such hook
	pool.ReasonDiscarded:     CloseLost,
	pool.ReasonFlushed:       CloseFlushed,
	pool.ReasonResized:       "resized",
	pool.ReasonClosed:        CloseShutdown,
	pool.ReasonClosed + 1:    CloseUncleanable,
	pool.ReasonClosed + 2:    CloseWrongRole,
}

// observe calls a function of the observer. Its panic is logged, and goes no further.
func (c *core) observe(function string, call func(*Observer)) {
	var logged error
	defer c.guarded(function, &logged)
	call(c.config.Observer)
}

// since is the time since begun, a time of the meters' clock.
func (c *core) since(begun int64) time.Duration {
	return time.Duration(c.usage.Clock.Fine() - begun)
}

// tellDial counts a dial that has ended, and tells the observer. r is nil if it has failed.
func (c *core) tellDial(r *realConn, err error, begun int64) {
	took := c.since(begun)
	c.stats.connect.Record(took, 1)
	if o := c.config.Observer; o == nil || o.DialDone == nil {
		return
	}
	info := DialInfo{Duration: took, Err: err}
	if r != nil {
		info.Host, _ = location(r.Server())
	}
	c.observe("Config.Observer.DialDone", func(o *Observer) { o.DialDone(info) })
}

// tellAcquired tells the observer that a statement has got a connection. If the observer
// ends the goroutine, the connection goes back.
func (b *binding) tellAcquired(ctx context.Context, c *checkout, lease pool.Lease[*realConn]) {
	if b.connector.config.Observer.AcquireDone == nil {
		return
	}
	returned := false
	defer func() {
		if !returned {
			mustEnd(lease.Release())
		}
	}()
	info := AcquireInfo{Wait: lease.Waited(), Label: textOf(c.label), Task: nameOf(b.task)}
	b.connector.observe("Config.Observer.AcquireDone", func(o *Observer) { o.AcquireDone(ctx, info) })
	returned = true
}

// tellNotAcquired counts a statement that has got no connection, and tells the observer.
func (c *core) tellNotAcquired(ctx context.Context, label *string, t *task.Task, err error) {
	var waited time.Duration
	if a, ok := errors.AsType[*pool.AcquireError](err); ok && a.Waited > 0 {
		waited = a.Waited
		c.stats.wait.Record(waited, 1)
	}
	if o := c.config.Observer; o == nil || o.AcquireDone == nil {
		return
	}
	info := AcquireInfo{Wait: waited, Label: textOf(label), Task: nameOf(t), Err: err}
	c.observe("Config.Observer.AcquireDone", func(o *Observer) { o.AcquireDone(ctx, info) })
}

// release describes a use of a connection that has ended. The observer is told after the
// connection has gone back, because the observer may need one.
type release struct {
	use  usage.Use
	host string
	task *task.Task // nil: none
}

// tellsReleases reports whether the observer is told of releases.
func (c *core) tellsReleases() bool {
	o := c.config.Observer
	return o != nil && o.ReleaseDone != nil
}

// releaseOf describes the last use of r. t is the task that had r, nil if none had it. It
// is called before r goes back.
func (r *realConn) releaseOf(t *task.Task) release {
	host, _ := location(r.Server())
	return release{use: r.meter.Used(), host: host, task: t}
}

func (c *core) tellReleased(r release) {
	info := ReleaseInfo{
		Held: r.use.Held, IdlePinned: r.use.Idle, Timed: r.use.Timed > 0,
		Pin: Pin(r.use.Pin.String()), Statements: r.use.Operations,
		Label: textOf(r.use.Label), Task: nameOf(r.task), Host: r.host,
	}
	c.observe("Config.Observer.ReleaseDone", func(o *Observer) { o.ReleaseDone(info) })
}

// tellReset adds to log that a connection was reset. log is told after the connection has
// gone back.
func (c *core) tellReset(log *restoreLog, done reset, begun int64) {
	if o := c.config.Observer; o == nil || o.ResetDone == nil {
		return
	}
	info := ResetInfo{Duration: c.since(begun), RolledBack: done.rolledBack, Cleaned: done.cleaned, Err: done.err}
	log.add(func() { c.observe("Config.Observer.ResetDone", func(o *Observer) { o.ResetDone(info) }) })
}

// destroying counts a connection that is about to be closed, and tells the observer. It is
// the pool's hook.
func (c *core) destroying(r *realConn, reason pool.Reason) {
	why := closeReasons[reason]
	if r.discarded != "" {
		why = r.discarded
	}
	c.stats.closed[slices.Index(closeReasons[:], why)].Add(1)
	if o := c.config.Observer; o == nil || o.Closed == nil {
		return
	}
	info := CloseInfo{Reason: why, Age: c.since(r.born)}
	info.Host, _ = location(r.Server())
	c.observe("Config.Observer.Closed", func(o *Observer) { o.Closed(info) })
}

// tellTaskDone tells the observer that the binding's task has ended.
func (b *binding) tellTaskDone() {
	c := b.connector
	if o := c.config.Observer; o == nil || o.TaskDone == nil {
		return
	}
	info := TaskInfo{
		Name: b.task.Name(), Label: b.task.Label(), Implicit: b.task.Implicit(),
		Duration: time.Since(b.task.Begun()), RolledBack: b.rolledBack.Load(),
	}
	c.observe("Config.Observer.TaskDone", func(o *Observer) { o.TaskDone(info) })
}

// textOf is a label's text.
func textOf(label *string) string {
	if label == nil {
		return ""
	}
	return *label
}

// nameOf is a task's name; t may be nil.
func nameOf(t *task.Task) string {
	if t == nil {
		return ""
	}
	return t.Name()
}
