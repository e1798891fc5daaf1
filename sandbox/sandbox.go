package sandbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/beneath"
	"github.com/pooldriver/pooldriver/internal/bubble"
	"github.com/pooldriver/pooldriver/internal/goroutine"
)

// sandbox is what a test has: a handle, whose connections run on a stage. A subtest has a sandbox
// of its own on the stage of its test, at a level of its own.
type sandbox struct {
	name     string // of the test
	t        testing.TB
	of       beneath.Beneath
	inner    *pooldriver.Connector // the Connector that the test uses, over the stage
	db       atomic.Pointer[sql.DB]
	stage    *stage
	testLog  *testLog
	patience time.Duration
	parent   *sandbox // nil: this one has begun the stage
	level    string   // the savepoint of a subtest
	leave    func()   // lets the next sandbox begin, where one runs at a time

	goroutine uint64          // of the test
	testCtx   context.Context // t.Context(): it ends before the cleanups

	mu        sync.Mutex // protects following fields
	ended     bool
	child     *sandbox // of the subtest that runs
	checkouts map[*checkout]bool
	prepared  map[driver.Stmt]prepared
	cut       []string // what was open when t.Context() ended, for the report
	last      *checkout
	lastText  string
	lastAt    place
}

// start opens the sandbox of a test, or returns the one that the test has.
func start(t testing.TB, connector *pooldriver.Connector) *sandbox {
	t.Helper()
	of, err := beneathConnector(connector)
	if err != nil {
		t.Fatalf("sandbox: %v", err)
	}
	around := open.around(of, t.Name())
	if around != nil && around.t == t {
		return around
	}
	s := &sandbox{
		name: t.Name(), t: t, of: of, testLog: newTestLog(t), parent: around,
		checkouts: map[*checkout]bool{}, prepared: map[driver.Stmt]prepared{},
		goroutine: goroutine.Number(), testCtx: t.Context(),
	}
	if s.patience = of.Config().DeadlockAfter; s.patience == 0 {
		s.patience = defaultPatience
	}
	if around == nil {
		err = s.begin()
	} else {
		err = s.beginInside(around)
	}
	if err != nil {
		t.Fatalf("sandbox: %v", err)
	}
	open.add(s)
	t.Cleanup(func() {
		t.Helper()
		s.end()
	})
	return s
}

// defaultPatience is Config.DeadlockAfter's default.
const defaultPatience = 5 * time.Second

// target is where the connections lead.
func (s *sandbox) target() string { return s.of.Template().Target() }

// described names the test, and its last statement.
func (s *sandbox) described() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		return s.name
	}
	return fmt.Sprintf("%s, whose last statement was %s at %v", s.name, s.stage.brief(s.lastText), s.lastAt)
}

// placeOf returns the place from which a statement that runs was called.
func (s *sandbox) placeOf(text string) (at place, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.checkouts {
		if c.busy && c.text == text {
			return c.at, true
		}
	}
	return place{}, false
}

// begin takes a connection and begins the transaction of the test.
func (s *sandbox) begin() error {
	ctx, cancel := untilDeadline(s.t)
	defer cancel()
	leave, err := turns.wait(ctx, s.of, visitorOf(s.t))
	if err != nil {
		return err
	}
	s.leave = leave
	begun := false
	defer func() {
		if !begun {
			leave()
		}
	}()
	taken, err := s.take(ctx)
	if err != nil {
		return fmt.Errorf("no connection for the test: %w", err)
	}
	var say speech
	say.to.Store(s.testLog)
	s.stage, err = newStage(ctx, taken, s.of, &say, turns.shared(s.of) || open.ofTest(s.name))
	if err != nil {
		taken.Discard()
		return fmt.Errorf("the transaction of the test did not begin: %w", err)
	}
	begun = true
	s.openHandle()
	return nil
}

