package binding

import (
	"context"
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
	// giveUpAfter is how many times rescueAfter a statement may take whose query was executed elsewhere. Its
	// connection is closed then. A shorter bound would cost connections whenever the server is slow for a moment.
	giveUpAfter = 50
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
	// See measured.
	way, each atomic.Int64
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

var errTrialPanicked = errors.New("the driver panicked")

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

// acquireOrFollow is acquire for a query of c that may be pipelined. If w has an Answer afterwards, another
// one's connection has given it.
func acquireOrFollow(ctx context.Context, c *Checkout, w *Want) (_ *connpool.Conn, waited time.Duration, _ error) {
	e, hooks := c.engine, c.forHooks(ctx)
	r, err := e.pool.Acquire(hooks, nil, pool.OnlyIdle)
	if err != pool.ErrNoneNow {
		return e.gotNow(hooks, r, err)
	}
	f, priority := newFollow(w, c.label), c.priority
	if f == nil {
		return e.acquire(hooks, c.label, priority)
	}
	for ; ; priority = pool.PriorityAgain { // after the first time it has begun
		r, err := e.pool.Acquire(hooks, f, priority)
		switch {
		case err == pool.ErrServed:
		case err != nil:
			return nil, connpool.WaitOf(err), e.acquireError(err, nil)
		default:
			t := e.pipelines.lead(r, f)
			if t == nil {
				e.pipelines.repeated(f.trips - f.tries)
				return e.broughtUp(hooks, r)
			}
			if waited, err := t.begin(hooks, c.values); err != nil {
				return nil, waited, err
			}
			if !f.wait(ctx) {
				w.Answer = &session.Answer{Err: ctx.Err()} // it had a connection
				return nil, 0, nil
			}
		}
		switch {
		case f.again:
			f.again = false
		case f.answer.Alone:
			e.pipelines.repeated(f.trips - f.tries)
			return e.acquire(hooks, c.label, pool.PriorityAgain)
		default:
			e.pipelines.repeated(f.trips - f.tries - 1)
			if err == pool.ErrServed {
				e.pipelines.pipelined(ctx, f)
			}
			w.Answer = &f.answer
			return nil, 0, nil
		}
	}
}

// repeated counts trips of one query that gave it no answer.
func (p *pipelines) repeated(trips int) {
	if trips > 0 {
		p.engine.report.PipelineRepeats.Add(uint64(trips))
	}
}

// pipelined reports that f, a follower, has its answer.
func (p *pipelines) pipelined(ctx context.Context, f *follow) {
	p.engine.usage.CountElsewhere(f.waited)
	p.engine.report.Pipelined(ctx, f.waited, WhoIs(f.label, nil), f.answer.Drop)
}

// lead returns a trip on r with those that wait behind f, or nil if nobody comes along: r is f's alone.
func (p *pipelines) lead(r *connpool.Conn, f *follow) *trip {
	if f.trips == mostTrips {
		return nil
	}
	can, tries := p.canPipeline(r)
	if tries {
		// f goes back to the queue: the trial may take long.
		f.trips++
		f.tries++
		f.again, f.done = true, closed
		return &trip{engine: p.engine, conn: r, leader: f, tries: true}
	}
	if !can {
		return nil
	}
	size := f.size
	followers := r.TakeAlong(p.share()-1, func(who any) bool {
		other, ok := who.(*follow)
		if !ok || other.trips == mostTrips || size+other.size > pipelineBytes || !p.isReady(r, f, other) {
			return false
		}
		size += other.size
		other.trips++
		return true
	})
	if len(followers) == 0 {
		return nil
	}
	f.trips++
	f.again, f.done = false, make(chan struct{})
	f.fate.Store(expected)
	return &trip{engine: p.engine, conn: r, leader: f, followers: followers}
}

// isReady reports whether other needs no text to be prepared on r that f does not need. To prepare a text may
// take as long as somebody has a lock on a table of it, and the queries in front of it would wait for that.
func (p *pipelines) isReady(r *connpool.Conn, f, other *follow) bool {
	return other.call.Text == f.call.Text || r.Session.HasPipelined(other.call.Text)
}

// closed is the channel of a query whose answer nobody waits for.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// share is how many queries one trip has at most, so that the other connections get theirs. Where the way to the
// server takes longer than all answers of a trip, more of them cost next to nothing.
func (p *pipelines) share() int {
	e := p.engine
	most := (2*(e.pool.Waiters()+1) + e.config.MaxConns - 1) / e.config.MaxConns
	if way := p.way.Load(); way >= int64(far) {
		most = max(most, int(way/max(p.each.Load(), 1)))
	}
	return min(e.config.Pipeline, most)
}

// measured records that the first answer of a trip has taken first, and the n others rest. way is the shortest time
// lately for a first answer, because busy processors make others longer. each is the average time for an answer
// behind it. Trips that end at the same time may lose a figure.
func (p *pipelines) measured(first, rest time.Duration, n int) {
	way, each := p.way.Load(), p.each.Load()
	if way == 0 { // the first trip
		way, each = int64(first), int64(rest)/int64(n)
	}
	p.way.Store(min(way+way/fading+1, int64(first)))
	p.each.Store(each + (int64(rest)/int64(n)-each)/fading)
}

const (
	// fading is about how many trips way and each remember.
	fading = 64
	// far is the way to a server on another machine that is not beside ours. On the way to a near one the time goes
	// into processors, and is longer for longer trips.
	far = 500 * time.Microsecond
)

// trip is one pipeline on a connection.
type trip struct {
	engine    *Engine
	checkout  Checkout
	want      Want
	conn      *connpool.Conn
	leader    *follow
	followers []pool.Follower[*connpool.Conn]
	tries     bool         // it sends the trial in place of queries
	failed    error        // of the trial
	answers   atomic.Int32 // that have come
	late      atomic.Int32 // how often rescueAfter has passed since the last one
	rescued   atomic.Int32 // followers from here on are executed elsewhere
	over      atomic.Bool
	cancel    context.CancelFunc
	timer     *time.Timer // for rescue
	first     time.Time   // when the first answer has come
}

// begin takes the connection, as the leader, whose context ctx is, and starts the trip. After an error nobody has
// the connection any more, and the followers are back in the queue.
func (t *trip) begin(ctx, values context.Context) (waited time.Duration, err error) {
	trip, cancel := context.WithCancel(context.Background())
	if t.tries {
		trip, cancel = context.WithTimeout(trip, trialTimeout)
	}
	t.cancel = cancel
	t.rescued.Store(int32(len(t.followers)))
	t.timer = time.AfterFunc(time.Hour, t.rescue) // rescue uses the field
	if !t.tries {
		t.want.TextAt = &t.leader.call.Text
		t.timer.Reset(rescueAfter)
	}
	begun := false
	defer func() { // also if a function of the program ends the goroutine
		if !begun {
			t.stop()
			if t.tries {
				t.engine.pipelines.state.Store(untried)
			}
		}
	}()
	c := &t.checkout
	c.Init(t.engine, values)
	c.label, c.binding = t.leader.label, &c.private
	if _, waited, err = t.engine.broughtUp(ctx, t.conn); err != nil {
		return waited, err
	}
	if err = c.attachFor(ctx, &t.want, t.conn); err == nil {
		begun = true
		go t.run(trip)
	}
	return 0, err
}

// stop ends what begin has begun.
func (t *trip) stop() {
	t.over.Store(true) // before Stop: rescue may be about to set the timer again
	t.timer.Stop()
	t.cancel()
}

func (t *trip) run(ctx context.Context) {
	defer t.stop()
	defer t.end()
	defer func() {
		panicked := recover()
		if panicked != nil {
			t.conn.Session.MarkUnusable()
		}
		t.checkout.Unlock(&t.want)
		t.checkout.Detach()
		if t.tries { // it writes to the log, which may need a connection
			t.engine.pipelines.tried(t.failed)
		}
		if panicked != nil {
			t.engine.report.DriverPanicked("in a pipeline; the connection was closed", panicked)
		}
	}()
	if t.tries {
		t.failed = errTrialPanicked
		t.failed = t.conn.Session.TryPipeline(ctx)
	} else {
		t.travel(ctx)
	}
}

// travel sends the queries and gives out the answers.
func (t *trip) travel(ctx context.Context) {
	t.conn.Meter.Lead(len(t.followers))
	defer t.conn.Meter.EndLead(t.leader.label)
	calls := make([]dialects.PipelinedQuery, 1, 1+len(t.followers))
	calls[0] = t.leader.call
	for _, f := range t.followers {
		calls = append(calls, f.Who().(*follow).call)
	}
	begun := time.Now()
	switch err := t.conn.Session.Together(ctx, calls, answerBytes, t.answered); err {
	case nil:
		t.engine.pipelines.measured(t.first.Sub(begun), time.Since(t.first), len(t.followers))
	case errors.ErrUnsupported:
		t.leaderGets(session.Answer{Alone: true})
		t.returnFrom(0) // the connection may be cleaned before its lease ends
	}
}

// returnFrom sends the followers from the place i on back to the queue, unless they have ended.
func (t *trip) returnFrom(i int) {
	for _, f := range t.followers[i:] {
		f.Return()
	}
}

// answered gives the answer to whoever has asked.
func (t *trip) answered(i int, a session.Answer) {
	t.answers.Store(int32(i + 1))
	t.late.Store(0)
	t.timer.Reset(rescueAfter)
	if a.Large {
		t.followAt(i).pace.WasLarge()
	}
	if i == 0 {
		t.first = time.Now()
		t.leaderGets(a)
	} else {
		t.followerGets(t.followers[i-1], a)
	}
	if i < len(t.followers) {
		next := t.followAt(i + 1)
		t.conn.Meter.Next(next.label, &next.call.Text, t.followers[i].Waited())
	}
}

// followerGets gives f its answer, unless f has gone.
func (t *trip) followerGets(f pool.Follower[*connpool.Conn], a session.Answer) {
	got := f.Served(func() {
		who := f.Who().(*follow)
		who.answer, who.waited = a, f.Waited()
	})
	if !got {
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

// leaderGets gives the leader its answer, unless it has one or has left.
func (t *trip) leaderGets(a session.Answer) {
	if !t.leader.fate.CompareAndSwap(expected, answered) {
		a.Drop()
		return
	}
	t.leader.answer = a
	close(t.leader.done)
}

// rescue is called when the present answer takes long: those behind it are executed elsewhere, which is allowed
// because they only read. Their answers here are dropped when they come. If nobody waits for the present one
// any more, the connection is closed.
func (t *trip) rescue() {
	present := int(t.answers.Load())
	if t.over.Load() || present > len(t.followers) {
		return
	}
	t.followAt(present).pace.Ran(rescueAfter)
	gone := t.isGone(present, int(t.late.Add(1)))
	if before := t.rescued.Load(); present < int(before) && t.rescued.CompareAndSwap(before, int32(present)) {
		t.returnFrom(present)
	}
	if gone && present == int(t.answers.Load()) { // else who was present has just got the answer
		t.cancel()
		return
	}
	t.timer.Reset(rescueAfter)
}

// isGone reports whether nobody waits for the present answer, which is late for so many times rescueAfter. Who
// has left leaves a statement that may run for ever.
func (t *trip) isGone(present, late int) bool {
	switch {
	case present == 0:
		return t.leader.fate.Load() == left
	case present > int(t.rescued.Load()):
		return late > giveUpAfter
	}
	return !t.followers[present-1].Works()
}

// end wakes the leader if the connection was lost before its answer came. The followers without an answer are
// back in the queue: the end of the lease has returned them.
func (t *trip) end() {
	if f := t.leader; !t.tries && f.fate.CompareAndSwap(expected, answered) {
		f.again = true
		close(f.done)
	}
}
