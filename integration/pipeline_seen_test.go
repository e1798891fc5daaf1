package integration

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// pipelineCrowd has one connection, and queries that wait for it.
type pipelineCrowd struct {
	c   *pooldriver.Connector
	db  *sql.DB
	log *slowLog
	// acquired, while set, is told of Observer.AcquireDone.
	acquired atomic.Pointer[func(context.Context, pooldriver.AcquireInfo)]
	released atomic.Pointer[pooldriver.ReleaseInfo]
}

type callerKey struct{}

const (
	ofItems = "SELECT n FROM items WHERE id = $1"
	ofStock = "SELECT n FROM stock WHERE id = $1"
)

// openCrowd opens a pool in which ofItems and ofStock are known to be short, and the trial is over.
func openCrowd(t *testing.T, a testbed.Account) *pipelineCrowd {
	t.Helper()
	p := &pipelineCrowd{log: &slowLog{}}
	p.c = pooldriver.New(a.URL("pool_max_conns=1", "pool_pipeline=16", "pool_slow_query=100ms", "pool_sample_stacks=1"), func(c *pooldriver.Config) {
		c.Logger = slog.New(slog.NewJSONHandler(p.log, nil))
		c.Observer = &pooldriver.Observer{
			AcquireDone: func(ctx context.Context, i pooldriver.AcquireInfo) {
				if f := p.acquired.Load(); f != nil {
					(*f)(ctx, i)
				}
			},
			ReleaseDone: func(i pooldriver.ReleaseInfo) { p.released.Store(&i) },
		}
	})
	p.db = sql.OpenDB(p.c)
	t.Cleanup(func() { _ = p.db.Close() })
	for _, table := range []string{"items", "stock"} {
		_, err := p.db.Exec("CREATE TABLE " + table + " AS SELECT i AS id, i AS n FROM generate_series(1, 100) i")
		require.NoError(t, err)
	}
	for _, text := range []string{ofItems, ofStock} {
		for range 40 { // the first ones may have been slow
			require.NoError(t, p.ask(t, text, 1))
		}
	}
	for range 2 { // the first one tries pipelines; then both texts are prepared for them
		p.travel(t, ofItems, ofStock, ofItems)()
	}
	return p
}

func (p *pipelineCrowd) ask(t *testing.T, text string, i int) error {
	ctx := context.WithValue(pooldriver.Label(t.Context(), fmt.Sprint("GET /", i)), callerKey{}, i)
	var n int
	err := p.db.QueryRowContext(ctx, text, i+1).Scan(&n)
	if err == nil && n != i+1 {
		return fmt.Errorf("asked for %d, got %d", i+1, n)
	}
	return err
}

// travel makes each of texts wait, one after the other, and then lets them have the connection. ended waits for
// their answers.
func (p *pipelineCrowd) travel(t *testing.T, texts ...string) (ended func()) {
	t.Helper()
	held, err := p.db.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, held.PingContext(t.Context()))
	var all sync.WaitGroup
	for i, text := range texts {
		all.Go(func() {
			if err := p.ask(t, text, i); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		})
		require.Eventually(t, func() bool { return p.c.Stats().Pool.Waiting == i+1 }, 10*time.Second, 50*time.Microsecond)
	}
	require.NoError(t, held.Close())
	return all.Wait
}

// lock locks a table. unlock ends that.
func lock(t *testing.T, a testbed.Account, table string) (unlock func()) {
	t.Helper()
	tx, err := a.Witness(t).BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.Exec("LOCK TABLE " + table)
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback()) }
}

