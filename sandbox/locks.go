package sandbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/beneath"
)

// Tests that run at the same time may wait for each other's locks. A test that waits for long is told
// which test it waits for.

// lockWaits watches the statements of one stage.
type lockWaits struct{ of beneath.Beneath }

// longWait is how long a statement may run before the server is asked whether it waits for a lock.
const longWait = time.Second

// lockWait watches one statement.
type lockWait struct {
	st    *stage
	timer *time.Timer // nil: the server cannot be asked

	mu     sync.Mutex // protects following fields
	over   bool
	cancel func() // ends the question; nil: nobody asks
	found  string // who blocks the statement; empty: not known yet
}

func (w *lockWaits) begin(st *stage, text string) *lockWait {
	l := &lockWait{st: st}
	if _, ok := st.dialect.(dialects.LockExplainer); ok {
		l.timer = time.AfterFunc(longWait, func() { l.ask(w.of, text) })
	}
	return l
}

// end is called when the statement has got its answer.
func (l *lockWait) end() {
	if l.timer == nil || l.timer.Stop() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.cancel != nil {
		l.cancel()
	}
}

// ask asks the server who is in the way, and tells the test.
func (l *lockWait) ask(of beneath.Beneath, text string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l.mu.Lock()
	l.cancel = cancel
	over := l.over
	l.mu.Unlock()
	if over {
		return
	}
	blockers := blockersOf(ctx, of, l.st.process())
	if len(blockers) == 0 {
		return // the operation makes progress, so nobody blocks it
	}
	found := whoAre(of, blockers)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	l.found = found
	l.st.tell.noteAt(fmt.Sprintf("a statement has waited for %v for a lock: %s; it waits for %s", longWait, l.st.brief(text), found), open.placeOf(l.st, text))
}

// explain adds to an error about locks who was in the way.
func (l *lockWait) explain(err error) error {
	l.end()
	explainer, ok := l.st.dialect.(dialects.LockExplainer)
	if err == nil || !ok {
		return err
	}
	lost, blockers := explainer.LockLost(err)
	if !lost {
		return err
	}
	l.mu.Lock()
	found := l.found
	l.mu.Unlock()
	blockers = slices.DeleteFunc(blockers, func(n uint64) bool { return n == l.st.process() })
	if len(blockers) > 0 {
		found = whoAre(l.st.waits.of, blockers)
	}
	if found == "" {
		found = othersThan(l.st)
	}
	return fmt.Errorf("%w (sandbox: in the way was %s)", err, found)
}

// blockersOf asks who is in the way of a session, on a connection of the pool. If none becomes free, nobody is asked: one more
// would be beyond the limit.
func blockersOf(ctx context.Context, of beneath.Beneath, process uint64) (blockers []uint64) {
	taken, err := of.Take(ctx)
	if err != nil {
		return nil
	}
	defer taken.GiveBack(dialects.Clean)
	waits, _ := of.Config().Dialect.(dialects.LockExplainer).LockWaits(ctx, taken.Session(), []uint64{process}) // a part of the answer will do
	for _, w := range waits {
		if w.Blocker != 0 && !slices.Contains(blockers, w.Blocker) {
			blockers = append(blockers, w.Blocker)
		}
	}
	return blockers
}

// whoAre names sessions of the server: by their tests or, if they are none of ours, by their
// numbers.
func whoAre(of beneath.Beneath, sessions []uint64) string {
	var names []string
	for _, n := range sessions {
		names = append(names, open.byProcess(of, n))
	}
	return strings.Join(names, "; ")
}

// othersThan names all other tests that run on the same server.
func othersThan(st *stage) string {
	if names := open.others(st); len(names) > 0 {
		return "one of " + strings.Join(names, "; ")
	}
	return "a session that is none of this program's sandboxes"
}
