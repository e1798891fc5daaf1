package integration

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/inspect"
	"github.com/pooldriver/pooldriver/integration/byteproxy"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// staged is an incident: how it is staged, and what is right to say of it.
type staged struct {
	stage   func(*testing.T) *incident // a service at its usual work
	begin   func(*incident)
	right   string // a pattern of the rules one of which must apply
	culprit string // a pattern of what its sentence must name: who, or by what
	end     string // right after 3 min, where it is over by then and may be calm; empty: it lasts
	calm    bool   // nothing is wrong, so that the verdict may be calm
	unknown bool   // nothing is known of how long statements take when all is well
	long    bool   // it runs only at length
	also    func(*testing.T, inspect.Pool)
}

// playAll has each incident judged on a page that was open, and on one that is opened then. Of none it is said that the pool is small,
// unless it is. With POOLDRIVER_LONG it looks after 3 s, 10 s and 3 min, otherwise after 3 s.
func playAll(t *testing.T, all map[string]staged) {
	t.Helper()
	for name, s := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if s.long && !randomtest.Long() {
				t.Skip("it runs only at length")
			}
			s.play(t)
		})
	}
}

const lastLook = 3 * time.Minute

func (s staged) play(t *testing.T) {
	t.Helper()
	i := s.stage(t)
	usual := time.Second
	looks := []time.Duration{firstLook}
	if randomtest.Long() {
		usual, looks = 12*time.Second, append(looks, 10*time.Second, lastLook)
	}
	if !s.unknown {
		require.Eventually(t, func() bool {
			return slices.ContainsFunc(i.connector.Statements(time.Time{}), func(t pooldriver.StatementTime) bool { return t.Usual > 0 })
		}, slowMachine, 10*time.Millisecond)
	}
	i.watch(time.Now().Add(usual))
	s.begin(i)
	began := time.Now()
	for _, after := range looks {
		if after == lastLook && s.end != "" {
			s.right, s.calm, s.culprit = s.end, true, ""
		}
		i.watch(began.Add(after))
		s.look(t, after, "open", i.see(false))
		s.look(t, after, "fresh", i.see(true))
		if after == firstLook && randomtest.Long() {
			continue // it may be too early
		}
		// On a busy machine this process or the server gets no processor at a look, and the page says so.
		assert.Eventually(t, func() bool {
			p := i.see(false)
			s.requireNotSmall(t, p)
			return s.judge(p) == "right"
		}, slowMachine, 500*time.Millisecond, "after %v: want one of %s that names %s", after, s.right, s.culprit)
	}
}

// watch looks at the page once a second, as a browser does.
func (i *incident) watch(until time.Time) {
	for time.Now().Before(until) {
		_ = i.see(false)
		time.Sleep(min(time.Second, time.Until(until)))
	}
}

// see is what a page says. fresh: one that is opened now.
func (i *incident) see(fresh bool) inspect.Pool {
	switch {
	case i.page != nil:
		return i.page(fresh)
	case fresh:
		return inspect.Handler(i.connector).Snapshot().Pools[0]
	}
	return i.inspector.Snapshot().Pools[0]
}

// look tells what a page says, as a row of the table of all incidents.
func (s staged) look(t *testing.T, after time.Duration, page string, p inspect.Pool) {
	t.Helper()
	beside := ""
	for _, v := range p.Besides {
		beside += " | " + v.Rule
	}
	t.Logf("%s: %v, %s: %s, %s%s: %s", s.judge(p), after, page, p.Verdict.Level, p.Verdict.Rule, beside, p.Verdict.Sentence)
	s.requireNotSmall(t, p)
	if s.also != nil {
		s.also(t, p)
	}
}

func (s staged) requireNotSmall(t *testing.T, p inspect.Pool) {
	t.Helper()
	if s.right != "small" {
		assert.NotEqual(t, "small", p.Verdict.Rule)
	}
}

// judge says whether a page is right. The row that everybody reads is the first one.
func (s staged) judge(p inspect.Pool) string {
	named := func(v inspect.Verdict) bool {
		return s.allows(v) && regexp.MustCompile(s.culprit).MatchString(v.Sentence)
	}
	switch {
	case named(p.Verdict) && (p.Verdict.Level != "calm" || s.calm):
		return "right"
	case slices.ContainsFunc(p.Besides, named), s.allows(p.Verdict):
		return "partly"
	}
	return "wrong"
}

func (s staged) allows(v inspect.Verdict) bool {
	return regexp.MustCompile("^(" + s.right + ")$").MatchString(v.Rule)
}

// nothing happens.
func nothing(*incident) {}

// within is a statement with a deadline, of a program that waits a little between two.
func (i *incident) within(d time.Duration, query string) func(context.Context) {
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		i.waits(query)(ctx)
	}
}

// usually is a service whose statements may take so long, by so many goroutines, with so many connections.
func usually(t *testing.T, account testbed.Account, patience time.Duration, clients, conns int, parameters ...string) *incident {
	t.Helper()
	i := newIncident(t, account, append(parameters, fmt.Sprint("pool_max_conns=", conns))...)
	i.exec("CREATE TABLE stock (id INT PRIMARY KEY, n INT)")
	i.exec("INSERT INTO stock VALUES (1, 0), (2, 0)")
	i.each(clients, "GET /stock", i.unlessPaused(i.within(patience, "SELECT n FROM stock")))
	i.each(2, "POST /orders", i.unlessPaused(i.within(patience, "UPDATE stock SET n = n + 1 WHERE id = 1")))
	return i
}

// endless is the patience of a program that has none.
const endless = time.Hour

// on has a service on the shared server.
func on(engine testbed.Engine, service func(*testing.T, testbed.Account) *incident) func(*testing.T) *incident {
	return func(t *testing.T) *incident { return service(t, testbed.Shared(t, engine).NewAccount(t)) }
}

// slows are the statements that take as long as the table says.
var slows = map[testbed.Engine]string{testbed.Postgres: "SELECT pg_sleep(s) FROM pace", testbed.MariaDB: "SELECT SLEEP(s) FROM pace"}

// paced is a service whose statements usually take 2 ms.
func paced(t *testing.T, account testbed.Account) *incident {
	i := newIncident(t, account, "pool_max_conns=4")
	i.makePace(0.002)
	i.each(16, "GET /stock", i.waits(slows[account.Server.Engine]))
	i.each(2, "GET /cart", i.waits("SELECT 1"))
	return i
}

func (i *incident) makePace(seconds float64) {
	i.exec("CREATE TABLE pace (s FLOAT)")
	i.exec(fmt.Sprintf("INSERT INTO pace VALUES (%v)", seconds))
}

func slowTo(seconds float64) func(*incident) {
	return func(i *incident) {
		mustExec(i.T, i.account.Witness(i), fmt.Sprintf("UPDATE pace SET s = %v", seconds))
	}
}

// far is a service whose network has a latency.
func far(t *testing.T, account testbed.Account) *incident {
	return usually(t, viaStall(t, account), endless, 6, 4)
}

func latency(d time.Duration) func(*incident) {
	return func(i *incident) { i.proxy().SetLatency(byteproxy.ToClient, d) }
}

// unplug: nothing passes any more, and nobody is told.
func unplug(i *incident) {
	i.proxy().Unplug()
	i.Cleanup(func() { _ = i.proxy().Close() })
}
