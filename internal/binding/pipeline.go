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
	"github.com/pooldriver/pooldriver/internal/textcache"
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

// pipelines is whether queries may travel together. The first trip tries it, because what lies between the
// program and the server may not answer.
type pipelines struct {
	engine *Engine
	state  atomic.Uint32
	failed int // trials; who tries writes it
}

const (
	untried = iota
	trying
	work
	fail
)

// mostTrials: one that fails may have met a connection that was lost just then.
const mostTrials = 3

// trialTimeout bounds the trial, after which its connection is closed.
const trialTimeout = time.Second

// canPipeline reports whether queries may travel on r. tries: the caller has to try that first.
func (p *pipelines) canPipeline(r *connpool.Conn) (can, tries bool) {
	switch {
	case !r.Session.CanPipeline():
		return false, false
	case p.state.Load() == untried:
		return false, p.state.CompareAndSwap(untried, trying)
	}
	return p.state.Load() == work, false
}

// tried records how the trial has ended.
func (p *pipelines) tried(err error) {
	if err == nil {
		p.state.Store(work)
		return
	}
	if p.failed++; p.failed < mostTrials {
		p.state.Store(untried)
		return
	}
	p.state.Store(fail)
	p.engine.report.CannotPipeline(err)
}

// follow is a query that waits for a connection, or for its answer.
type follow struct {
	call  dialects.PipelinedQuery
	pace  *textcache.Pace
	label *string
	size  int
	trips int // that it has begun; who has it in its hands writes this: its caller, or the pool's lock

	// The answer: written before Served, or before done is closed.
	answer session.Answer
	again  bool // the connection was lost before the answer came
	done   chan struct{}
	left   atomic.Bool // the leader's context has ended
}

// mostTrips bounds how often one query begins a trip. Then it takes a connection for itself: perhaps the
// query itself makes trips end.
const mostTrips = 3

// newFollow copies the arguments: the trip may read them after the program's call has returned.
func newFollow(w *Want, label *string) *follow {
	f := &follow{call: dialects.PipelinedQuery{Text: w.Text}, pace: w.Pace, label: label, size: len(w.Text)}
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

// acquireOrFollow is acquire for a query of c that may be pipelined. If w has an Answer afterwards, another
// one's connection has given it.
func acquireOrFollow(ctx context.Context, c *Checkout, w *Want) (_ *connpool.Conn, waited time.Duration, _ error) {
	e, hooks := c.engine, c.forHooks(ctx)
	r, waited, err := e.acquireNow(hooks)
	if err != pool.ErrNoneNow {
		return r, waited, err
	}
	f, priority := newFollow(w, c.label), c.priority
	for ; ; priority = pool.PriorityHolder { // after the first time it has begun
		r, err := e.pool.Acquire(hooks, f, priority)
		switch {
		case err == pool.ErrServed:
		case err != nil:
			return nil, connpool.WaitOf(err), e.acquireError(err, nil)
		case !e.pipelines.lead(r, f, c.values):
			return e.broughtUp(hooks, r)
		default:
			select {
			case <-f.done:
			case <-ctx.Done():
				f.left.Store(true)
				return nil, 0, ctx.Err()
			}
		}
		switch {
		case f.again:
			f.again = false
		case f.answer.Alone:
			return e.acquire(hooks, c.label, pool.PriorityHolder)
		default:
			w.Answer = &f.answer
			return nil, 0, nil
		}
	}
}

// lead begins a trip on r with those that wait behind f. It reports false if nobody comes along: r is f's alone.
func (p *pipelines) lead(r *connpool.Conn, f *follow, values context.Context) bool {
	can, tries := p.canPipeline(r)
	if tries {
		// f goes back to the queue: the trial may take long.
		f.again, f.done = true, closed
		t := &trip{engine: p.engine, conn: r, leader: f, led: true, tries: true}
		t.checkout.Init(p.engine, values)
		go t.run()
		return true
	}
	if !can || f.trips == mostTrips {
		return false
	}
	size := f.size
	followers := r.TakeAlong(p.share()-1, func(who any) bool {
		other, ok := who.(*follow)
		if !ok || other.trips == mostTrips || size+other.size > pipelineBytes {
			return false
		}
		size += other.size
		other.trips++
		return true
	})
	if len(followers) == 0 {
		return false
	}
	f.trips++
	f.done = make(chan struct{})
	t := &trip{engine: p.engine, conn: r, leader: f, followers: followers}
	t.checkout.Init(p.engine, values)
	go t.run()
	return true
}

// closed is the channel of a query whose answer nobody waits for.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// share is how many queries one trip has at most, so that the other connections get theirs.
func (p *pipelines) share() int {
	e := p.engine
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
	tries     bool         // it sends the trial in place of queries
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
	_, _, err := t.engine.broughtUp(ctx, t.conn)
	if err == nil {
		err = c.attachFor(ctx, w, t.conn)
	}
	if err != nil { // nobody has the connection any more
		t.leaderGets(session.Answer{Err: err})
		if t.tries {
			t.engine.pipelines.state.Store(untried)
		}
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
	if t.tries {
		t.try(ctx)
		return
	}
	t.send(ctx)
}

// try finds out whether trips are possible.
func (t *trip) try(ctx context.Context) {
	err := errTrialPanicked
	defer func() { t.engine.pipelines.tried(err) }()
	ctx, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	err = t.conn.Session.TryPipeline(ctx)
}

var errTrialPanicked = errors.New("the driver panicked")

// send sends the queries and gives out the answers.
func (t *trip) send(ctx context.Context) {
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
		t.leaderGets(session.Answer{Alone: true})
	}
}

// answered gives the answer to whoever has asked.
func (t *trip) answered(i int, a session.Answer) {
	t.answers.Store(int32(i + 1))
	t.rescue.Reset(rescueAfter)
	if a.Large {
		t.followAt(i).pace.WasLarge()
	}
	if i == 0 {
		t.leaderGets(a)
		return
	}
	f := t.followers[i-1]
	if !f.Served(func() { f.Who().(*follow).answer = a }) {
		a.Drop()
	}
}

// followAt is the query at place i of the trip.
func (t *trip) followAt(i int) *follow {
	if i == 0 {
		return t.leader
	}
	return t.followers[i-1].Who().(*follow)
}

// leaderGets gives the leader its answer, unless it has one.
func (t *trip) leaderGets(a session.Answer) {
	if !t.led {
		t.led = true
		t.leader.answer = a
		close(t.leader.done)
	}
}

// late is called when the present answer takes long: those behind it are executed elsewhere, which is allowed
// because they only read. Their answers here are dropped when they come. If the present one has left, too, the
// statement is cancelled.
func (t *trip) late() {
	present := int(t.answers.Load())
	if present <= len(t.followers) {
		t.followAt(present).pace.Ran(rescueAfter)
	}
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
		t.leaderGets(session.Answer{})
	}
}
