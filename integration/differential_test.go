package integration

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// TestRandomProgramsDoWhatTheyDoOverTheBareDriver runs programs from a seed over the bare
// driver and through us, with the server as witness: every acknowledged write is in the
// schema that was meant, exactly once; nobody sees the state of a stranger; locks exclude;
// the server has no more sessions than it may. Over the bare driver a program puts back by
// hand what it has set, because nobody else would.
func TestRandomProgramsDoWhatTheyDoOverTheBareDriver(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		seed, seconds := randomtest.Seed(t), randomtest.Rounds(8, 900)
		w := newWorld(t, account)
		end := time.Now().Add(time.Duration(seconds) * time.Second)
		programs := 0
		for ; time.Now().Before(end); programs++ {
			p := randomProgram(seed + uint64(programs))
			for _, ours := range []bool{false, true} {
				w.run(t, p, ours)
			}
		}
		t.Logf("%d programs, each twice, %.1f a second", programs, float64(programs)/float64(seconds))
	})
}

// TestRandomProgramsOnReplicasDoWhatTheyDoOverTheBareDriver runs such programs where reads go to replicas that
// stand still from time to time.
func TestRandomProgramsOnReplicasDoWhatTheyDoOverTheBareDriver(t *testing.T) {
	t.Parallel()
	for _, engine := range []testbed.Engine{testbed.Postgres, testbed.MariaDB} {
		t.Run(engine.String(), func(t *testing.T) {
			t.Parallel()
			seed, seconds := randomtest.Seed(t), randomtest.Rounds(6, 600)
			set := testbed.StartReplicaSet(t, engine)
			w := newWorld(t, set.NewAccount(t))
			for _, s := range set.Replicas {
				w.replicas = append(w.replicas, s.Addr)
			}
			set.CatchUp(t)
			defer holdNowAndThen(t, set, seed)()
			end := time.Now().Add(time.Duration(seconds) * time.Second)
			programs := 0
			served := func() bool { return w.reads[pooldriver.ReplicaServed]+w.reads[pooldriver.ReplicaWaited] > 0 }
			for ; time.Now().Before(end) || !served() && time.Now().Before(end.Add(slowMachine)); programs++ {
				p := randomProgram(seed + uint64(programs))
				p.wrap = false // there are no replicas through Wrap
				for _, ours := range []bool{false, true} {
					w.run(t, p, ours)
				}
			}
			t.Logf("%d programs, each twice; reads: %v", programs, w.reads)
			require.True(t, served())
		})
	}
}

// holdNowAndThen has the replicas stand still now and then, until the returned function is called.
func holdNowAndThen(t *testing.T, set *testbed.ReplicaSet, seed uint64) (end func()) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			s := set.Replicas[r.IntN(len(set.Replicas))]
			_ = s.Hold(ctx)
			time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
			_ = s.Release(context.WithoutCancel(ctx))
			time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
		}
	})
	return func() {
		cancel()
		all.Wait()
	}
}

// program is what goroutines do at the same time.
type program struct {
	seed     uint64
	max      int
	wrap     bool
	tasks    string // "none", "implicit" or "explicit"
	ambient  pooldriver.AmbientMode
	rough    bool // with cancels, kills if kills, failing dials if flaky: then statements may fail
	kills    bool
	flaky    bool
	room     int // of the server, for us; 0: enough
	pipeline int // pool_pipeline
	reads    pooldriver.ReadsMode
	workers  [][]action
}

// action is one thing that a worker does.
type action struct {
	kind   string
	writes int
	elsewhere,
	commits, // or rolls back
	slow, // rows stay open while others wait
	untidy, // state or a transaction is left to us
	together bool // two goroutines of one explicit task do it at once
}

var (
	kinds = []string{
		"write", "prepared", "returning", "nested", "slow rows", "tx", "hot row", "begin on db", "flush",
		"crowd", "own reads",
		"conn", "first rows", "temporary", "last id", "lock", "by hand", // on a *sql.Conn
	}
	// What goroutines that share a session may do at once: it sets no state, and no
	// transaction that one of them rolls back is the other's.
	shareable = []string{"write", "prepared", "returning", "nested", "slow rows"}
)

func randomProgram(seed uint64) program {
	r := rand.New(rand.NewPCG(seed, seed))
	chance := func() bool { return r.IntN(2) == 0 }
	p := program{
		seed: seed, max: 1 + r.IntN(10), wrap: chance(), rough: r.IntN(4) == 0,
		tasks: []string{"none", "implicit", "explicit"}[r.IntN(3)], kills: chance(),
	}
	if p.tasks == "explicit" {
		p.ambient = pooldriver.AmbientMode(r.IntN(4))
	}
	meet := r.IntN(4) == 0 // all workers begin at the hot row
	for range 1 + r.IntN(8) {
		var actions []action
		for range 1 + r.IntN(6) {
			a := action{
				kind: kinds[r.IntN(len(kinds))], writes: 1 + r.IntN(3),
				elsewhere: chance(), commits: chance(), slow: r.IntN(4) == 0, untidy: chance(),
			}
			if meet && len(actions) == 0 {
				a.kind = "hot row"
			}
			a.together = p.tasks == "explicit" && chance() && slices.Contains(shareable, a.kind)
			if p.rough && r.IntN(4) == 0 {
				a.kind = "cancel"
				if p.kills && chance() {
					a.kind = "kill"
				}
			}
			actions = append(actions, a)
		}
		p.workers = append(p.workers, actions)
	}
	p.flaky = p.rough && chance()
	if r.IntN(5) == 0 {
		p.room = 1 + r.IntN(p.max)
	}
	if chance() {
		p.pipeline = 16
	}
	p.reads = pooldriver.ReadsMode(r.IntN(3))
	return p
}

