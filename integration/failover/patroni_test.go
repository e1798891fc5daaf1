package failover

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/failover/ledger"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// onPatroni are programs that work on one cluster at the same time, each with an account of its own: by the
// list of hosts, through HAProxy, and with reads on the standbys; and the first two by the bare driver.
type onPatroni struct {
	*testbed.Patroni
	programs []*program
}

// program is one of them.
type program struct {
	name    string
	account testbed.Account
	peer    *program // the same by the bare driver; nil: it is bare
	read    bool     // on a standby what was just written
	load    *load
	events  []event
	before  int64 // its failures before the event

	mu    sync.Mutex  // protects following fields
	stale []time.Time // reads on a standby that did not show what the same task had committed before
	reads int
}

// event is what was seen of one.
type event struct {
	name   string
	served time.Time // when the new leader was seen to take writes
	failed int64     // transfers that were given up, until all servers were back
}

// Few tasks, with a rest after each transfer, and a longer one after an error: five programs and six
// servers share the machine's processors, and each login of the bare driver asks up to three servers.
const (
	patroniTasks = 3
	patroniRest  = 20 * time.Millisecond
	afterError   = 200 * time.Millisecond

	// patroniSettles is what the test waits for: on a busy machine Patroni needs more than one round.
	patroniSettles = 3 * time.Minute
)

func startOnPatroni(t *testing.T) *onPatroni {
	t.Helper()
	if !randomtest.Long() {
		t.Skip("in the long form alone: on a busy machine the cluster itself does not come back")
	}
	if !testbed.HasPatroni() {
		t.Skip("no image of Patroni, which \"make images LONG=1\" builds from Debian's packages")
	}
	p := &onPatroni{Patroni: testbed.StartPatroni(t)}
	hosts, proxy := p.startBare(t, "bare pgx, hosts", ""), p.startBare(t, "bare pgx, HAProxy", p.Proxy)
	p.startOurs(t, &program{name: "hosts", peer: hosts}, "")
	p.startOurs(t, &program{name: "HAProxy", peer: proxy}, p.Proxy)
	p.startOurs(t, &program{name: "replicas", peer: hosts, read: true}, "", "pool_replicas=auto")
	for _, g := range p.programs {
		g.load.waitFor(t, time.Now(), patroniSettles)
	}
	return p
}

// account makes an account with a ledger, which is reached through via, or at all hosts.
func (p *onPatroni) account(t *testing.T, via string) testbed.Account {
	t.Helper()
	a := p.NewAccount(t)
	create(t, a.On(p.Leader(t)))
	if via != "" {
		a = a.Via(via)
	}
	return a
}

func (p *onPatroni) startBare(t *testing.T, name, via string) *program {
	t.Helper()
	g := &program{name: name, account: p.account(t, via)}
	db := g.account.OpenBare(t, "target_session_attrs=read-write", "connect_timeout=8")
	db.SetMaxOpenConns(patroniTasks)
	db.SetMaxIdleConns(patroniTasks)
	p.start(t, g, db, byHand)
	return g
}

func (p *onPatroni) startOurs(t *testing.T, g *program, via string, parameters ...string) {
	t.Helper()
	g.account = p.account(t, via)
	c := pooldriver.New(g.account.URL(append(parameters, "target_session_attrs=read-write", "pool_connect_timeout=8s", fmt.Sprintf("pool_max_conns=%d", patroniTasks))...), logged(t))
	db := sql.OpenDB(c)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	how := inTask
	if g.read {
		how = g.readingBack
	}
	p.start(t, g, db, how)
}

func (p *onPatroni) start(t *testing.T, g *program, db *sql.DB, how transferrer) {
	t.Helper()
	g.load = startTasks(t, patroniTasks, func(ctx context.Context, l *load, transfer ledger.Transfer, committing *bool) error {
		err := how(ctx, l, transfer, committing)
		if time.Sleep(patroniRest); err != nil {
			time.Sleep(afterError)
		}
		return err
	}, db, ledger.Dollar, 8*time.Second)
	p.programs = append(p.programs, g)
}

// byHand makes a transfer as a program of the bare driver does.
func byHand(ctx context.Context, l *load, transfer ledger.Transfer, committing *bool) error {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := transfer.Apply(ctx, l.mark, tx); err != nil {
		return err
	}
	*committing = true
	return tx.Commit()
}

// readingBack makes a transfer, and reads it on a standby in the same task.
func (g *program) readingBack(ctx context.Context, l *load, transfer ledger.Transfer, committing *bool) error {
	ctx, end := pooldriver.WithTask(ctx)
	defer end()
	err := inTask(ctx, l, transfer, committing)
	if err != nil {
		return err
	}
	var entries int
	if l.db.QueryRowContext(pooldriver.Replica(ctx), "SELECT count(*) FROM entries WHERE transfer = $1", transfer.ID).Scan(&entries) == nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.reads++
		if entries != 2 {
			g.stale = append(g.stale, time.Now())
		}
	}
	return nil
}

