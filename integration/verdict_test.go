package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"os"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/inspect"
	"github.com/pooldriver/pooldriver/integration/byteproxy"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// incident is a service in trouble, and who looks at it with our tools alone.
type incident struct {
	*testing.T
	account   testbed.Account
	connector *pooldriver.Connector
	db        *sql.DB
	inspector *inspect.Inspector
	names     atomic.Bool // no name is known any more
	paused    atomic.Bool // part of the service has nothing to do

	page     func(fresh bool) inspect.Pool // of another process; nil: of this one
	process  *os.Process                   // this other one
	set      *testbed.ReplicaSet
	replicas []*byteproxy.Proxy // on the way to set's replicas
}

// between are the doors and proxies of incidents, by their addresses.
var between sync.Map

func (i *incident) door() *door {
	d, _ := between.Load(i.account.Addr)
	return d.(*door)
}

func (i *incident) proxy() *byteproxy.Proxy {
	p, _ := between.Load(i.account.Addr)
	return p.(*byteproxy.Proxy)
}

func newIncident(t *testing.T, account testbed.Account, parameters ...string) *incident {
	t.Helper()
	return newIncidentOf(t, account, false, parameters...)
}

// newIncidentOf is newIncident for a program whose contexts belong to tasks, by taskOf.
func newIncidentOf(t *testing.T, account testbed.Account, tasks bool, parameters ...string) *incident {
	t.Helper()
	i := &incident{T: t, account: account}
	i.connect(func(c *pooldriver.Config) {
		if tasks {
			c.TaskKey = func(ctx context.Context) (any, context.Context) { return ctx.Value(taskOf{}), ctx }
		}
	}, parameters...)
	return i
}

// connect opens the account's database.
func (i *incident) connect(configure func(*pooldriver.Config), parameters ...string) {
	i.connector = pooldriver.New(i.account.URL(parameters...), quiet, func(c *pooldriver.Config) {
		c.SampleStacks = 1
		c.Dial = nameless(&i.names)
	}, configure)
	db := sql.OpenDB(i.connector)
	i.db = db
	i.Cleanup(func() { _ = db.Close() })
	i.inspector = inspect.Handler(i.connector)
}

// sees requires that the page says so within three seconds, looked at once a second as a browser
// does. Seconds in which the machine stands still do not count.
func (i *incident) sees(level, sentence string) {
	i.Helper()
	var said []inspect.Verdict
	pulse := feelPulse(i, nil)
	for looks, begun := 0, time.Now(); looks < 5 && time.Since(begun) < slowMachine; {
		v := i.inspector.Snapshot().Pools[0].Verdict
		if said = append(said, v); v.Level == level {
			if regexp.MustCompile(sentence).MatchString(v.Sentence) {
				return
			}
		}
		time.Sleep(750 * time.Millisecond)
		if pulse.onTime() {
			looks++
		}
	}
	i.Fatalf("want %s: %s\ngot %v", level, sentence, said)
}

// usual runs the statement alone until it is known how long it takes when nobody waits.
func (i *incident) usual(query string) {
	i.Helper()
	require.Eventually(i, func() bool {
		i.exec(query)
		return slices.ContainsFunc(i.connector.Statements(time.Time{}), func(t pooldriver.StatementTime) bool { return t.Usual > 0 })
	}, time.Minute, time.Millisecond)
}

func (i *incident) exec(query string, args ...any) {
	i.Helper()
	_, err := i.db.ExecContext(i.Context(), query, args...)
	require.NoError(i, err)
}

// later runs fn in a goroutine, with a context that ends with the incident.
func (i *incident) later(fn func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { fn(ctx) })
	i.Cleanup(func() { cancel(); done.Wait() })
}

// label is a context with a name for what is done.
func (i *incident) label(name string) context.Context {
	return pooldriver.Label(context.Background(), name)
}

var sleep = map[testbed.Engine]string{testbed.Postgres: "SELECT pg_sleep(20)", testbed.MySQL: "SELECT SLEEP(20)"}

// TestTheInspectorIsRightInEachIncident: a sentence that is wrong in an incident is worse than none.
func TestTheInspectorIsRightInEachIncident(t *testing.T) {
	t.Parallel()
	for name, happen := range map[string]func(t *testing.T, account testbed.Account){
		"every login is refused":          loginsRefused,
		"a server out of reach, and back": outOfReach,
		"forgotten rows":                  forgottenRows,
		"rows that were taken back":       rowsTakenBack,
		"a lock of a leaked transaction":  leakedLock,
		"a COMMIT that hangs":             hangingCommit,
		"a listener beside normal work":   listener,
		"a black hole":                    blackHole,
		"a server that is full":           fullServer,
		"a pool that is too small":        smallPool,
		"a label that takes over":         labelTakesOver,
		"all is well":                     allWell,
		"waits and a dial that both fail": failuresCount,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testbed.Each(t, happen)
		})
	}
}