// take takes a connection. Other tests may have all of them for longer than pool_acquire_timeout:
// that is no mistake.
func (s *sandbox) take(ctx context.Context) (beneath.Taken, error) {
	for {
		taken, err := s.of.Take(ctx)
		if err == nil || !errors.Is(err, pooldriver.ErrTimeout) || ctx.Err() != nil || !open.has(s.of) {
			return taken, err
		}
	}
}

// beginInside makes a level in the sandbox of the test around.
func (s *sandbox) beginInside(parent *sandbox) error {
	if isParallel(s.t) {
		return fmt.Errorf("the subtest %s runs in parallel, and its sandbox would be a level in the one session of %s: leave out t.Parallel in the subtest, or open the sandbox in the subtests only", s.name, parent.name)
	}
	parent.mu.Lock()
	defer parent.mu.Unlock()
	if parent.child != nil {
		return fmt.Errorf("the subtest %s begins before %s has ended, and both would be levels in the one session of %s: leave out t.Parallel in the subtests and let them run one after the other, or open the sandbox in the subtests only", s.name, parent.child.name, parent.name)
	}
	for c := range parent.checkouts {
		if c.used || c.busy {
			return fmt.Errorf("the subtest %s begins while %s has %s, from %v: end that before the subtest", s.name, parent.name, c.describe(parent), c.since())
		}
	}
	level, err := parent.stage.enter()
	if err != nil {
		return err
	}
	parent.child = s
	s.stage, s.level = parent.stage, level
	s.stage.tell.to.Store(s.testLog)
	s.openHandle()
	return nil
}

// lateParallel is the error of a subtest that calls t.Parallel after it has got a level.
func (s *sandbox) lateParallel() error {
	return fmt.Errorf("sandbox: the subtest %s has called t.Parallel after sandbox.DB: so it goes on only when the function of %s has returned, and until then nobody can use the one session of %s: leave out t.Parallel in the subtest, or open the sandbox in the subtests only",
		s.name, s.parent.name, s.parent.name)
}

// openHandle makes the Connector over the stage, and the handle.
func (s *sandbox) openHandle() {
	s.inner = s.of.ConnectorOver(&template{Template: s.of.Template(), stage: s.stage, hook: s.of.Config().AfterConnect}, beneath.Over{
		Patience: s.patience, Watch: func() beneath.Watcher { return &checkout{s: s} },
	}).(*pooldriver.Connector)
	db := sql.OpenDB(s.inner)
	db.SetMaxIdleConns(idle)
	s.db.Store(db)
}

// idle is how many connections of the handle stay. They cost little.
const idle = 100

// end checks what the test has left open, and undoes what it has written.
func (s *sandbox) end() {
	s.t.Helper()
	s.settle()
	left := s.close()
	if s.parent != nil && isParallel(s.t) {
		left = append(left, s.lateParallel().Error())
	}
	for _, what := range left {
		if hasFailed(s.t) {
			s.t.Log(what) // a test that stops in the middle leaves things open
		} else {
			s.t.Error(what)
		}
	}
	s.stage.stop()
	_ = s.inner.Close()
	s.closeHandle()
	s.testLog.close()
	var err error
	if s.parent == nil {
		err = s.stage.end()
		s.leave()
	} else {
		err = s.stage.leave(s.level)
		s.stage.tell.to.Store(s.parent.testLog)
		s.parent.mu.Lock()
		s.parent.child = nil
		s.parent.mu.Unlock()
	}
	open.remove(s)
	if err != nil {
		s.t.Errorf("sandbox: undoing what the test has written: %v", err)
	}
}

// closeHandle closes the handle. From then on database/sql itself refuses statements, and its error
// does not name the test. So the handle is closed a moment later, when most late statements have come.
// In a bubble it is closed at once: a bubble ends with its test.
func (s *sandbox) closeHandle() {
	if bubble.Name(time.Now()) != "" {
		_ = s.db.Load().Close()
		return
	}
	time.AfterFunc(late, func() { _ = s.db.Load().Close() })
}

// late is how long a statement may come late and get an error with the name of the test. Checks for
// goroutines that are left wait longer.
const late = 100 * time.Millisecond