// strike has something happen to the leader. When another server takes writes, and all programs are
// served that are ours, restore brings the former leader back.
func (p *onPatroni) strike(t *testing.T, name string, strike func(leader *testbed.Server), restore func(former *testbed.Server)) {
	t.Helper()
	p.WaitStandbys(t) // the programs' last wait may have seen Patroni choose another one
	former := p.Leader(t)
	for _, g := range p.programs {
		g.before = g.load.failed.Load()
	}
	struck := time.Now()
	strike(former)
	served := p.takesWrites(t, p.Leader(t, former))
	t.Logf("%s: another server took writes after %v", name, served.Sub(struck).Round(time.Millisecond))
	for _, g := range p.programs {
		if g.peer != nil { // the bare driver asks a server that stands still first, until its deadline, again and again
			g.load.waitFor(t, served, patroniSettles)
		}
	}
	restore(former)
	p.WaitStandbys(t)
	for _, g := range p.programs {
		g.load.waitFor(t, time.Now(), patroniSettles)
		g.events = append(g.events, event{name, served, g.load.failed.Load() - g.before})
	}
	t.Logf("%s: all were back after %v", name, time.Since(struck).Round(time.Millisecond))
}

// takesWrites returns when a server has acknowledged a commit.
func (p *onPatroni) takesWrites(t *testing.T, s *testbed.Server) time.Time {
	t.Helper()
	admin, err := s.Admin()
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := admin.ExecContext(t.Context(), "CREATE TABLE IF NOT EXISTS witness (); DROP TABLE witness")
		return err == nil
	}, patroniSettles, pause)
	return time.Now()
}

// TestACommitSurvivesWhatPatroniDoes strikes the leader of a cluster again and again. In the long form each
// event comes three times.
func TestACommitSurvivesWhatPatroniDoes(t *testing.T) {
	p := startOnPatroni(t)
	var woken []time.Time
	for range randomtest.Rounds(1, 3) {
		p.strike(t, "switchover", func(leader *testbed.Server) { p.SwitchOver(t, leader) }, func(*testbed.Server) {})
		p.strike(t, "killed", func(leader *testbed.Server) { leader.Kill(t) }, func(former *testbed.Server) { former.Start(t) })
		p.strike(t, "paused", func(leader *testbed.Server) { leader.Pause(t) }, func(former *testbed.Server) {
			former.Wake(t)
			woken = append(woken, time.Now())
			time.Sleep(3 * time.Second) // until Patroni has noticed
		})
		var reunite func()
		p.strike(t, "fenced", func(leader *testbed.Server) { reunite = p.Fence(t, leader) }, func(*testbed.Server) { reunite() })
	}
	leader := p.Leader(t)
	within := onThisMachine(t, p.programs[0].account.On(leader))
	for _, g := range p.programs {
		g.load.end()
	}
	for _, g := range p.programs {
		g.judge(t, leader, within, woken)
	}
}

// judge compares what a program was told with what the servers have, and with what the bare driver was told.
func (g *program) judge(t *testing.T, leader *testbed.Server, within time.Duration, woken []time.Time) {
	t.Helper()
	t.Logf("%s:", g.name)
	o := g.load.outcome()
	o.requireKept(t, g.account.On(leader).Witness(t))
	var failed, peers int64
	for i, e := range g.events {
		first, all := g.load.back(e.served)
		t.Logf("%s, %s: the first commit %v after the new leader took writes, all %d tasks %v; %d errors",
			g.name, e.name, first.Round(time.Millisecond), patroniTasks, all.Round(time.Millisecond), e.failed)
		if g.peer != nil {
			assert.Less(t, first, within, "%s, %s", g.name, e.name)
			failed, peers = failed+e.failed, peers+g.peer.events[i].failed
		}
	}
	if g.peer == nil {
		return
	}
	// The programs meet an event at different moments, and a busy machine delays one more than another.
	assert.LessOrEqual(t, failed, peers*5/4+int64(patroniTasks*len(g.events)), "errors of %s, and of %s", g.name, g.peer.name)
	assert.LessOrEqual(t, o.errors["25006"], len(g.events), "writes of %s on a former leader that had refused one", g.name)
	t.Logf("%s: %d reads of what was just written, %d stale", g.name, g.reads, len(g.stale))
	if g.read {
		assert.NotZero(t, g.reads)
	}
	for _, at := range g.stale {
		// A leader that wakes says for a moment that it is the leader.
		assert.True(t, slices.ContainsFunc(woken, func(w time.Time) bool { return at.Sub(w).Abs() < time.Second }), "a stale read at %v", at)
	}
}