func loginsRefused(t *testing.T, account testbed.Account) {
	account.Password = "wrong"
	i := newIncident(t, account)
	i.later(func(ctx context.Context) {
		for ctx.Err() == nil {
			_ = i.db.PingContext(ctx)
			time.Sleep(10 * time.Millisecond)
		}
	})
	i.sees("bad", `^The server refuses our login: the last \d+ dials have failed, for .*(password authentication failed|Access denied).* No connection is open\.$`)
	require.NotContains(t, i.inspector.Snapshot().Pools[0].Verdict.Sentence, "wrong")
}

func outOfReach(t *testing.T, account testbed.Account) {
	d := newDoor(t, account.Addr)
	i := newIncident(t, account.Via(d.addr()))
	i.later(func(ctx context.Context) {
		for ctx.Err() == nil {
			_ = i.db.PingContext(ctx)
			time.Sleep(10 * time.Millisecond)
		}
	})
	i.sees("calm", `^The pool is not the problem`)
	d.close(true)
	i.sees("bad", `^The database cannot be reached, or refuses us: the last`)
	d.close(false)
	i.sees("busy", `^In the last 10s statements got no connection: dial failed`)
	earlier := i.inspector.Snapshot().Pools[0].Earlier
	require.NotNil(t, earlier, "what was worse is shown below")
	require.Regexp(t, `^The database cannot be reached`, earlier.Sentence)
	require.Zero(t, i.connector.Stats().DialsFailing)
}

func forgottenRows(t *testing.T, account testbed.Account) {
	i := newIncident(t, account, "pool_max_conns=2")
	for range 2 {
		rows, err := i.db.QueryContext(i.label("GET /list"), "SELECT 1")
		require.NoError(t, err)
		t.Cleanup(func() { _ = rows.Close() })
	}
	i.sees("bad", `^2 of 2 connections are in use, and none of them runs a statement: rows are open on each of them, and nobody reads them, for longest by GET /list at \S*forgottenRows \(verdict_test\.go:\d+\), for `)
}

func rowsTakenBack(t *testing.T, account testbed.Account) {
	i := newIncident(t, account, "pool_max_conns=1")
	rows, err := i.db.QueryContext(i.label("GET /list"), "SELECT 1")
	require.NoError(t, err)
	t.Cleanup(func() { _ = rows.Close() })
	require.NoError(t, i.db.PingContext(t.Context())) // takes their connection
	i.sees("busy", `^The rows of 1 query are open in memory, because others needed their connection`)
	left := i.inspector.Snapshot().Pools[0].BufferedRows
	require.Len(t, left, 1)
	require.Equal(t, "GET /list", left[0].Label)
	require.Contains(t, left[0].TakenAt[0].Func, "rowsTakenBack")
}

