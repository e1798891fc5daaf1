package sandbox

import (
	"context"
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/beneath"
	"github.com/pooldriver/pooldriver/internal/task"
)

// A program that forgets the context of Context in one place sends a statement to the database itself, beside
// the sandbox. There the statement waits for the locks of the test, or its changes stay.

// beside is one statement that goes to the database itself while a sandbox is open on its connector.
type beside struct {
	of     beneath.Beneath
	text   string
	at     place
	own    *sandbox    // of the test whose goroutine executes the statement; nil: none
	timer  *time.Timer // nil: the server cannot be asked
	cancel func()      // nil: its context has a deadline

	mu      sync.Mutex // protects following fields
	over    bool
	stopped error // why it was stopped
}

// watchBeside watches a statement that is about to begin, and returns the context for the statement. nil: it
// goes to a sandbox, or no sandbox is open on the connector.
func (r *route) watchBeside(ctx context.Context, text string) (context.Context, *beside) {
	if r.now != r.own || !open.has(r.of) {
		return ctx, nil
	}
	b := &beside{of: r.of, text: text, at: here()}
	b.own = open.inGoroutine(r.of, b.at.goroutine)
	if _, ok := r.of.Config().Dialect.(dialects.LockExplainer); ok {
		if _, bounded := ctx.Deadline(); !bounded {
			ctx, b.cancel = context.WithCancel(ctx)
		}
		b.timer = time.AfterFunc(longWait, b.ask)
	}
	return ctx, b
}

// ask asks the server whether the statement waits for a lock of a sandbox, and tells the test.
func (b *beside) ask() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, process := range b.of.Executing(b.brief()) {
		for _, blocker := range blockersOf(ctx, b.of, process) {
			if s := open.ofProcess(b.of, blocker); s != nil {
				b.waits(s)
				return
			}
		}
	}
}

// waits tells the test of s that the statement waits for the test's locks. It stops a statement of the test's
// own goroutine: the test keeps its locks until it ends, and it cannot end before the statement ends.
func (b *beside) waits(s *sandbox) {
	mine := b.cancel != nil && b.own != nil && b.own.stage == s.stage && s.onlyUsedBy(b.at.goroutine)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return
	}
	text := fmt.Sprintf("a statement beside the sandbox, which goes to the database itself, has waited for %v for a lock of %s: %s; %s", longWait, s.name, b.brief(), passOn)
	s.stage.tell.noteAt(text, b.at)
	if mine {
		b.stopped = fmt.Errorf("sandbox: %s; it was stopped, because it would have waited for the end of its own test (at %v)", text, b.at)
		b.cancel()
	}
}

const passOn = "if it belongs to the test, let it use the context of sandbox.Context or the handle of sandbox.DB"

// end is called with the error of the statement, and returns the one for the program.
func (b *beside) end(err error) error {
	if b == nil {
		return err
	}
	if b.timer == nil {
		b.locked(err)
		return err
	}
	b.timer.Stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	if err != nil && b.stopped != nil {
		return b.stopped
	}
	return err
}

// locked tells the test if the statement has waited for the test in vain: on SQLite a sandbox has the one lock
// for writing.
func (b *beside) locked(err error) {
	judge, ok := b.of.Config().Dialect.(dialects.SandboxJudge)
	if err == nil || !ok || !judge.SandboxesAlone() || judge.Diagnose(err)&dialects.Conflict == 0 {
		return
	}
	if s := open.on(b.of); s != nil {
		s.stage.tell.noteAt(fmt.Sprintf("a statement beside the sandbox, which goes to the database itself, has failed, and %s has the database locked: %s; %s", s.name, b.brief(), passOn), b.at)
	}
}

func (b *beside) brief() string { return dialect{b.of.Config().Dialect}.Outline(b.text) }

// onlyUsedBy reports whether no other goroutine uses the session of the test.
func (s *sandbox) onlyUsedBy(goroutine uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.checkouts {
		if c.at.goroutine != goroutine && (c.used || c.busy) {
			return false
		}
	}
	return s.child == nil || s.child.onlyUsedBy(goroutine)
}

// past counts, for the test's log, the statements that have gone past a sandbox and whose changes stay. Only a
// statement that is surely a mistake of the test counts: a statement of the test's own goroutine, on a handle
// whose other statements have the sandbox's context.
type past struct {
	n     int
	first string
}

// report is the line for the test's log; empty: nothing stays.
func (p *past) report() string {
	if p.n == 0 {
		return ""
	}
	return fmt.Sprintf("sandbox: statements have gone past the sandbox, because their context is not that of sandbox.Context, and what they have written stays: %d; the first: %s", p.n, p.first)
}

// changing are the first words of texts that change rows.
var changing = []string{"INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE"}

// writes reports whether the statement changes rows. The changes stay if its transaction is committed.
func (b *beside) writes(ctx context.Context) bool {
	if b == nil || b.own == nil || task.PlaceOf(ctx).Task != nil { // nobody here knows the transactions of a task
		return false
	}
	word, _, _ := strings.Cut(b.brief(), " ")
	return slices.Contains(changing, strings.ToUpper(word))
}

// stays records that the statement has changed the database.
func (b *beside) stays() {
	b.own.mu.Lock()
	defer b.own.mu.Unlock()
	if !b.own.byContext {
		return
	}
	if b.own.past.n++; b.own.past.n == 1 {
		b.own.past.first = fmt.Sprintf("%s, at %v", b.brief(), b.at)
	}
}

// endBeside ends a statement of watchBeside, and records what it has written. res is nil for a query. It
// returns the error for the program.
func (r *route) endBeside(ctx context.Context, b *beside, res driver.Result, err error) error {
	if b == nil {
		return err
	}
	if r.of.Config().Dialect.Effect(b.text)&dialects.TxControl != 0 {
		r.byHand = true
	}
	if err == nil && !r.byHand && b.writes(ctx) && !changedNothing(res) {
		if r.wrote = append(r.wrote, b); !r.inTx {
			r.endTx(true)
		}
	}
	return b.end(err)
}

func changedNothing(res driver.Result) bool {
	if res == nil {
		return false
	}
	n, err := res.RowsAffected()
	return err == nil && n == 0
}

// endTx ends a transaction of the database itself.
func (r *route) endTx(committed bool) {
	if committed {
		for _, b := range r.wrote {
			b.stays()
		}
	}
	r.inTx, r.wrote = false, nil
}