// world is an account with two schemas, own and elsewhere, and in each a table for ids. It
// has no key: an id that is stored twice is to be seen.
type world struct {
	stage
	reset   testbed.Account // by an address where three dials of ten fail
	own     string
	other   string
	returns bool // the server has INSERT … RETURNING

	replicas []string                          // none: all reads are on the primary
	reads    map[pooldriver.ReplicaRead]uint64 // of all programs
}

func newWorld(t *testing.T, account testbed.Account) *world {
	s := serverStage(t, account)
	w := &world{
		stage: s, own: s.say("public", account.Database, ""), other: elsewhere(t, account),
		returns: account.Server.Engine != testbed.OracleMySQL, reads: map[pooldriver.ReplicaRead]uint64{},
	}
	_, address := newLottery(t, account.Addr, 30)
	w.reset = account.Via(address)
	for _, schema := range []string{w.own, w.other} {
		mustExec(t, w.witness, fmt.Sprintf("CREATE TABLE %s.writes (id BIGINT)", schema))
	}
	mustExec(t, w.witness, fmt.Sprintf("CREATE TABLE %s.hot (n BIGINT)", w.own))
	mustExec(t, w.witness, fmt.Sprintf("INSERT INTO %s.hot VALUES (0)", w.own))
	mustExec(t, w.witness, fmt.Sprintf("CREATE TABLE %s.numbered (%s, id BIGINT)", w.own, w.say("n BIGSERIAL", "n BIGINT AUTO_INCREMENT PRIMARY KEY")))
	if account.Server.Engine == testbed.Postgres {
		for _, schema := range []string{w.own, w.other} {
			mustExec(t, w.witness, fmt.Sprintf("GRANT ALL ON ALL TABLES IN SCHEMA %s TO PUBLIC", schema))
			mustExec(t, w.witness, fmt.Sprintf("GRANT ALL ON ALL SEQUENCES IN SCHEMA %s TO PUBLIC", schema))
		}
	}
	return w
}

// say is the stage's, where the database is a server.
func (w *world) say(postgres, mysql string) string { return w.stage.say(postgres, mysql, "") }

// taskOfProgram is where a context has the key of its implicit task.
type taskOfProgram struct{}

func keyOfProgram(ctx context.Context) (any, context.Context) {
	if lifetime, ok := ctx.Value(taskOfProgram{}).(context.Context); ok {
		return lifetime, lifetime
	}
	return nil, nil
}

// openAs returns a handle. Over the bare driver it has connections enough: nothing is taken
// back from rows there.
func (w *world) openAs(t *testing.T, p program, ours bool) (*sql.DB, *pooldriver.Connector) {
	t.Helper()
	account := w.account
	if p.flaky {
		account = w.reset
	}
	if !ours {
		return account.OpenBare(t), nil
	}
	options := []pooldriver.Option{quiet, func(c *pooldriver.Config) { c.TaskKey = keyOfProgram }, func(c *pooldriver.Config) {
		c.MaxConns, c.AcquireTimeout, c.Ambient = p.max, slowMachine, p.ambient
		if account.Server.Engine == testbed.Postgres {
			c.Pipeline = p.pipeline
		}
		c.Replicas, c.ReplicaMaxConns, c.ReplicaReads = w.replicas, p.max, p.reads
	}}
	c := pooldriver.New(account.URL(), options...)
	if p.wrap {
		c = pooldriver.Wrap(connectorOf(t, account), options...)
	}
	return sql.OpenDB(c), c
}