func leakedLock(t *testing.T, account testbed.Account) {
	i := newIncident(t, account, "pool_max_conns=6")
	i.exec("CREATE TABLE stock (id INT PRIMARY KEY, n INT)")
	i.exec("INSERT INTO stock VALUES (1, 0)")
	tx, err := i.db.BeginTx(i.label("POST /orders"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	_, err = tx.Exec("UPDATE stock SET n = 1 WHERE id = 1")
	require.NoError(t, err)
	for range 3 {
		i.later(func(ctx context.Context) { _, _ = i.db.ExecContext(ctx, "UPDATE stock SET n = n + 1 WHERE id = 1") })
	}
	i.sees("bad", `^3 statements (wait for a lock \(\w+\), for .*In the way is|have been running for \S+ or longer, while a transaction by) POST /orders at \S*leakedLock \(verdict_test\.go:\d+\),? (which )?has run nothing for \S+`)
}

func hangingCommit(t *testing.T, account testbed.Account) {
	proxy, err := byteproxy.Listen(account.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	i := newIncident(t, account.Via(proxy.Addr()), "pool_max_conns=1")
	tx, err := i.db.BeginTx(i.label("POST /orders"), nil)
	require.NoError(t, err)
	_, err = tx.Exec("SELECT 1")
	require.NoError(t, err)
	proxy.SetLatency(byteproxy.ToClient, time.Minute)
	t.Cleanup(func() { proxy.Close() }) // before the commit is waited for
	i.later(func(context.Context) { _ = tx.Commit() })
	i.later(func(ctx context.Context) { _ = i.db.PingContext(ctx) })
	t.Cleanup(func() { proxy.Close() })
	i.sees("bad", `^1 COMMIT has been running for \S+ by POST /orders at \S*hangingCommit \(verdict_test\.go:\d+\), which is not usual; 1 statement waits\.$`)
	holder := i.connector.Holders()[0]
	require.Equal(t, "COMMIT", holder.Statement)
	require.True(t, holder.Running)
}

func listener(t *testing.T, account testbed.Account) {
	i := newIncident(t, account, "pool_max_conns=4")
	conn, err := i.db.Conn(i.label("listener"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	i.later(func(ctx context.Context) {
		_ = pooldriver.Raw(ctx, conn, func(driver.Conn) error { <-ctx.Done(); return nil }) // waits for notifications
	})
	i.later(func(ctx context.Context) {
		for ctx.Err() == nil {
			_ = i.db.PingContext(ctx)
		}
	})
	time.Sleep(1500 * time.Millisecond)
	i.sees("calm", `^The pool is not the problem: [12] of 4 connections are in use \(1 by functions of Raw\), and nobody waits\.$`)
}

func blackHole(t *testing.T, account testbed.Account) {
	proxy, err := byteproxy.Listen(account.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	i := newIncident(t, account.Via(proxy.Addr()), "pool_max_conns=2")
	var conns []*sql.Conn
	for range 2 {
		conn, err := i.db.Conn(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.PingContext(t.Context()))
		conns = append(conns, conn)
	}
	proxy.SetLatency(byteproxy.ToClient, time.Minute)
	for n, conn := range conns {
		i.later(func(ctx context.Context) { _, _ = conn.ExecContext(ctx, [...]string{"SELECT 1", "SELECT 1, 2"}[n]) })
	}
	i.later(func(ctx context.Context) { _ = i.db.PingContext(ctx) })
	t.Cleanup(func() { proxy.Close() })
	i.sees("bad", `^Nothing has moved for \S+: 2 statements run, and none has ended; 1 statement waits\. The database or the network does not answer`)
}

func fullServer(t *testing.T, account testbed.Account) {
	account.LimitConnections(t, 2)
	i := newIncident(t, account, "pool_max_conns=20")
	for range 8 {
		i.later(func(ctx context.Context) {
			for ctx.Err() == nil {
				_, _ = i.db.ExecContext(ctx, sleeps[account.Server.Engine])
			}
		})
	}
	i.sees("bad", `^The server is full: it allows us 2 of 20 connections, and 2 are in use, and \d statements? waits?, for \S+ at most\.$`)
}

func smallPool(t *testing.T, account testbed.Account) {
	i := newIncident(t, account, "pool_max_conns=2")
	i.usual(sleeps[account.Server.Engine])
	for range 8 {
		i.later(func(ctx context.Context) {
			for ctx.Err() == nil {
				_, _ = i.db.ExecContext(ctx, sleeps[account.Server.Engine])
			}
		})
	}
	i.sees("busy", `^\d statements? waits?\. 2 of 2 connections are in use, and their statements take no longer than before: the pool is small\.$`)
}

// retryStorm begins when it is known how often each label usually comes.
func retryStorm(i *incident) {
	i.payUsually()
	i.payOften()
}

func (i *incident) payOften() { i.each(20, "GET /pay", i.run(sleeps[i.account.Server.Engine])) }

func (i *incident) payUsually() {
	query := sleeps[i.account.Server.Engine]
	i.usual(query)
	for _, label := range []string{"GET /pay", "GET /list"} {
		i.each(1, label, func(ctx context.Context) {
			_, _ = i.db.ExecContext(ctx, query)
			time.Sleep(250 * time.Millisecond)
		})
	}
	require.Eventually(i, func() bool {
		all := i.connector.Stats().Arrivals
		return len(all) == 2 && all[0].Usual > 1 && all[1].Usual > 1
	}, time.Minute, 100*time.Millisecond)
}

func labelTakesOver(t *testing.T, account testbed.Account) {
	i := newIncident(t, account, "pool_max_conns=2")
	retryStorm(i)
	storm := `^\d+ statements? waits?\. GET /pay comes \d+ times a second, and usually \d+, for \S+: it has [12] of 2 connections, and \d+ of those who wait\.$`
	i.sees("bad", storm)
	pulse := feelPulse(t, account.Witness(t))
	for end := time.Now().Add(time.Duration(randomtest.Rounds(10, 180)) * time.Second); time.Now().Before(end); time.Sleep(750 * time.Millisecond) {
		v := inspect.Look(i.connector).Verdict // as a page that was not open before
		if pulse.onTime() {
			require.Equal(t, "one label takes over", v.Rule, v.Sentence)
		}
	}
}

func allWell(t *testing.T, account testbed.Account) {
	i := newIncident(t, account, "pool_max_conns=4")
	for range 3 {
		i.later(func(ctx context.Context) {
			for ctx.Err() == nil {
				_, _ = i.db.ExecContext(ctx, "SELECT 1")
			}
		})
	}
	i.later(func(ctx context.Context) { _, _ = i.db.ExecContext(ctx, sleep[account.Server.Engine]) }) // a report
	time.Sleep(1500 * time.Millisecond)
	i.sees("calm", `^The pool is not the problem: \d of 4 connections are in use, and nobody waits\.$`)
}

// failuresCount: statements that gave up are said although nobody waits any more.
func failuresCount(t *testing.T, account testbed.Account) {
	// Long enough for the first dial beside the other tests: it has taken half a second.
	i := newIncident(t, account, "pool_max_conns=1", "pool_acquire_timeout=3s")
	conn, err := i.db.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, conn.PingContext(t.Context()))
	_ = i.inspector.Snapshot()
	require.ErrorIs(t, i.db.PingContext(t.Context()), pooldriver.ErrTimeout)
	require.NoError(t, conn.Close())
	i.sees("busy", `^In the last 10s statements got no connection: timeout 1\.`)
}
