package binding

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/pool"
)

// A query that only reads, and waits for a connection, may travel in the pipeline of another one. Whoever
// gets a connection after a wait (the leader) takes queries along that wait behind it (the followers). A
// goroutine of its own has the connection during the trip, so the leader is one who waits for an answer,
// as the followers are.

const (
	// rescueAfter is how long the present answer may take before those behind it go back to the queue.
	rescueAfter = 20 * time.Millisecond
	// pipelineBytes bounds the texts and arguments of one trip: they are sent before anything is read, so
	// they have to fit into the buffers of the sockets.
	pipelineBytes = 8 << 10
	// answerBytes bounds one result. A larger one is asked for once more, alone.
	answerBytes = 1 << 20
)

// follow is a query that waits for a connection, or for its answer.
type follow struct {
	call  dialects.PipelinedQuery
	label *string
	size  int

	// The answer: written before Served, or before done is closed.
	answer session.Answer
	again  bool // the connection was lost before the answer came
	done   chan struct{}
	left   atomic.Bool // the leader's context has ended
}

// newFollow copies the arguments: the trip may read them after the program's call has returned.
func newFollow(w *Want, label *string) *follow {
	f := &follow{call: dialects.PipelinedQuery{Text: w.Text}, label: label, size: len(w.Text)}
	f.call.Args = make([]driver.NamedValue, len(w.Args))
	for i, arg := range w.Args {
		switch v := arg.Value.(type) {
		case []byte:
			arg.Value = bytes.Clone(v)
			f.size += len(v)
		case string:
			f.size += len(v)
		}
		f.call.Args[i] = arg
	}
	return f
}

// Answered reports whether the operation has its answer, and needs no connection.
func (w *Want) Answered() bool { return w.follow != nil }

// TakeAnswer makes rows, which are new or recycled, those of the answer.
func (c *Checkout) TakeAnswer(rows *Rows, w *Want) error {
	a := w.follow.answer
	if a.Err != nil {
		return a.Err
	}
	rows.seat, rows.checkout, rows.binding, rows.closed = nil, c, &c.private, false
	rows.Rows.Answered(a)
	c.parted = true
	return nil
}

// acquireOrFollow is acquire for a query that may be pipelined. If w.Answered reports true afterwards, another
// one's connection has given the answer.
func (c *Checkout) acquireOrFollow(ctx context.Context, w *Want) (_ *connpool.Conn, waited time.Duration, _ error) {
	e, hooks := c.engine, c.forHooks(ctx)
	r, waited, err := e.acquireNow(hooks)
	if err != pool.ErrNoneNow {
		return r, waited, err
	}
	for {
		f := newFollow(w, c.label)
		r, err := e.pool.Acquire(hooks, f)
		switch {
		case err == pool.ErrServed:
		case err != nil:
			return nil, connpool.WaitOf(err), e.acquireError(err, nil)
		default:
			if !e.lead(r, f, c.values) {
				return e.broughtUp(hooks, r)
			}
			select {
			case <-f.done:
			case <-ctx.Done():
				f.left.Store(true)
				return nil, 0, ctx.Err()
			}
		}
		switch {
		case f.again:
		case f.answer.Alone:
			return e.acquire(hooks, c.label)
		default:
			w.follow = f
			return nil, 0, nil
		}
	}
}

// lead begins a trip on r with those that wait behind f. It reports false if nobody comes along: r is f's alone.
func (e *Engine) lead(r *connpool.Conn, f *follow, values context.Context) bool {
	if !r.Session.CanPipeline() {
		return false
	}
	share := e.share()
	size := f.size
	followers := r.TakeAlong(share-1, func(who any) bool {
		other, ok := who.(*follow)
		if !ok || size+other.size > pipelineBytes {
			return false
		}
		size += other.size
		return true
	})
	if len(followers) == 0 {
		return false
	}
	f.done = make(chan struct{})
	t := &trip{engine: e, conn: r, leader: f, followers: followers}
	t.checkout.Init(e, values)
	go t.run()
	return true
}

// share is how many queries one trip has at most, so that the other connections get theirs.
func (e *Engine) share() int {
	waiting := e.pool.Waiters() + 1
	return min(e.config.Pipeline, (2*waiting+e.config.MaxConns-1)/e.config.MaxConns)
}

// trip is one pipeline on a connection.
type trip struct {
	engine    *Engine
	checkout  Checkout
	conn      *connpool.Conn
	leader    *follow
	followers []pool.Follower[*connpool.Conn]
	answers   atomic.Int32 // that have come
	led       bool         // the leader has its answer
	cancel    context.CancelFunc
	rescue    *time.Timer
}

func (t *trip) run() {
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel = cancel
	defer cancel()
	defer t.end()
	c, w := &t.checkout, &Want{TextAt: &t.leader.call.Text}
	c.label, c.binding = t.leader.label, &c.private
	if _, _, err := t.engine.broughtUp(ctx, t.conn); err != nil {
		c.binding = nil
		t.conn = nil
		return
	}
	if err := c.attachFor(ctx, w, t.conn); err != nil {
		return
	}
	defer func() {
		panicked := recover()
		if panicked != nil {
			t.conn.Session.MarkUnusable()
		}
		c.Unlock(w)
		c.Detach()
		if panicked != nil {
			t.engine.report.DriverPanicked("in a pipeline; the connection was closed", panicked)
		}
	}()
	calls := make([]dialects.PipelinedQuery, 1, 1+len(t.followers))
	calls[0] = t.leader.call
	for _, f := range t.followers {
		calls = append(calls, f.Who().(*follow).call)
	}
	t.rescue = time.AfterFunc(time.Hour, t.late) // late uses the field
	t.rescue.Reset(rescueAfter)
	defer t.rescue.Stop()
	err := t.conn.Session.Together(ctx, calls, answerBytes, t.answered)
	if err == errors.ErrUnsupported {
		t.leader.answer.Alone = true
		t.lead()
	}
}

// answered gives the answer to whoever has asked.
func (t *trip) answered(i int, a session.Answer) {
	t.answers.Store(int32(i + 1))
	t.rescue.Reset(rescueAfter)
	if i == 0 {
		t.leader.answer = a
		t.lead()
		return
	}
	f := t.followers[i-1]
	if !f.Served(func() { f.Who().(*follow).answer = a }) {
		a.Drop()
	}
}

// lead wakes the leader.
func (t *trip) lead() {
	if !t.led {
		t.led = true
		close(t.leader.done)
	}
}

// late is called when the present answer takes long: those behind it are executed elsewhere, which is allowed
// because they only read. Their answers here are dropped when they come. If the present one has left, too, the
// statement is cancelled.
func (t *trip) late() {
	present := int(t.answers.Load())
	for i := present; i < len(t.followers); i++ {
		t.followers[i].Return()
	}
	gone := false
	if present == 0 {
		gone = t.leader.left.Load()
	} else if present <= len(t.followers) {
		gone = t.followers[present-1].Left()
	}
	if gone {
		t.cancel()
		return
	}
	t.rescue.Reset(rescueAfter)
}

// end wakes the leader if the connection was lost before its answer came. The followers without an answer are
// back in the queue: the end of the lease has returned them.
func (t *trip) end() {
	if !t.led {
		t.leader.again = true
	}
	t.lead()
}
