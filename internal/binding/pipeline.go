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

// A query that only reads, and waits for a connection, may be sent in the pipeline of another one. Whoever
// gets a connection after a wait (the leader) takes queries along that wait behind it (the followers). A
// goroutine of its own has the connection during the pipeline, so the leader is one who waits for an answer,
// as the followers are.

const (
	// rescueAfter is how long the present answer may take before those behind it go back to the queue.
	rescueAfter = 20 * time.Millisecond
	// giveUpAfter is how many times rescueAfter a statement may take whose query was executed elsewhere. Its
	// connection is closed then. A shorter bound would cost connections whenever the server is slow for a moment.
	giveUpAfter = 50
	// pipelineBytes bounds the texts and arguments of one pipeline: they are sent before anything is read, so
	// they have to fit into the buffers of the sockets.
	pipelineBytes = 8 << 10
	// answerBytes bounds one result. A larger one is asked for once more, alone.
	answerBytes = 1 << 20
)

// pipelines is whether queries may share a pipeline. The first one is a trial, because what lies between the
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

// canPipeline reports whether queries may share a pipeline on r. tries: the caller has to try that first.
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
	switch err {
	case nil:
		p.state.Store(work)
		return
	case dialects.ErrNotPipelined: // for a reason that is over soon, or ends the connection
	default:
		p.failed++
	}
	if p.failed < mostTrials {
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
	f, priority := newFollow(ctx, w, e.config.Dialect, c.label), c.priority
	if f == nil {
		return e.acquire(hooks, c.label, priority)
	}
	for ; ; priority = pool.PriorityAgain { // after the first time it has begun
		r, err := e.pipelines.acquireFor(hooks, f, priority)
		switch {
		case err == pool.ErrServed:
			f.before += f.waited
		case err != nil:
			return nil, connpool.WaitOf(err), e.acquireError(err, nil)
		default:
			f.before += r.Waited()
			p := e.pipelines.lead(r, f)
			if p == nil {
				e.pipelines.repeated(f.pipelines - f.trials)
				return e.broughtUp(hooks, r)
			}
			if waited, err := p.begin(hooks, c.values); err != nil {
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
		case f.answer.Alone: // see lead
		default:
			e.pipelines.repeated(f.pipelines - f.trials - 1)
			if err == pool.ErrServed {
				e.pipelines.pipelined(ctx, f)
			}
			w.Answer = &f.answer
			return nil, 0, nil
		}
	}
}

// acquireFor takes a connection for f. All waits of f together last no longer than AcquireTimeout. The time in which
// a server works on f is no wait: a large result would cost an error.
func (p *pipelines) acquireFor(ctx context.Context, f *follow, priority pool.Priority) (*connpool.Conn, error) {
	if timeout := p.engine.config.AcquireTimeout; f.before > 0 && timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout-f.before, pool.ErrTimeout)
		defer cancel()
	}
	return p.engine.pool.Acquire(ctx, f, priority)
}

// repeated counts pipelines of one query that gave it no answer.
func (p *pipelines) repeated(times int) {
	if times > 0 {
		p.engine.report.PipelineRepeats.Add(uint64(times))
	}
}

// pipelined reports that f, a follower, has its answer.
func (p *pipelines) pipelined(ctx context.Context, f *follow) {
	p.engine.usage.CountElsewhere(f.waited)
	p.engine.report.Pipelined(ctx, f.waited, WhoIs(f.label, nil), f.answer.Drop)
}

// lead returns a pipeline on r with those that wait behind f, or nil if nobody comes along: r is f's alone.
func (p *pipelines) lead(r *connpool.Conn, f *follow) *pipeline {
	if !f.mayFollow() {
		return nil
	}
	can, tries := p.canPipeline(r)
	if tries {
		// f goes back to the queue: the trial may take long.
		f.pipelines++
		f.trials++
		f.again, f.done = true, closed
		return &pipeline{engine: p.engine, conn: r, leader: f, tries: true}
	}
	if !can {
		return nil
	}
	size := f.size
	followers := r.TakeAlong(p.share, func(who any) bool {
		other, ok := who.(*follow)
		if !ok || !other.mayFollow() || size+other.size > pipelineBytes || !p.isReady(r, f, other) {
			return false
		}
		size += other.size
		other.pipelines++
		return true
	})
	if len(followers) == 0 {
		return nil
	}
	f.pipelines++
	f.again, f.done = false, make(chan struct{})
	f.fate.Store(expected)
	return &pipeline{engine: p.engine, conn: r, leader: f, followers: followers}
}

