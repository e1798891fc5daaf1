package pooldriver

import (
	"fmt"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/internal/bubble"
)

// leakWatch warns of connections that are held for longer than Config.LeakAfter. Its timer
// is set while there may be one.
type leakWatch struct {
	core *core
	set  atomic.Bool // the timer is

	mu      sync.Mutex // serialises changes of set and of the following fields
	timer   *time.Timer
	due     time.Time // when the timer goes off, if set
	where   string    // the bubble of testing/synctest that the timer is of; empty: none
	stopped bool
}

// watch is called for each connection that was taken, when its holder is known: either it
// sets the timer, or the timer has not gone off yet and will see the holder.
func (l *leakWatch) watch() {
	if !l.set.Load() {
		l.wake(l.core.config.LeakAfter)
	}
}

// wake has the timer go off after d, unless it goes off sooner.
func (l *leakWatch) wake(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.moveLocked(now)
	due := now.Add(d)
	if l.stopped || l.timer != nil && l.due.After(now) && !due.Before(l.due) {
		return
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	l.due = due
	l.set.Store(l.where == "") // a bubble's timer is gone with it, and nobody tells
	l.timer = time.AfterFunc(d, l.look)
}

// moveLocked forgets a timer that was made elsewhere: it is of no use here, nor may it be used.
func (l *leakWatch) moveLocked(now time.Time) {
	if where := bubble.Name(now); where != l.where {
		l.timer, l.where = nil, where
	}
}

func (l *leakWatch) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	l.moveLocked(time.Now())
	if l.timer != nil {
		l.timer.Stop()
	}
}

// look warns, once in each checkout, and finds out when to look again. Connections that are
// taken from here on set the timer again themselves.
func (l *leakWatch) look() {
	l.set.Store(false)
	c := l.core
	after := c.config.LeakAfter
	next := time.Duration(0)
	for _, h := range c.holdings() {
		if left := after - h.heldFor; left > 0 {
			if next == 0 || left < next {
				next = left
			}
			continue
		}
		if h.real.leakTold.Swap(h.Checkout+1) != h.Checkout+1 {
			c.tellLeak(h.holder(c), h.heldFor)
		}
	}
	if next > 0 {
		l.wake(next)
	}
}

func (c *core) tellLeak(h Holder, held time.Duration) {
	c.report.Leak("held", rounded(held), "idle", rounded(h.Idle), "pin", string(h.Pin),
		"label", h.Label, "task", h.Task, "statement", h.Statement, "statements", h.Statements,
		"process", h.ProcessID, "host", h.Host, "taken_at", stackText(h.TakenAt), "statement_at", stackText(h.StatementAt))
}

func rounded(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// stackText is a call stack in one line.
func stackText(stack []Frame) string {
	const most = 12
	var b strings.Builder
	for i, f := range stack[:min(len(stack), most)] {
		if i > 0 {
			b.WriteString(" < ")
		}
		b.WriteString(f.String())
	}
	return b.String()
}

// String is the function, and the file's name with the line.
func (f Frame) String() string {
	return fmt.Sprintf("%s (%s:%d)", f.Func, path.Base(f.File), f.Line)
}

// namedHolders is how many holders an error names.
const namedHolders = 3

// heldBy names, for an error, those that have held connections longest.
func (c *core) heldBy() string {
	all := c.holdings()
	var names []string
	for _, h := range all[:min(len(all), namedHolders)] {
		p := h.holder(c)
		names = append(names, p.name(h.heldFor))
	}
	if len(names) == 0 {
		return ""
	}
	return "; held longest by " + strings.Join(names, ", ") + c.tooLargeRows()
}

// tooLargeRows says, for an error, that rows hold a connection which would have come back if
// they could have been read into memory.
func (c *core) tooLargeRows() string {
	for r := range c.connections() {
		if r.Rows() == nil {
			continue
		}
		b := r.tryPeek()
		if b == nil {
			continue
		}
		rows := r.Rows()
		large := rows != nil && rows.TooLarge()
		b.endPeek(r)
		if large {
			return fmt.Sprintf("; rows that are open are larger than what may be read into memory to free their connection (pool_nested_buffer=%d bytes, pool_nested_buffer_total=%d)", c.config.NestedBuffer, c.config.NestedBufferTotal)
		}
	}
	return ""
}

// name is who holds a connection, as well as it is known, and how.
func (h *Holder) name(held time.Duration) string {
	who := h.Task
	switch {
	case h.Label != "" && who != "":
		who += " of " + h.Label
	case h.Label != "":
		who = h.Label
	case who == "":
		who = "a checkout"
	}
	if len(h.TakenAt) > 0 {
		who += " at " + h.TakenAt[0].String()
	}
	text := fmt.Sprintf("%s (%s, for %v", who, h.Pin, rounded(held))
	if !h.Running {
		text += fmt.Sprintf(", idle for %v", rounded(h.Idle))
	}
	if h.Statement != "" {
		text += ", last " + h.Statement
	}
	return text + ")"
}
