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
	"github.com/pooldriver/pooldriver/integration/byteproxy"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// borrowed is what a borrower of TestMySQLNothingLeaksOverTLS must find.
const borrowed = "SELECT CONCAT_WS('|', COALESCE(@mark, 'none'), DATABASE(), @@sql_mode, @@autocommit, @@character_set_client)"

// soiled are ways to leave a session as the next borrower must not find it.
var soiled = []string{
	"SET @mark = 'left'", "SET sql_mode = ''", "SET NAMES latin1", "SET autocommit = 0", "USE information_schema",
	"CREATE TEMPORARY TABLE things_left (n int)", "DO GET_LOCK(CONCAT('left', CONNECTION_ID(), DATABASE()), 0)", "PREPARE things FROM 'SELECT 1'",
}

// tlsChaos is what has happened in a run.
type tlsChaos struct {
	db             *sql.DB
	cancels        bool // contexts end
	clean          string
	tasks, refused atomic.Int64
	leaks          atomic.Int64
	mu             sync.Mutex // protects stored
	stored         []int      // ledger entries whose commit was answered
	next           atomic.Int64
}

// TestMySQLNothingLeaksOverTLS: sessions that their borrowers have changed are reset in place over TLS, under kills, cuts at any byte
// and contexts that end. No commit is lost or stored twice, and the server has no session too many.
func TestMySQLNothingLeaksOverTLS(t *testing.T) {
	t.Parallel()
	const conns = 4
	lasts := time.Duration(randomtest.Rounds(3, 120)) * time.Second
	for _, how := range []string{"kills", "cuts"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			a := testbed.Shared(t, testbed.MySQL).NewAccount(t)
			plain := a.OpenBare(t, "tls=skip-verify")
			mustExec(t, plain, "CREATE TABLE ledger (id int, n int)")
			c := tlsChaos{cancels: how == "cuts"} // who cancels needs a connection more, to kill the statement
			require.NoError(t, plain.QueryRow(borrowed).Scan(&c.clean))
			admin, err := a.Server.Admin()
			require.NoError(t, err)
			over, strike := a, func(*rand.Rand) {
				var id int64
				if admin.QueryRow("SELECT id FROM information_schema.processlist WHERE user = ? ORDER BY RAND() LIMIT 1", a.User).Scan(&id) == nil {
					_, _ = admin.Exec(fmt.Sprintf("KILL %d", id)) // it may have ended
				}
			}
			if how == "cuts" {
				proxy, err := byteproxy.Listen(a.Addr)
				require.NoError(t, err)
				t.Cleanup(func() { _ = proxy.Close() })
				over, strike = a.Via(proxy.Addr()), func(r *rand.Rand) {
					proxy.Arm(byteproxy.Fault{Direction: byteproxy.Direction(r.IntN(2)), At: r.Int64N(3000), Cut: byteproxy.Reset})
				}
			}
			require.NoError(t, plain.Close())
			connector := pooldriver.New(over.URL("tls=skip-verify", fmt.Sprintf("pool_max_conns=%d", conns)), quiet)
			c.db = sql.OpenDB(connector)
			stay := watchWhoStays(t, admin, a.User)
			c.run(t, lasts, strike)
			s := connector.Stats()
			t.Logf("%d tasks, %d failed, %d commits, %d cleanings, %d discards, %d lost",
				c.tasks.Load(), c.refused.Load(), len(c.stored), s.Cleanings, s.Discards, s.Closed[pooldriver.CloseLost])
			require.Zero(t, c.leaks.Load())
			if how == "kills" { // who cuts lets the server wait for who is gone
				require.LessOrEqual(t, stay(), conns)
			}
			require.Positive(t, stay(), "nobody was seen")
			require.NotZero(t, s.Cleanings)
			require.NotZero(t, s.Closed[pooldriver.CloseLost])
			require.NoError(t, c.db.Close())
			c.compare(t, a)
		})
	}
}

