package integration

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/randomtest"
)

// TestRandomProgramsDoWhatTheyDoOverTheBareDriver runs programs from a seed over the bare
// driver and through us, with the server as witness: every acknowledged write is in the
// schema that was meant, exactly once; nobody sees the state of a stranger; locks exclude;
// the server has no more sessions than it may. Over the bare driver a program puts back by
// hand what it has set, because nobody else would.
func TestRandomProgramsDoWhatTheyDoOverTheBareDriver(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		seed := randomtest.Seed(t)
		w := newWorld(t, account)
		end := time.Now().Add(time.Duration(randomtest.Rounds(20, 900)) * time.Second)
		programs := 0
		for ; time.Now().Before(end); programs++ {
			p := randomProgram(seed + uint64(programs))
			for _, ours := range []bool{false, true} {
				w.run(t, p, ours)
			}
		}
		t.Logf("%d programs, each twice, %.1f a second", programs, float64(programs)/float64(randomtest.Rounds(20, 900)))
	})
}

// program is what goroutines do at the same time.
type program struct {
	seed    uint64
	max     int
	wrap    bool
	tasks   string // "none", "implicit" or "explicit"
	rough   bool   // with cancels and kills: then statements may fail
	workers [][]action
}

// action is one thing that a worker does.
type action struct {
	kind   string
	writes int
	elsewhere,
	commits, // or rolls back
	slow, // rows stay open while others wait
	untidy bool // state or a transaction is left to us
}

var kinds = []string{"write", "conn", "returning", "lock", "tx", "by hand", "nested", "slow rows", "first rows", "begin on db", "flush"}

func randomProgram(seed uint64) program {
	r := rand.New(rand.NewPCG(seed, seed))
	chance := func() bool { return r.IntN(2) == 0 }
	p := program{
		seed: seed, max: 1 + r.IntN(10), wrap: chance(), rough: r.IntN(4) == 0,
		tasks: []string{"none", "implicit", "explicit"}[r.IntN(3)],
	}
	for range 1 + r.IntN(8) {
		var actions []action
		for range 1 + r.IntN(6) {
			a := action{
				kind: kinds[r.IntN(len(kinds))], writes: 1 + r.IntN(3),
				elsewhere: chance(), commits: chance(), slow: r.IntN(4) == 0, untidy: chance(),
			}
			if p.rough && r.IntN(4) == 0 {
				a.kind = []string{"cancel", "kill"}[r.IntN(2)]
			}
			actions = append(actions, a)
		}
		p.workers = append(p.workers, actions)
	}
	return p
}

// world is an account with two schemas, own and elsewhere, and one table in each.
type world struct {
	stage
	own     string
	other   string
	returns bool // the server has INSERT … RETURNING
}

func newWorld(t *testing.T, account testbed.Account) *world {
	s := serverStage(t, account)
	w := &world{
		stage: s, own: s.say("public", account.Database, ""), other: elsewhere(t, account),
		returns: account.Server.Engine != testbed.OracleMySQL,
	}
	for _, schema := range []string{w.own, w.other} {
		mustExec(t, w.witness, fmt.Sprintf("CREATE TABLE %s.writes (id BIGINT PRIMARY KEY)", schema))
		if account.Server.Engine == testbed.Postgres {
			mustExec(t, w.witness, fmt.Sprintf("GRANT ALL ON %s.writes TO PUBLIC", schema))
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
	if !ours {
		return w.account.OpenBare(t), nil
	}
	options := []pooldriver.Option{quiet, pooldriver.WithTaskKey(keyOfProgram), func(c *pooldriver.Config) {
		c.MaxConns, c.AcquireTimeout = p.max, 30*time.Second
	}}
	c := pooldriver.New(w.account.URL(), options...)
	if p.wrap {
		c = pooldriver.Wrap(connectorOf(t, w.account), options...)
	}
	return sql.OpenDB(c), c
}

// run executes a program and asks the server what has come of it.
func (w *world) run(t *testing.T, p program, ours bool) {
	t.Helper()
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
	if n := watch.Stop().Backends; ours && n > x.most() {
		x.fail(action{}, "%d sessions", n)
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
	inside atomic.Int32 // of the section that a lock of the server guards
	mu     sync.Mutex   // protects told
	told   map[int64]written
}

func (x *execution) String() string {
	return fmt.Sprintf("seed %d, ours %v: max %d, wrap %v, tasks %s, rough %v", x.seed, x.ours, x.max, x.wrap, x.tasks, x.rough)
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
	if x.rough {
		return x.max + 2 // until the server has ended what was killed
	}
	return x.max
}

// check compares what the program was told with what is stored.
func (x *execution) check() {
	x.Helper()
	there := map[string]map[int64]bool{x.own: {}, x.other: {}}
	for schema, ids := range there {
		rows, err := x.witness.Query(fmt.Sprintf("SELECT id FROM %s.writes", schema))
		require.NoError(x, err)
		found, err := scanned[int64](rows)
		require.NoError(x, err)
		for _, id := range found {
			ids[id] = true
		}
	}
	for id, w := range x.told {
		wrong := x.own
		if w.schema == x.own {
			wrong = x.other
		}
		switch {
		case there[wrong][id]:
			x.fail(w.by, "write %d is in %s", id, wrong)
		case w.fate == stored && !there[w.schema][id]:
			x.fail(w.by, "write %d was acknowledged and is lost", id)
		case w.fate == absent && there[w.schema][id]:
			x.fail(w.by, "write %d was rolled back and is there", id)
		}
	}
	require.False(x, x.Failed())
}
