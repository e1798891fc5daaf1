package floor

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
)

const (
	pollEvery = 5 * time.Millisecond  // while a read waits
	seekEvery = 50 * time.Millisecond // while reads would like to use the replica, and do not wait for it
	seekFor   = time.Second
	failedFor = time.Second            // after no answer the server is left alone
	idleAfter = 10 * time.Second       // without use the replica is left alone
	askWithin = 900 * time.Millisecond // a server that has not answered by then counts as silent
	hangUpIn  = time.Second

	dialWithin = 5 * time.Second
)

// State is what a Watcher knows of its replica.
type State uint8

// The states.
const (
	Unseen State = iota // it was not asked lately
	Serving
	Dead // it does not answer
	Late // too late for maxLag
	NoStandby
)

// Watched is what a Watcher is made for.
type Watched struct {
	Dial func(context.Context) (dialects.Session, error)
	// Ask asks the server how it is.
	Ask       func(context.Context, dialects.Positioned) (dialects.ReplicaState, error)
	Every     time.Duration // the pause between questions while the server is used; Wake asks at once
	Positions dialects.Positions
	Ages      *Ages         // when the primary had which position
	MaxLag    time.Duration // 0: any
	Rest      time.Duration // how long without use until its connection is closed; 0: never
	News      *News         // where reads wait for an answer
	// Silent is called when the server has not answered, on the Watcher's connection or to a dial, and then no new
	// connection can be had. Renewed is called when a lost connection of the Watcher is replaced: the server may be
	// another one, or show an older state.
	Silent, Renewed func()
	// Answered, if set, is called after each question, with the error for which there was no answer.
	Answered func(err error)
}

// Watcher watches one replica: how far it has come, how late it is, and whether it is one at all. It has a connection
// of its own, and while the replica is used one goroutine, which asks Every so often, and every 5 ms while a read
// waits. So waiting reads cost the server no more than one does. The methods may be called at the same time.
type Watcher struct {
	Watched

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wake   chan struct{} // a read waits; one is enough

	mu      sync.Mutex // protects following fields
	running bool
	used    time.Time
	told    time.Time // the last answer, or that there was none
	waiting int
	sought  time.Time // when a read would have liked to use the replica
	seen    dialects.ReplicaState
	fresh   time.Time // when the newest position of the primary that seen has reached was asked for; zero: there is none
	state   State
	era     uint64 // counts connections to the replica: a new one begins a new era
	asked   uint64 // questions begun
	known   uint64 // the last question that was answered, in era knownIn
	knownIn uint64
	conn    dialects.Session // only the goroutine uses it
	rest    *time.Timer      // closes conn; nil: the goroutine runs, or none ever ran
	ended   sync.WaitGroup
}

// NewWatcher makes a Watcher, which opens nothing before its replica is used.
func NewWatcher(of Watched) *Watcher {
	w := &Watcher{Watched: of, wake: make(chan struct{}, 1)}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// Use says that the replica is used now.
func (w *Watcher) Use() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.useLocked()
}

func (w *Watcher) useLocked() {
	w.used = time.Now()
	if !w.running && w.ctx.Err() == nil {
		w.state = w.stateLocked()
		w.running = true
		if w.rest != nil {
			w.rest.Stop()
		}
		w.ended.Go(w.run)
	}
}

// Era is the number of the Watcher's present connection to the replica.
func (w *Watcher) Era() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.era
}

// State returns what is known of the replica, up to a second ago. A lag that is not known is negative.
func (w *Watcher) State() (_ State, seen dialects.ReplicaState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen = w.seen
	seen.Lag = w.lagLocked()
	return w.stateLocked(), seen
}

// stateLocked: who has waited in vain until the Watcher ended must not wait for the same replica again.
func (w *Watcher) stateLocked() State {
	if !w.running && time.Since(w.told) > idleAfter {
		return Unseen
	}
	if w.state == Serving && w.MaxLag > 0 {
		if lag := w.lagLocked(); lag < 0 || lag > w.MaxLag {
			return Late
		}
	}
	return w.state
}

// lagLocked is the lag of the replica. It has all that the primary had when it was asked for a position that the replica has
// reached. Where there is no position, the replica's word has to do.
func (w *Watcher) lagLocked() time.Duration {
	switch {
	case w.seen.Position == "":
		return w.seen.Lag
	case w.fresh.IsZero():
		return -1
	}
	return age(w.fresh)
}

// Reached reports whether the replica is known to have come to position, and to serve. With an empty position it is
// enough that it serves.
func (w *Watcher) Reached(position string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stateLocked() == Serving && (position == "" || w.Positions.Reached(position, w.seen.Position))
}

// Seek has the replica asked every 50 ms for a second: it is behind, and reads do not wait for it.
func (w *Watcher) Seek() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.sought) > seekFor {
		w.wakeLocked()
	}
	w.sought = time.Now()
}

// Wake has the server asked now, if it is used.
func (w *Watcher) Wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakeLocked()
}

func (w *Watcher) wakeLocked() {
	select {
	case w.wake <- struct{}{}:
	default: // a wake-up is pending already
	}
}

// Attend has the replica asked every 5 ms, until the returned function is called.
func (w *Watcher) Attend() (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.useLocked()
	w.waiting++
	w.wakeLocked()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.waiting--
	}
}

// Confirm waits until the replica has answered a question that was asked after the call, and returns the era of that answer: what
// was connected before the call is a connection to the same server. 0: it has not answered before ctx ended.
func (w *Watcher) Confirm(ctx context.Context) uint64 {
	defer w.Attend()()
	w.mu.Lock()
	after := w.asked
	w.mu.Unlock()
	for {
		news := w.News.Next()
		w.mu.Lock()
		known, era := w.known, w.knownIn
		w.mu.Unlock()
		if known > after {
			return era
		}
		select {
		case <-news:
		case <-ctx.Done():
			return 0
		case <-w.ctx.Done():
			return 0
		}
	}
}