// watchWhoStays returns a function that says how many sessions the server had at most, at two looks in a row. MySQL counts one that was
// killed, or has said goodbye, for some milliseconds after it has closed its socket, also against its limits.
func watchWhoStays(t *testing.T, admin *sql.DB, user string) (most func() int) {
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan int, 1)
	go func() {
		peak, before := 0, map[int64]bool{}
		for ctx.Err() == nil {
			now, both := map[int64]bool{}, 0
			rows, err := admin.QueryContext(ctx, "SELECT id FROM information_schema.processlist WHERE user = ? AND command <> 'Killed'", user)
			for err == nil && rows.Next() {
				var id int64
				if err = rows.Scan(&id); err == nil {
					now[id] = true
					if before[id] {
						both++
					}
				}
			}
			if err == nil {
				err = rows.Err()
			}
			if err != nil && ctx.Err() == nil {
				t.Errorf("the server does not say who is there: %v", err)
			}
			peak, before = max(peak, both), now
			time.Sleep(200 * time.Millisecond)
		}
		result <- peak
	}()
	return sync.OnceValue(func() int {
		cancel()
		return <-result
	})
}

// run works until its time is over, while strike ends sessions.
func (c *tlsChaos) run(t *testing.T, lasts time.Duration, strike func(*rand.Rand)) {
	seed := randomtest.Seed(t)
	end := time.Now().Add(lasts)
	var all sync.WaitGroup
	for g := range 12 {
		r := rand.New(rand.NewPCG(seed, uint64(g)))
		all.Go(func() {
			for n := 0; n < 20 || time.Now().Before(end); n++ {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if c.cancels && r.IntN(5) == 0 {
					cancel()
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(r.IntN(30))*time.Millisecond)
				}
				c.tasks.Add(1)
				if c.task(ctx, t, r) != nil {
					c.refused.Add(1)
				}
				cancel()
			}
		})
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		r := rand.New(rand.NewPCG(seed, 1000))
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				strike(r)
			}
		}
	}()
	all.Wait()
	close(stop)
	<-stopped
}

// task borrows a session, looks at it, and leaves it soiled.
func (c *tlsChaos) task(ctx context.Context, t *testing.T, r *rand.Rand) error {
	conn, err := c.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var found string
	if err := conn.QueryRowContext(ctx, borrowed).Scan(&found); err != nil {
		return err
	}
	if found != c.clean {
		c.leaks.Add(1)
		t.Errorf("found %s, want %s", found, c.clean)
	}
	if _, err := conn.ExecContext(ctx, "SELECT n FROM things_left"); err == nil {
		c.leaks.Add(1)
		t.Error("found a temporary table")
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	id := int(c.next.Add(1))
	for _, n := range []int{1, -1} {
		if _, err := tx.ExecContext(ctx, "INSERT INTO ledger VALUES (?, ?)", id, n); err != nil {
			_ = tx.Rollback()
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	c.mu.Lock()
	c.stored = append(c.stored, id)
	c.mu.Unlock()
	for range r.IntN(3) {
		if _, err := conn.ExecContext(ctx, soiled[r.IntN(len(soiled))]); err != nil {
			return err
		}
	}
	return nil
}

// compare asks the server what was stored, and who has a lock.
func (c *tlsChaos) compare(t *testing.T, a testbed.Account) {
	plain := a.OpenBare(t)
	entries := map[int][2]int{}
	rows, err := plain.Query("SELECT id, COUNT(*), SUM(n) FROM ledger GROUP BY id")
	require.NoError(t, err)
	for rows.Next() {
		var id, count, sum int
		require.NoError(t, rows.Scan(&id, &count, &sum))
		entries[id] = [2]int{count, sum}
	}
	require.NoError(t, rows.Err())
	for id, e := range entries {
		require.Equal(t, [2]int{2, 0}, e, "entry %d is stored by halves, or twice", id)
	}
	for _, id := range c.stored {
		require.Contains(t, entries, id, "a commit that was answered is lost")
	}
	require.NotEmpty(t, c.stored)
}
