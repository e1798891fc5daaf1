package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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

// mostTries: a machine that stands still for 20 ms lets queries go back to the queue, and makes a text slow.
const mostTries = 20

// openCrowd opens a pool in which ofItems and ofStock may be pipelined.
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
		_, err := p.db.Exec("CREATE TABLE IF NOT EXISTS " + table + " AS SELECT i AS id, i AS n FROM generate_series(1, 100) i")
		require.NoError(t, err)
	}
	p.prepare(t)
	return p
}

// prepare makes both texts ready: it tries pipelines, prepares the texts, and lets slow ones run alone.
func (p *pipelineCrowd) prepare(t *testing.T) {
	t.Helper()
	for _, text := range []string{ofItems, ofStock} {
		for before := p.c.Stats().Pipelined; p.c.Stats().Pipelined == before; {
			p.together(t, text, text)()
		}
	}
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

// together makes each of texts wait, one after the other, and then lets them have the connection. ended waits for
// their answers.
func (p *pipelineCrowd) together(t *testing.T, texts ...string) (ended func()) {
	t.Helper()
	var asks []func() error
	for i, text := range texts {
		asks = append(asks, func() error { return p.ask(t, text, i) })
	}
	return p.inLine(t, asks...)
}

// inLine is together for any questions.
func (p *pipelineCrowd) inLine(t *testing.T, asks ...func() error) (ended func()) {
	t.Helper()
	held, err := p.db.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, held.PingContext(t.Context()))
	var all sync.WaitGroup
	for i, ask := range asks {
		all.Go(func() {
			if err := ask(); err != nil {
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
	p := openCrowd(t, testbed.Shared(t, testbed.Postgres).NewAccount(t))
	var mu sync.Mutex
	var heard []string
	var following, queued int
	var waited time.Duration // of followers
	listener := func(ctx context.Context, i pooldriver.AcquireInfo) {
		if ctx.Value(callerKey{}) == nil {
			return // it is the connection for which the others wait
		}
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, fmt.Sprint(i.Label, " of ", ctx.Value(callerKey{}), " pipelined ", i.Pipelined, " ", i.Err))
		if i.Pipelined {
			waited += i.Wait
			return
		}
		for _, w := range p.c.Waiters() { // the pipeline is about to begin
			if w.Follows {
				following++
			} else {
				queued++
			}
		}
	}
	p.acquired.Store(&listener)
	var before, after pooldriver.Stats
	var sites uint64
	for range mostTries {
		p.prepare(t)
		heard, following, queued = nil, 0, 0
		before, sites = p.c.Stats(), taken(p.c)
		p.together(t, ofItems, ofStock, ofItems, ofStock, ofItems)()
		if after = p.c.Stats(); after.Pool.Acquires-before.Pool.Acquires == 2 && after.PipelineRepeats == before.PipelineRepeats {
			break
		}
	}
	require.ElementsMatch(t, []string{
		"GET /0 of 0 pipelined false <nil>",
		"GET /1 of 1 pipelined true <nil>",
		"GET /2 of 2 pipelined true <nil>",
		"GET /3 of 3 pipelined true <nil>",
		"GET /4 of 4 pipelined true <nil>",
	}, heard)
	require.Equal(t, 4, following)
	require.Positive(t, waited)
	require.Less(t, waited, 4*after.Wait.Sum)
	require.Zero(t, queued)
	require.EqualValues(t, 4, after.Pipelined-before.Pipelined)
	require.EqualValues(t, 1, after.Pool.Pipelines-before.Pool.Pipelines)
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
	a := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	var p *pipelineCrowd
	var h pooldriver.Holder
	var before pooldriver.Stats
	var unlock, ended func()
	logged := 0
	for range mostTries {
		p = openCrowd(t, a)
		logged = len(p.log.lines(t)) // by a server that was slow before
		before = p.c.Stats()
		unlock = lock(t, a, "stock")
		ended = p.together(t, ofItems, ofItems, ofStock, ofItems, ofItems)
		require.Eventually(t, func() bool {
			all := p.c.Holders()
			if len(all) == 1 {
				h = all[0]
			}
			return len(all) == 1 && h.RunningFor > 500*time.Millisecond
		}, 10*time.Second, time.Millisecond)
		if h.Label == "GET /2" && h.Following == 2 && h.Statements == 3 {
			break
		}
		unlock()
		ended()
	}
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
	require.GreaterOrEqual(t, p.c.Stats().PipelineRepeats-before.PipelineRepeats, uint64(2))
	require.GreaterOrEqual(t, p.c.Stats().Pipelined-before.Pipelined, uint64(2), "before the slow one, and that")
	slow := func() (all []slowLine) {
		return slices.DeleteFunc(p.log.lines(t)[logged:], func(l slowLine) bool { return l.Took < 480*time.Millisecond })
	}
	ofSlow := func(l slowLine) bool { return l.Statement == ofStock && l.Label == "GET /2" && l.Wait < l.Took }
	require.Eventually(t, func() bool { return slices.ContainsFunc(slow(), ofSlow) }, 10*time.Second, time.Millisecond)
	require.Len(t, slow(), 1)
}

// TestWhoLeavesAPipelineIsHeardOnce: the leader had a connection, and a follower had none. What comes for them
// afterwards is dropped.
func TestWhoLeavesAPipelineIsHeardOnce(t *testing.T) {
	a := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	p := openCrowd(t, a)
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var heard []string
	listener := func(_ context.Context, i pooldriver.AcquireInfo) {
		mu.Lock()
		defer mu.Unlock()
		if strings.HasPrefix(i.Label, "leaves") {
			heard = append(heard, fmt.Sprint(i.Label, " pipelined ", i.Pipelined, " ", i.Err != nil))
		}
	}
	p.acquired.Store(&listener)
	held, err := p.db.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, held.PingContext(t.Context()))
	unlock := lock(t, a, "stock")
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			var n int
			err := p.db.QueryRowContext(pooldriver.Label(ctx, fmt.Sprint("leaves ", i)), ofStock, 1).Scan(&n)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%d: %v", i, err)
			}
		})
		require.Eventually(t, func() bool { return p.c.Stats().Pool.Waiting == i+1 }, 10*time.Second, 50*time.Microsecond)
	}
	require.NoError(t, held.Close())
	require.Eventually(t, func() bool { h := p.c.Holders(); return len(h) == 1 && h[0].Label == "leaves 0" }, 10*time.Second, 50*time.Microsecond)
	cancel()
	all.Wait()
	unlock()
	require.ElementsMatch(t, []string{"leaves 0 pipelined false false", "leaves 1 pipelined false true", "leaves 2 pipelined false true"}, heard)
	require.NoError(t, p.ask(t, ofItems, 7))
	require.Eventually(t, func() bool { return p.c.Stats().BufferedBytes == 0 }, 10*time.Second, time.Millisecond)
}