// Closed is closed by Close.
func (w *Watcher) Closed() <-chan struct{} { return w.ctx.Done() }

// Close ends the Watcher, and returns when its connection is closed.
func (w *Watcher) Close() {
	w.mu.Lock()
	w.cancel() // under the lock: no goroutine begins after it
	w.mu.Unlock()
	w.ended.Wait()
	w.hangUp()
}

// hangUp closes the connection, unless the replica is used.
func (w *Watcher) hangUp() {
	w.mu.Lock()
	var conn dialects.Session
	if !w.running {
		conn, w.conn = w.conn, nil
	}
	w.mu.Unlock()
	closeSession(conn)
}

// run asks until the replica is not used any more. It leaves its connection open: so the era goes on.
func (w *Watcher) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	suspect := false // the last question or dial got no answer in time
	for {
		seen, open, err := w.ask(suspect)
		failed, ofNetwork := errors.AsType[net.Error](err)
		suspect = ofNetwork && failed.Timeout()
		pause, goOn := w.tell(seen, err, suspect && open)
		if !goOn {
			return
		}
		timer.Reset(pause)
		wake := w.wake
		if err != nil {
			wake = nil // a server that does not answer is not asked every 5 ms
		}
		select {
		case <-timer.C:
		case <-wake:
		case <-w.ctx.Done():
		}
	}
}

// tell publishes an answer, and returns when to ask next. unanswered: at once, because calls may wait for a server that is gone.
func (w *Watcher) tell(seen dialects.ReplicaState, err error, unanswered bool) (pause time.Duration, goOn bool) {
	defer w.News.tell()
	if w.Answered != nil {
		w.Answered(err)
	}
	fresh := w.Ages.of(w.Positions, seen.Position)
	w.mu.Lock()
	defer w.mu.Unlock()
	if fresh.After(w.fresh) {
		w.fresh = fresh
	}
	switch {
	case err != nil:
		w.state = Dead // the server may be another one when it answers again: its position is not kept
		w.seen, w.fresh = dialects.ReplicaState{Lag: -1}, time.Time{}
	case !seen.Standby:
		w.state, w.seen = NoStandby, seen
	default:
		w.state, w.seen = Serving, seen
	}
	w.told = time.Now()
	if err == nil {
		w.known, w.knownIn = w.asked, w.era
	}
	if w.ctx.Err() != nil || w.waiting == 0 && !unanswered && time.Since(w.used) > idleAfter {
		// Under the lock: the next Use begins another goroutine.
		w.running = false
		if w.Rest > 0 {
			w.rest = time.AfterFunc(w.Rest, w.hangUp)
		}
		if err == nil {
			w.state = Unseen
		}
		return 0, false
	}
	return w.pauseLocked(err, unanswered), true
}

// pauseLocked is the time until the next question, after an answer.
func (w *Watcher) pauseLocked(err error, unanswered bool) time.Duration {
	switch {
	case unanswered:
		return 0
	case err != nil:
		return max(w.Every, failedFor)
	case w.waiting > 0:
		return pollEvery
	case time.Since(w.sought) < seekFor:
		return seekEvery
	}
	return w.Every
}

// ask asks the replica once. open: there was a connection to ask on. suspect: it is silent if it takes long to connect.
func (w *Watcher) ask(suspect bool) (seen dialects.ReplicaState, open bool, err error) {
	if w.conn == nil { // only this goroutine uses it
		if w.conn, err = w.dial(suspect); err != nil {
			return seen, false, err
		}
		w.begin()
	}
	ctx, cancel := context.WithTimeout(w.ctx, askWithin)
	defer cancel()
	w.mu.Lock()
	w.asked++
	w.mu.Unlock()
	asked, ok := w.conn.(dialects.Positioned)
	if !ok {
		err = dialects.ErrNoPosition
	} else if seen, err = w.Ask(ctx, asked); err == nil {
		return seen, true, nil
	}
	lost := w.conn
	w.conn = nil
	w.ended.Go(func() { closeSession(lost) }) // a server that does not answer takes its time
	return seen, true, err
}

func (w *Watcher) dial(suspect bool) (dialects.Session, error) {
	ctx, cancel := context.WithTimeout(w.ctx, dialWithin)
	defer cancel()
	if !suspect {
		return w.Dial(ctx)
	}
	silent := sync.OnceFunc(w.Silent)
	// After askWithin the pool's calls are cut; only this dial goes on, because a server far away may need longer.
	defer time.AfterFunc(askWithin, silent).Stop()
	conn, err := w.Dial(ctx)
	if _, ofNetwork := errors.AsType[net.Error](err); ofNetwork && w.ctx.Err() == nil { // else the dial was given up
		silent()
	}
	return conn, err
}

// begin begins an era.
func (w *Watcher) begin() {
	w.mu.Lock()
	w.era++
	again := w.era > 1
	w.mu.Unlock()
	if again {
		w.Renewed()
	}
}

func closeSession(s dialects.Session) {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), hangUpIn)
	defer cancel()
	_ = s.Close(ctx) // nothing is lost: it has only been asked
}

// News wakes those who wait for an answer of any of several Watchers.
type News struct {
	mu sync.Mutex
	ch chan struct{} // closed by the next answer; nil: nobody waits
}

// Next is closed by the next answer.
func (n *News) Next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	return n.ch
}

func (n *News) tell() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
}
