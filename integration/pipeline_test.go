package integration

import (
	"context"
	"database/sql"
	"errors"
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

// TestACrowdOfReadsInPipelinesGetsItsOwnAnswers: with cancelled contexts, transactions beside, ALTER TABLE, and
// connections that are killed or cut at any byte. A lost connection fails one read at most.
func TestACrowdOfReadsInPipelinesGetsItsOwnAnswers(t *testing.T) {
	t.Parallel()
	direct := func(t *testing.T) (testbed.Account, testbed.Account) {
		a := testbed.Shared(t, testbed.Postgres).NewAccount(t)
		return a, a
	}
	for name, place := range map[string]func(t *testing.T) (server, pool testbed.Account){
		"kills": direct,
		"cuts":  direct,
		"TLS": func(t *testing.T) (testbed.Account, testbed.Account) {
			a := testbed.Start(t, testbed.Postgres, testbed.WithTLSOnly()).NewAccount(t)
			return a, a
		},
		"PgBouncer": func(t *testing.T) (testbed.Account, testbed.Account) {
			n := testbed.NewNetwork(t)
			a := testbed.Start(t, testbed.Postgres, testbed.WithNetwork(n, "db")).NewAccount(t)
			return a, a.Via(testbed.StartPgBouncer(t, a, "default_pool_size=2", "max_prepared_statements=200").Addr)
		},
	} {
		t.Run(name, func(t *testing.T) {
			server, pool := place(t)
			c := &readers{T: t, plain: sql.OpenDB(pooldriver.New(server.URL())), alters: name != "PgBouncer"}
			defer c.plain.Close()
			if name == "cuts" {
				proxy, err := byteproxy.Listen(pool.Addr)
				require.NoError(t, err)
				defer proxy.Close()
				c.proxy, pool = proxy, pool.Via(proxy.Addr())
			}
			makeItems(t, c.plain)
			connector := pooldriver.New(pool.URL("pool_max_conns=3", "pool_pipeline=16"), quiet)
			c.db = sql.OpenDB(connector)
			defer c.db.Close()
			pipelined := func() bool { return connector.Stats().Pool.Pipelined > 200 }
			c.run(time.Duration(randomtest.Rounds(2, 600))*time.Second, pipelined)
			s := connector.Stats().Pool
			t.Logf("%d reads, %d cancelled, %d lost of %d connections that were ended; %d in %d pipelines",
				c.reads.Load(), c.cancelled.Load(), c.lost.Load(), c.ends.Load(), s.Pipelined, s.Pipelines)
			require.LessOrEqual(t, c.lost.Load(), c.ends.Load(), "a lost connection costs one read at most")
			require.NotZero(t, s.Pipelined)
			require.Eventually(t, func() bool { return connector.Stats().Pool.Active == 0 }, 10*time.Second, time.Millisecond)
			require.Zero(t, connector.Stats().BufferedBytes)
		})
	}
}

// slowMachine is how long tests wait for queries to be pipelined.
const slowMachine = 2 * time.Minute

// makeItems makes 1000 items, which have names.
func makeItems(t *testing.T, db *sql.DB) {
	t.Helper()
	mustExec(t, db, "CREATE TABLE items (id int PRIMARY KEY, name text, n int)")
	mustExec(t, db, "INSERT INTO items SELECT i, 'item ' || i, 0 FROM generate_series(1, 1000) i")
}

// readers read items, and are disturbed.
type readers struct {
	*testing.T
	plain, db *sql.DB
	alters    bool             // else pgx reads rows as PgBouncer's other connection has described them, also alone
	proxy     *byteproxy.Proxy // nil: no cuts

	reads, cancelled, lost, ends atomic.Int64
}

// run lasts at least so long, and until pipelined says that enough was pipelined: on a slow machine no text is short
// for long.
func (c *readers) run(lasts time.Duration, pipelined func() bool) {
	begun := time.Now()
	goesOn := func() bool {
		since := time.Since(begun)
		return !c.Failed() && (since < lasts || since < slowMachine && !pipelined())
	}
	var all sync.WaitGroup
	every := func(n int, f func()) {
		for range n {
			all.Go(func() {
				for goesOn() {
					f()
				}
			})
		}
	}
	every(40, c.read)
	every(2, c.change)
	every(1, c.disturb)
	all.Wait()
	require.False(c, c.Failed())
}

// read is one read, perhaps with a context that ends.
func (c *readers) read() {
	ctx, cancel := c.Context(), context.CancelFunc(func() {})
	if rand.N(10) == 0 {
		ctx, cancel = context.WithTimeout(c.Context(), time.Duration(rand.N(3000))*time.Microsecond)
	}
	defer cancel()
	err := readItem(ctx, c.db)
	c.reads.Add(1)
	switch {
	case err == nil:
	case errors.Is(err, errWrong):
		c.Error(err)
	case ctx.Err() != nil:
		c.cancelled.Add(1)
	case hasState(err, "57P01"), hasState(err, "08P01"), !hasState(err, ""):
		c.lost.Add(1)
	default:
		c.Errorf("a read: %v", err)
	}
}

var errWrong = errors.New("a wrong answer")

// readItem reads one item or several, and says whether they are the right ones.
func readItem(ctx context.Context, db *sql.DB) error {
	id := 1 + rand.N(1000)
	var got, want string
	var err error
	switch rand.N(20) {
	case 0:
		want = "22012"
		err = db.QueryRowContext(ctx, "SELECT 1/($1::int - $1::int)", id).Scan(&got)
		if hasState(err, want) {
			got, err = want, nil
		}
	case 1:
		want = fmt.Sprint("item ", id)
		some := []int32{int32(id)}
		err = db.QueryRowContext(ctx, "SELECT name FROM items WHERE id = ANY($1)", some).Scan(&got)
		some[0] = 0 // nobody reads it any more
	case 2:
		want = fmt.Sprint("item ", id)
		name := []byte(want)
		err = db.QueryRowContext(ctx, "SELECT name FROM items WHERE id = $1 AND name::bytea = $2", id, name).Scan(&got)
		clear(name)
	case 3:
		var n, more any
		err = db.QueryRowContext(ctx, "SELECT * FROM items WHERE id = $1", id).Scan(&n, &got, &more)
		want = fmt.Sprint("item ", id)
	default:
		want = fmt.Sprint("item ", id)
		err = db.QueryRowContext(ctx, "SELECT name FROM items WHERE id = $1", id).Scan(&got)
	}
	if err == nil && got != want {
		return fmt.Errorf("%w: %q in place of %q", errWrong, got, want)
	}
	return err
}

// change is a transaction.
func (c *readers) change() {
	if tx, err := c.db.BeginTx(c.Context(), nil); err == nil {
		_, _ = tx.Exec("UPDATE items SET n = n + 1 WHERE id = $1", 1+rand.N(1000))
		_ = tx.Commit()
	}
	time.Sleep(time.Millisecond)
}

// disturb makes plans stale, or ends a connection.
func (c *readers) disturb() {
	time.Sleep(100 * time.Millisecond)
	switch {
	case c.alters && rand.N(2) == 0:
		_, err := c.plain.Exec(fmt.Sprintf("ALTER TABLE items ALTER n TYPE %s", []string{"int", "bigint"}[rand.N(2)]))
		if err != nil {
			c.Error(err)
		}
	case c.proxy != nil:
		if !c.proxy.Disarm() {
			c.ends.Add(1) // the last one has struck
		}
		c.proxy.Arm(byteproxy.Fault{Direction: byteproxy.Direction(rand.N(2)), At: rand.N[int64](4000), Cut: byteproxy.Cut(rand.N(2))})
	default:
		c.ends.Add(1)
		_, _ = c.plain.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = current_user AND pid <> pg_backend_pid() AND query LIKE '%items%' ORDER BY random() LIMIT 1")
	}
}

// hasState reports whether err is the server's with this state, or with any if state is empty.
func hasState(err error, state string) bool {
	var s interface{ SQLState() string }
	return errors.As(err, &s) && (state == "" || s.SQLState() == state)
}