// TestQueriesOfAPipelineAreCountedAndHeard: each once, with its own label, context and place in the program.
func TestQueriesOfAPipelineAreCountedAndHeard(t *testing.T) {
	t.Parallel()
	p := openCrowd(t, testbed.Shared(t, testbed.Postgres).NewAccount(t))
	var mu sync.Mutex
	var heard []string
	var following, queued int
	listener := func(ctx context.Context, i pooldriver.AcquireInfo) {
		if ctx.Value(callerKey{}) == nil {
			return // it is the connection for which the others wait
		}
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, fmt.Sprint(i.Label, " of ", ctx.Value(callerKey{}), " pipelined ", i.Pipelined, " waited ", i.Wait > 0, " ", i.Err))
		if i.Pipelined {
			return
		}
		for _, w := range p.c.Waiters() { // the trip is about to begin
			if w.Follows {
				following++
			} else {
				queued++
			}
		}
	}
	before, sites := p.c.Stats(), taken(p.c)
	p.acquired.Store(&listener)
	p.travel(t, ofItems, ofStock, ofItems, ofStock, ofItems)()
	after := p.c.Stats()
	require.ElementsMatch(t, []string{
		"GET /0 of 0 pipelined false waited true <nil>",
		"GET /1 of 1 pipelined true waited true <nil>",
		"GET /2 of 2 pipelined true waited true <nil>",
		"GET /3 of 3 pipelined true waited true <nil>",
		"GET /4 of 4 pipelined true waited true <nil>",
	}, heard)
	require.Equal(t, 4, following)
	require.Zero(t, queued)
	require.EqualValues(t, 4, after.Pipelined-before.Pipelined)
	require.EqualValues(t, 1, after.Pool.Pipelines-before.Pool.Pipelines)
	require.EqualValues(t, before.PipelineRepeats, after.PipelineRepeats)
	require.EqualValues(t, 2, after.Pool.Acquires-before.Pool.Acquires, "the leader's, and the one for which it waited")
	require.EqualValues(t, 6, after.Wait.Count-before.Wait.Count)
	require.Zero(t, after.BufferedBytes)
	require.EqualValues(t, 6, taken(p.c)-sites)
	for _, s := range p.c.CallSites() {
		require.True(t, strings.HasSuffix(s.Stack[0].File, "_test.go"), s.Stack)
	}
	require.Eventually(t, func() bool { return p.released.Load().Label == "GET /0" }, 10*time.Second, time.Millisecond)
	require.EqualValues(t, 5, p.released.Load().Statements)
	require.Less(t, p.released.Load().IdlePinned, p.released.Load().Held+time.Nanosecond)
	history := p.c.History()
	require.EqualValues(t, after.Pipelined, history[len(history)-1].Pipelined)
}

// taken is how many connections and pipelined queries the places of the program have had.
func taken(c *pooldriver.Connector) (n uint64) {
	for _, s := range c.CallSites() {
		n += s.Count
	}
	return n
}

// TestWhoIsWaitedForInAPipelineIsShown: it is the query whose answer comes next, as the server sees it. Those that
// went on elsewhere are counted, and only the slow one is logged.
func TestWhoIsWaitedForInAPipelineIsShown(t *testing.T) {
	t.Parallel()
	a := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	p := openCrowd(t, a)
	before := p.c.Stats()
	unlock := lock(t, a, "stock")
	ended := p.travel(t, ofItems, ofItems, ofStock, ofItems, ofItems)
	require.Eventually(t, func() bool {
		h := p.c.Holders()
		return len(h) == 1 && h[0].Label == "GET /2" && h[0].RunningFor > 150*time.Millisecond
	}, 10*time.Second, time.Millisecond)
	h := p.c.Holders()[0]
	require.Equal(t, ofStock, h.Statement)
	require.Equal(t, 2, h.Following)
	require.EqualValues(t, 3, h.Statements)
	require.True(t, h.Running)
	var asServerSees string
	require.NoError(t, a.Witness(t).QueryRow("SELECT query FROM pg_stat_activity WHERE pid = $1", h.ProcessID).Scan(&asServerSees))
	require.Equal(t, ofStock, asServerSees)
	require.EqualValues(t, 2, p.c.Stats().Pool.Waiting, "they went back to the queue")
	unlock()
	ended()
	after := p.c.Stats()
	require.EqualValues(t, 2, after.PipelineRepeats-before.PipelineRepeats)
	require.EqualValues(t, 3, after.Pipelined-before.Pipelined, "two in the first pipeline, and one in the second")
	require.Eventually(t, func() bool { return len(p.log.lines(t)) > 0 }, 10*time.Second, time.Millisecond)
	lines := p.log.lines(t)
	require.Len(t, lines, 1)
	require.Equal(t, []any{ofStock, "GET /2"}, []any{lines[0].Statement, lines[0].Label})
	require.Greater(t, lines[0].Took, 140*time.Millisecond)
	require.Less(t, lines[0].Wait, lines[0].Took)
}