// TestTheFirstQueryOfAConnMayFollow: afterwards the *sql.Conn has another connection, and says so where it matters.
func TestTheFirstQueryOfAConnMayFollow(t *testing.T) {
	p := openCrowd(t, testbed.Shared(t, testbed.Postgres).NewAccount(t))
	for _, next := range []struct{ text, err string }{{"SELECT lastval()", "others waited for the connection"}, {"SELECT 1", ""}} {
		for range mostTries {
			p.prepare(t)
			before := p.c.Stats().Pipelined
			conn := firstQueryWaits(t, p)
			pipelined := p.c.Stats().Pipelined > before
			_, err := conn.ExecContext(t.Context(), next.text)
			require.NoError(t, conn.Close())
			if !pipelined {
				continue
			}
			if next.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, next.err)
			}
			break
		}
	}
}

// firstQueryWaits returns a *sql.Conn whose first query has waited behind another one.
func firstQueryWaits(t *testing.T, p *pipelineCrowd) *sql.Conn {
	t.Helper()
	conn, err := p.db.Conn(t.Context())
	require.NoError(t, err)
	var all sync.WaitGroup
	held, err := p.db.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, held.PingContext(t.Context()))
	all.Go(func() { _ = p.ask(t, ofItems, 0) })
	require.Eventually(t, func() bool { return p.c.Stats().Pool.Waiting == 1 }, 10*time.Second, 50*time.Microsecond)
	all.Go(func() {
		var n int
		if err := conn.QueryRowContext(t.Context(), ofItems, 2).Scan(&n); err != nil || n != 2 {
			t.Error(n, err)
		}
	})
	require.Eventually(t, func() bool { return p.c.Stats().Pool.Waiting == 2 }, 10*time.Second, 50*time.Microsecond)
	require.NoError(t, held.Close())
	all.Wait()
	return conn
}