// run executes a program and asks the server what has come of it.
func (w *world) run(t *testing.T, p program, ours bool) {
	t.Helper()
	// The bare program has as many connections as it likes. Through Wrap go-sql-driver waits for nobody
	// when it closes one, so the server may still count it.
	if ours && p.room > 0 && !(p.wrap && w.account.Server.Engine != testbed.Postgres) {
		w.account.LimitConnections(t, p.room)
		defer w.account.LimitConnections(t, 1000)
		time.Sleep(200 * time.Millisecond) // a session that is not shown any more counts for a moment
	}
	db, connector := w.openAs(t, p, ours)
	x := &execution{T: t, world: w, program: p, ours: ours, db: db, connector: connector, told: map[int64]written{}}
	request, end := context.WithCancel(t.Context())
	x.request = context.WithValue(t.Context(), taskOfProgram{}, request)
	watch := w.account.Watch(t)
	var all sync.WaitGroup
	for _, actions := range p.workers {
		all.Go(func() {
			for _, a := range actions {
				x.do(a)
			}
		})
	}
	all.Wait()
	end()
	// MySQL's cancelled statements are killed by connections of their own. Where these fail as
	// well, nobody knows when the session has ended.
	if n := watch.Stop().Backends; ours && !p.flaky && n > x.most() {
		x.fail(action{}, "%d sessions", n)
	}
	if ours {
		for outcome, n := range connector.Stats().Replica.Reads {
			w.reads[outcome] += n
		}
	}
	require.NoError(t, db.Close())
	require.Eventually(t, func() bool { // else the next run counts them
		n, _, err := w.account.Backends(t.Context())
		return err == nil && n == 0
	}, 20*time.Second, time.Millisecond, "%s: sessions stay", x)
	x.check()
	for _, schema := range []string{w.own, w.other} {
		mustExec(t, w.witness, fmt.Sprintf("DELETE FROM %s.writes", schema))
	}
	mustExec(t, w.witness, fmt.Sprintf("DELETE FROM %s.numbered", w.own))
	mustExec(t, w.witness, fmt.Sprintf("UPDATE %s.hot SET n = 0", w.own))
}

// written is a write that a program has made.
type written struct {
	schema string
	fate   fate
	by     action
}

// execution is one run of a program.
type execution struct {
	*testing.T
	*world
	program
	ours      bool
	db        *sql.DB
	connector *pooldriver.Connector
	request   context.Context // of the implicit task

	ids    atomic.Int64
	hot    atomic.Int64 // changes of the hot row that were committed
	inside atomic.Int32 // of the section that a lock of the server guards
	mu     sync.Mutex   // protects told
	told   map[int64]written
}

func (x *execution) String() string {
	text := fmt.Sprintf("seed %d, ours %v: max %d, wrap %v, tasks %s, ambient %v, rough %v, kills %v, flaky %v, room %d, pipeline %d", x.seed, x.ours, x.max, x.wrap, x.tasks, x.ambient, x.rough, x.kills, x.flaky, x.room, x.pipeline)
	for _, actions := range x.workers {
		text += fmt.Sprintf("\n\t%+v", actions)
	}
	return text
}

func (x *execution) fail(a action, format string, arguments ...any) {
	x.Errorf("%s\n%+v\n%s", x, a, fmt.Sprintf(format, arguments...))
}

// expect reports an error that a program without cancels and kills cannot have.
func (x *execution) expect(a action, err error) bool {
	if err != nil && !x.rough {
		x.fail(a, "%v", err)
	}
	return err == nil
}

func (x *execution) record(a action, id int64, schema string, f fate) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.told[id] = written{schema, f, a}
}

// schema is where a's writes go.
func (x *execution) schema(a action) string {
	if a.elsewhere {
		return x.other
	}
	return x.own
}

// most is how many sessions the server may have of the program.
func (x *execution) most() int {
	if x.wrap && x.account.Server.Engine != testbed.Postgres {
		return 2*x.max + 2 // go-sql-driver waits for nobody, and each connection may have been cancelled or flushed
	}
	if x.rough || x.account.Server.Engine != testbed.Postgres {
		return x.max + 2 // until the server has ended what was killed, or closed
	}
	return x.max
}

// check compares what the program was told with what is stored.
func (x *execution) check() {
	x.Helper()
	there := map[string]map[int64]int{x.own: {}, x.other: {}}
	for schema, times := range there {
		rows, err := x.witness.Query(fmt.Sprintf("SELECT id FROM %s.writes", schema))
		require.NoError(x, err)
		found, err := scanned[int64](rows)
		require.NoError(x, err)
		for _, id := range found {
			times[id]++
		}
	}
	for id, w := range x.told {
		wrong := x.own
		if w.schema == x.own {
			wrong = x.other
		}
		switch {
		case there[wrong][id] > 0:
			x.fail(w.by, "write %d is in %s", id, wrong)
		case there[w.schema][id] > 1:
			x.fail(w.by, "write %d was executed %d times", id, there[w.schema][id])
		case w.fate == stored && there[w.schema][id] == 0:
			x.fail(w.by, "write %d was acknowledged and is lost", id)
		case w.fate == absent && there[w.schema][id] > 0:
			x.fail(w.by, "write %d was rolled back and is there", id)
		}
	}
	var hot int64
	require.NoError(x, x.witness.QueryRow(fmt.Sprintf("SELECT n FROM %s.hot", x.own)).Scan(&hot))
	if hot < x.hot.Load() || hot > x.hot.Load() && !x.rough {
		x.fail(action{}, "%d changes of the hot row were acknowledged, %d are there", x.hot.Load(), hot)
	}
	require.False(x, x.Failed())
}
