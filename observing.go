package pooldriver

import (
	"context"
	"time"

	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/report"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/usage"
	"github.com/pooldriver/pooldriver/pool"
)

// This file tells the report (internal/report) of what happens to connections, and the report's
// listener what the program's Observer is told.

// closeReasons are how the reasons of package report are called.
var closeReasons = [report.Reasons]CloseReason{
	pool.ReasonLifetime:      CloseLifetime,
	pool.ReasonIdleTime:      CloseIdleTime,
	pool.ReasonCheckFailed:   CloseCheckFailed,
	pool.ReasonBeforeAcquire: CloseFoundDead,
	report.ResetFailed:       CloseResetFailed,
	report.Lost:              CloseLost,
	pool.ReasonFlushed:       CloseFlushed,
	pool.ReasonResized:       "resized",
	pool.ReasonClosed:        CloseShutdown,
	report.Uncleanable:       CloseUncleanable,
	report.WrongRole:         CloseWrongRole,
}

// listener is o for the report. o may be nil.
func (o *Observer) listener() (l report.Listener) {
	if o == nil {
		return l
	}
	if f := o.DialDone; f != nil {
		l.Dialled = func(host string, took time.Duration, err error) { f(DialInfo{Host: host, Duration: took, Err: err}) }
	}
	if f := o.AcquireDone; f != nil {
		l.Acquired = func(ctx context.Context, wait time.Duration, who report.Who, err error) {
			f(ctx, AcquireInfo{Wait: wait, Label: who.Label, Task: who.Task, Err: err})
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

// whoIs is for whom something happens: label is a checkout's, t its task. Both may be nil.
func whoIs(label *string, t *task.Task) report.Who {
	return report.Who{Label: textOf(label), Task: nameOf(t)}
}

// tellAcquired tells of a statement that has got a connection. If the program's function ends
// the goroutine, the connection goes back.
func (b *binding) tellAcquired(ctx context.Context, c *checkout, r *realConn) {
	b.connector.report.Acquired(ctx, r.Waited(), whoIs(c.label, b.task), r.Return)
}

// tellNotAcquired tells of a statement that has got no connection.
func (c *core) tellNotAcquired(ctx context.Context, label *string, t *task.Task, err error) {
	c.report.NotAcquired(ctx, connpool.Waited(err), func() report.Who { return whoIs(label, t) }, err)
}

// tellTaskDone tells that the binding's task has ended.
func (b *binding) tellTaskDone() {
	b.connector.report.TaskEnded(func() report.Who {
		return report.Who{Task: b.task.Name(), Label: b.task.Label(), Implicit: b.task.Implicit()}
	}, b.task.Begun(), b.rolledBack.Load())
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