// isReady reports whether other needs no text to be prepared on r that f does not need. To prepare a text may
// take as long as somebody has a lock on a table of it, and the queries in front of it would wait for that.
func (p *pipelines) isReady(r *connpool.Conn, f, other *follow) bool {
	return other.call.Text == f.call.Text || r.Session.HasPipelined(other.call.Text)
}

// closed is the channel of a query whose answer nobody waits for.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// share is how many followers one pipeline has at most, so that the other connections get theirs. Where the way to the
// server takes longer than all answers of a pipeline, more of them cost next to nothing.
func (p *pipelines) share(waiting, conns int) int {
	most := (2*(waiting+1) + conns - 1) / conns
	if way := p.way.Load(); way >= int64(far) {
		most = max(most, int(way/max(p.each.Load(), 1)))
	}
	return min(p.engine.config.Pipeline, most) - 1 // the leader
}

// measured records that the first answer of a pipeline has taken first, and the n others rest. way is the shortest time
// lately for a first answer, because busy processors make others longer. each is the average time for an answer
// behind it. Pipelines that end at the same time may lose a figure.
func (p *pipelines) measured(first, rest time.Duration, n int) {
	way, each := p.way.Load(), p.each.Load()
	if way == 0 { // the first pipeline
		way, each = int64(first), int64(rest)/int64(n)
	}
	p.way.Store(min(way+way/fading+1, int64(first)))
	p.each.Store(each + (int64(rest)/int64(n)-each)/fading)
}

const (
	// fading is about how many pipelines way and each remember.
	fading = 64
	// far is the way to a server on another machine that is not beside ours. On the way to a near one the time goes
	// into processors, and is longer for longer pipelines.
	far = 500 * time.Microsecond
)

// pipeline is one pipeline on a connection.
type pipeline struct {
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
	kept      []kept      // answers that wait for the position
}

// kept is the answer to the query at place i.
type kept struct {
	i      int
	answer session.Answer
}

// begin takes the connection, as the leader, whose context ctx is, and starts the pipeline. After an error nobody has
// the connection any more, and the followers are back in the queue.
func (p *pipeline) begin(ctx, values context.Context) (waited time.Duration, err error) {
	own, cancel := context.WithCancel(context.Background())
	if p.tries {
		own, cancel = context.WithTimeout(own, trialTimeout)
	}
	p.cancel = cancel
	p.rescued.Store(int32(len(p.followers)))
	p.timer = time.AfterFunc(time.Hour, p.rescue) // rescue uses the field
	if !p.tries {
		p.want.TextAt = &p.leader.call.Text
		p.timer.Reset(rescueAfter)
	}
	begun := false
	defer func() { // also if a function of the program ends the goroutine
		if !begun {
			p.stop()
			if p.tries {
				p.engine.pipelines.state.Store(untried)
			}
		}
	}()
	c := &p.checkout
	c.Init(p.engine, values)
	c.withoutTask(p.leader.label)
	if _, waited, err = p.engine.broughtUp(ctx, p.conn); err != nil {
		return waited, err
	}
	if err = c.attachFor(ctx, &p.want, p.conn); err == nil {
		begun = true
		go p.run(own)
	}
	return 0, err
}

// stop ends what begin has begun.
func (p *pipeline) stop() {
	p.over.Store(true) // before Stop: rescue may be about to set the timer again
	p.timer.Stop()
	p.cancel()
}

func (p *pipeline) run(ctx context.Context) {
	defer p.stop()
	defer p.end()
	defer func() {
		panicked := recover()
		if panicked != nil {
			p.conn.Session.MarkUnusable()
		}
		p.checkout.Unlock(&p.want)
		p.checkout.Detach()
		if p.tries { // it writes to the log, which may need a connection
			p.engine.pipelines.tried(p.failed)
		}
		if panicked != nil {
			p.engine.report.DriverPanicked("in a pipeline; the connection was closed", panicked)
		}
	}()
	if p.tries {
		p.failed = errTrialPanicked
		p.failed = p.conn.Session.TryPipeline(ctx)
	} else {
		p.send(ctx)
	}
}

