package conformance

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// Target is one database, reached in two ways.
type Target struct {
	Name string

	// Bare and Wrapped open the database without and with the wrapper. Each
	// call gives a new *sql.DB, which the suite closes. Tables that a case
	// needs it drops and creates itself.
	Bare, Wrapped func(t testing.TB) *sql.DB

	// SQL is the database's dialect, and what it is capable of.
	SQL Flavor

	// Differences are permitted in addition to the closed list, for what
	// only this target shows.
	Differences []Difference

	// Omit are the cases, with reasons, that the bare driver is not put through:
	// it hangs or panics, or it does something else the next time; or Wrapped, which has too few connections.
	Omit map[string]string

	// Parallel: the cases run in parallel. Bare and Wrapped give each case tables of its own.
	Parallel bool

	// Of the fake only: both ways of opening, with the server to ask, and
	// whether a case may stop early because the shape lacks what it needs.
	fakeBare, fakeWrapped func(t testing.TB) (*sql.DB, *fakedb.Server, driver.Connector)
	mayStop               bool

	patience time.Duration // of an Env; 0 means 5 s
}

// Case is one thing to observe.
type Case struct {
	Name  string
	Needs Needs
	Run   func(e *Env)
}

// Run runs every case that the target is capable of, each as a subtest of its
// name.
func Run(t *testing.T, target Target) {
	t.Helper()
	capable := target.SQL.provides()
	omitted := 0
	for _, c := range Cases() {
		if !capable.has(c.Needs) {
			continue
		}
		if why, ok := target.Omit[c.Name]; ok {
			require.NotEmpty(t, why, "%s is omitted without a reason", c.Name)
			omitted++
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			if target.Parallel {
				t.Parallel()
			}
			for _, line := range compare(t, target, c) {
				t.Error(line)
			}
		})
	}
	require.Len(t, target.Omit, omitted, "a case is omitted that does not exist, or that the target is not capable of")
}

// compare runs one case both ways and returns what differs without permission.
func compare(t testing.TB, target Target, c Case) []string {
	t.Helper()
	bare := observe(t, target, c, false)
	if bare.stopped != "" && !target.mayStop {
		return []string{fmt.Sprintf("%s cannot be observed on the bare driver: %s", c.Name, bare.stopped)}
	}
	if len(bare.notes) == 0 {
		return []string{c.Name + " observes nothing"}
	}
	wrapped := observe(t, target, c, true)
	return differing(c.Name, append(Differences(), target.Differences...), bare, wrapped)
}

// hang is how long a case may observe nothing and end no cleanup. A case has no limit as a whole: one
// that makes thirty tables takes a while on a busy machine.
const hang = time.Minute

// observe runs a case once and returns what it saw.
func observe(t testing.TB, target Target, c Case, wrapped bool) *Env {
	t.Helper()
	e := &Env{SQL: target.SQL, Ctx: context.Background(), patience: target.patience}
	if e.patience == 0 {
		e.patience = 5 * time.Second
	}
	switch {
	case target.fakeBare == nil && wrapped:
		e.DB = target.Wrapped(t)
	case target.fakeBare == nil:
		e.DB = target.Bare(t)
	case wrapped:
		e.DB, e.Server, e.connector = target.fakeWrapped(t)
	default:
		e.DB, e.Server, e.connector = target.fakeBare(t)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.run(c)
	}()
	for last := 0; ; {
		select {
		case <-done:
			return e
		case <-time.After(hang):
		}
		if steps := e.taken(); steps != last {
			last = steps
			continue
		}
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		require.FailNow(t, fmt.Sprintf("%s (wrapped: %t) hangs after %v\n%s", c.Name, wrapped, e.snapshot(), stacks))
	}
}

// run runs the case, closes the database, and asks the fake server whether
// anything is left.
func (e *Env) run(c Case) {
	e.guard(func() { c.Run(e) })
	for i := len(e.cleanups) - 1; i >= 0; i-- {
		e.guard(e.cleanups[i])
		e.step()
	}
	e.guard(func() { e.Err("closing the database", e.DB.Close()) })
	if e.Server == nil {
		return
	}
	if ender, ok := e.connector.(Ender); ok {
		ender.End()
	}
	if !e.leaks {
		ctx, cancel := context.WithTimeout(context.Background(), e.patience)
		defer cancel()
		left := e.Server.Await(ctx, func(s fakedb.State) bool { return s.Open() == 0 })
		e.Value("all connections are closed in the end", left == nil)
	}
	e.Value("misuse of the driver", e.Server.Violations())
}

// stop is how a case ends early.
type stop struct{ why string }

func (e *Env) guard(f func()) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case stop:
			e.stopped = r.why
			e.note("stopped", r.why)
		default:
			e.stopped = fmt.Sprintf("panic: %v", r)
			e.note("panicked", fmt.Sprint(r))
		}
	}()
	f()
}
