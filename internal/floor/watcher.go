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
	pollEvery = 5 * time.Millisecond // while a read waits
	lookEvery = time.Second          // while the replica is used
	idleAfter = 10 * time.Second     // without use the replica is left alone
	askWithin = 5 * time.Second
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

// Watcher watches one replica: how far it has come, how late it is, and whether it is one at all. It has a connection
// of its own, and one goroutine, which asks once a second while the replica is used, and every 5 ms while a read
// waits. So waiting reads cost the server no more than one does. The methods may be called at the same time.
type Watcher struct {
	dial      func(context.Context) (dialects.Session, error)
	positions dialects.Positions
	maxLag    time.Duration // 0: any
	silent    func()

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wake   chan struct{} // a read waits; one is enough

	mu      sync.Mutex // protects following fields
	running bool
	used    time.Time
	told    time.Time // the last answer, or that there was none
	waiting int
	seen    dialects.ReplicaState
	state   State
	news    chan struct{} // closed by the next answer
	ended   sync.WaitGroup
}

// NewWatcher makes a Watcher, which opens nothing before its replica is used. silent is called when the replica has not
// answered, on the Watcher's connection or to a dial, and then no new connection can be had.
func NewWatcher(dial func(context.Context) (dialects.Session, error), p dialects.Positions, maxLag time.Duration, silent func()) *Watcher {
	w := &Watcher{dial: dial, positions: p, maxLag: maxLag, silent: silent, wake: make(chan struct{}, 1), news: make(chan struct{})}
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
		w.ended.Go(w.run)
	}
}

// State returns what is known of the replica, up to a second ago. A lag that is not known is negative.
func (w *Watcher) State() (_ State, lag time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stateLocked(), w.seen.Lag
}

// stateLocked: who has waited in vain until the Watcher ended must not wait for the same replica again.
func (w *Watcher) stateLocked() State {
	if !w.running && time.Since(w.told) > idleAfter {
		return Unseen
	}
	return w.state
}

// Reached reports whether the replica is known to have come to position, and to serve. With an empty position it is
// enough that it serves.
func (w *Watcher) Reached(position string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reachedLocked(position)
}

func (w *Watcher) reachedLocked(position string) bool {
	return w.state == Serving && (position == "" || w.positions.Reached(position, w.seen.Position))
}

// Wait waits until the replica has come to position, for at most limit.
func (w *Watcher) Wait(ctx context.Context, position string, limit time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.useLocked()
	if w.waiting++; w.waiting == 1 {
		select {
		case w.wake <- struct{}{}:
		default: // it is awake
		}
	}
	defer func() { w.waiting-- }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		if w.reachedLocked(position) {
			return true
		}
		news := w.news
		w.mu.Unlock()
		ended := false
		select {
		case <-news:
		case <-timer.C:
			ended = true
		case <-ctx.Done():
			ended = true
		case <-w.ctx.Done():
			ended = true
		}
		w.mu.Lock()
		if ended {
			return false
		}
	}
}

// Close ends the Watcher, and returns when its connection is closed.
func (w *Watcher) Close() {
	w.mu.Lock()
	w.cancel() // under the lock: no goroutine begins after it
	w.mu.Unlock()
	w.ended.Wait()
}

// run asks until the replica is not used any more.
func (w *Watcher) run() {
	var conn dialects.Session
	defer func() { closeSession(conn) }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	unanswered := false // the last question or dial
	for {
		var seen dialects.ReplicaState
		var open bool
		var err error
		conn, seen, open, err = w.ask(conn)
		pause, goOn := w.tell(seen, err)
		failed, ofNetwork := errors.AsType[net.Error](err)
		if unanswered && ofNetwork && !open && w.ctx.Err() == nil { // else the dial was given up
			w.silent()
		}
		unanswered = ofNetwork && failed.Timeout()
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

// tell publishes an answer, and returns when to ask next.
func (w *Watcher) tell(seen dialects.ReplicaState, err error) (pause time.Duration, goOn bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err != nil:
		w.state = Dead // the server may be another one when it answers again: its position is not kept
		w.seen = dialects.ReplicaState{Lag: -1}
	case !seen.Standby:
		w.state, w.seen = NoStandby, seen
	case w.maxLag > 0 && (seen.Lag < 0 || seen.Lag > w.maxLag):
		w.state, w.seen = Late, seen
	default:
		w.state, w.seen = Serving, seen
	}
	w.told = time.Now()
	close(w.news)
	w.news = make(chan struct{})
	if w.ctx.Err() != nil || w.waiting == 0 && time.Since(w.used) > idleAfter {
		// Under the lock: the next Use begins another goroutine.
		w.running = false
		if err == nil {
			w.state = Unseen
		}
		return 0, false
	}
	if w.waiting > 0 && err == nil {
		return pollEvery, true
	}
	return lookEvery, true
}

// ask asks the replica once. It returns the session for the next time, nil after an error. open: there was one to ask.
func (w *Watcher) ask(s dialects.Session) (_ dialects.Session, seen dialects.ReplicaState, open bool, err error) {
	ctx, cancel := context.WithTimeout(w.ctx, askWithin)
	defer cancel()
	if s == nil {
		if s, err = w.dial(ctx); err != nil {
			return nil, seen, false, err
		}
	}
	asked, ok := s.(dialects.Positioned)
	if !ok {
		err = errNoPosition
	} else if seen, err = asked.Replayed(ctx, w.maxLag > 0); err == nil {
		return s, seen, true, nil
	}
	w.ended.Go(func() { closeSession(s) }) // a server that does not answer takes its time
	return nil, seen, true, err
}

var errNoPosition = errors.New("the server does not tell how far it has come")

func closeSession(s dialects.Session) {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	_ = s.Close(ctx) // nothing is lost: it has only been asked
}