// send sends the queries and gives out the answers.
func (p *pipeline) send(ctx context.Context) {
	p.conn.Meter.Lead(len(p.followers))
	defer p.conn.Meter.EndLead(p.leader.label)
	defer p.giveKept()
	calls := make([]dialects.PipelinedQuery, 1+len(p.followers))
	for i := range calls {
		f := p.followAt(i)
		calls[i] = f.call
		p.conn.Session.OweTo(f.owes)
	}
	begun := time.Now()
	switch err := p.conn.Session.Together(ctx, calls, answerBytes, p.answered); err {
	case nil:
		p.engine.pipelines.measured(p.first.Sub(begun), time.Since(p.first), len(p.followers))
	case errors.ErrUnsupported:
		p.leaderGets(session.Answer{Alone: true})
		p.returnFrom(0) // the connection may be cleaned before its lease ends
	}
}

// returnFrom sends the followers from the place i on back to the queue, unless they have ended.
func (p *pipeline) returnFrom(i int) {
	for _, f := range p.followers[i:] {
		f.Return()
	}
}

// answered gives the answer to whoever has asked.
func (p *pipeline) answered(i int, a session.Answer) {
	p.answers.Store(int32(i + 1))
	p.late.Store(0)
	p.timer.Reset(rescueAfter)
	a.Era = p.conn.Era
	if a.Large {
		p.followAt(i).pace.WasLarge()
	}
	if i == 0 {
		p.first = time.Now()
	}
	if p.followAt(i).owes != nil {
		p.kept = append(p.kept, kept{i, a})
	} else {
		p.give(i, a)
	}
	if i < len(p.followers) {
		next := p.followAt(i + 1)
		p.conn.Meter.Next(next.label, &next.call.Text, p.followers[i].Waited())
	}
}

// giveKept gives the answers that have waited for the position. Before it is known the next read of the same context would go to
// the primary again.
func (p *pipeline) giveKept() {
	for _, k := range p.kept {
		p.give(k.i, k.answer)
	}
}

// give gives the answer to the query at place i.
func (p *pipeline) give(i int, a session.Answer) {
	if i == 0 {
		p.leaderGets(a)
	} else {
		p.followerGets(p.followers[i-1], a)
	}
}

// followerGets gives f its answer, unless f has gone.
func (p *pipeline) followerGets(f pool.Follower[*connpool.Conn], a session.Answer) {
	got := f.Served(func() {
		who := f.Who().(*follow)
		who.answer, who.waited = a, f.Waited()
	})
	if !got {
		a.Drop()
	}
}

// followAt is the query at place i of the pipeline.
func (p *pipeline) followAt(i int) *follow {
	if i == 0 {
		return p.leader
	}
	return p.followers[i-1].Who().(*follow)
}

// leaderGets gives the leader its answer, unless it has one or has left.
func (p *pipeline) leaderGets(a session.Answer) {
	if !p.leader.fate.CompareAndSwap(expected, answered) {
		a.Drop()
		return
	}
	p.leader.answer = a
	close(p.leader.done)
}

// rescue is called when the present answer takes long: those behind it are executed elsewhere, which is allowed
// because they only read. Their answers here are dropped when they come. If nobody waits for the present one
// any more, the connection is closed.
func (p *pipeline) rescue() {
	present := int(p.answers.Load())
	if p.over.Load() || present > len(p.followers) {
		return
	}
	p.followAt(present).pace.Ran(rescueAfter)
	gone := p.isGone(present, int(p.late.Add(1)))
	if before := p.rescued.Load(); present < int(before) && p.rescued.CompareAndSwap(before, int32(present)) {
		p.returnFrom(present)
	}
	if gone && present == int(p.answers.Load()) { // else who was present has just got the answer
		p.cancel()
		return
	}
	p.timer.Reset(rescueAfter)
}

// isGone reports whether nobody waits for the present answer, which is late for so many times rescueAfter. Who
// has left leaves a statement that may run for ever.
func (p *pipeline) isGone(present, late int) bool {
	switch {
	case present == 0:
		return p.leader.fate.Load() == left
	case present > int(p.rescued.Load()):
		return late > giveUpAfter
	}
	return !p.followers[present-1].Works()
}

// end wakes the leader if the connection was lost before its answer came. The followers without an answer are
// back in the queue: the end of the lease has returned them.
func (p *pipeline) end() {
	if f := p.leader; !p.tries && f.fate.CompareAndSwap(expected, answered) {
		f.again = true
		close(f.done)
	}
}
