package integration

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// sleepFor is a statement that takes some time on the server.
func sleepFor(engine testbed.Engine, d time.Duration) string {
	if engine == testbed.Postgres {
		return fmt.Sprintf("SELECT pg_sleep(%f)", d.Seconds())
	}
	return fmt.Sprintf("SELECT SLEEP(%f)", d.Seconds())
}

// TestServerNeverSeesMoreConnectionsThanAllowed has 200 goroutines run
// statements that succeed, fail and are cancelled, restarts the server under
// them, and lets the server say how many connections there were.
func TestServerNeverSeesMoreConnectionsThanAllowed(t *testing.T) {
	t.Parallel()
	for _, engine := range testbed.Engines() {
		t.Run(engine.String(), func(t *testing.T) {
			t.Parallel()
			random := randomtest.Seeded(t)
			server := testbed.Start(t, engine, testbed.WithRestart())
			limits := []int{4}
			if randomtest.Long() {
				limits = []int{1, 4}
			}
			const looks = 100 // at the server, at least
			for _, limit := range limits {
				t.Run(fmt.Sprintf("max=%d", limit), func(t *testing.T) {
					account := server.NewAccount(t)
					watch := account.Watch(t)
					connector := pooldriver.New(account.URL(fmt.Sprintf("pool_max_conns=%d", limit)), quiet)
					db := sql.OpenDB(connector)
					defer db.Close()
					crowd := newCrowd(engine, db, random)
					crowd.enough = func() bool { return watch.Peak().Samples > looks }

					crowd.run(t, func() { server.Restart(t) })
					require.Eventually(t, func() bool { return db.PingContext(t.Context()) == nil },
						20*time.Second, 50*time.Millisecond, "no connection after the restart")
					require.Eventually(t, func() bool { return connector.Stats().Pool.Active == 0 },
						10*time.Second, time.Millisecond, "not at rest")
					require.NoError(t, db.Close())
					closed := time.Now()
					require.Eventually(t, func() bool {
						counted, exempt, err := account.Backends(t.Context())
						return err == nil && counted+exempt == 0
					}, slowMachine, 5*time.Millisecond, "connections after Close")

					peak := watch.Stop()
					// A server that is away confirms nothing: that is what orphans are here.
					t.Logf("%+v, none %v after Close, %s, orphans=%d", peak, time.Since(closed).Round(time.Millisecond), crowd, connector.Stats().Orphans)
					require.LessOrEqual(t, peak.Backends, limit)
					require.Greater(t, peak.Samples, looks)
					require.Positive(t, crowd.done.Load())
					require.Positive(t, crowd.cancelled.Load())
				})
			}
		})
	}
}

// crowd is many goroutines that use one *sql.DB badly.
type crowd struct {
	engine testbed.Engine
	db     *sql.DB
	enough func() bool // the crowd goes on until then; nil: each member has its number of statements
	seeds  []uint64

	// Between the two the server is away; a goroutine that notices waits.
	disturbed, restored chan struct{}

	done, cancelled, failed, unavailable atomic.Int64

	refusal atomic.Pointer[error] // of the last one that was unavailable
}

func newCrowd(engine testbed.Engine, db *sql.DB, random *rand.Rand) *crowd {
	c := &crowd{engine: engine, db: db, seeds: make([]uint64, 200), disturbed: make(chan struct{}), restored: make(chan struct{})}
	for i := range c.seeds {
		c.seeds[i] = random.Uint64()
	}
	return c
}

func (c *crowd) String() string {
	text := fmt.Sprintf("done=%d cancelled=%d failed=%d unavailable=%d",
		c.done.Load(), c.cancelled.Load(), c.failed.Load(), c.unavailable.Load())
	if err := c.refusal.Load(); err != nil {
		text += fmt.Sprintf(" (%v)", *err)
	}
	return text
}

// run returns when every goroutine has done its part. It calls disturb when a
// third of the statements has ended.
func (c *crowd) run(t *testing.T, disturb func()) {
	t.Helper()
	each := randomtest.Rounds(4, 60)
	ended := make(chan struct{}, len(c.seeds)*each)
	var all sync.WaitGroup
	for _, seed := range c.seeds {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, seed))
			for n := 0; n < each || c.enough != nil && !c.enough(); n++ {
				c.statement(t.Context(), random)
				if n < each {
					ended <- struct{}{}
				}
			}
		})
	}
	for range len(c.seeds) * each / 3 {
		<-ended
	}
	close(c.disturbed)
	func() {
		defer close(c.restored)
		disturb()
	}()
	all.Wait()
}

func (c *crowd) statement(parent context.Context, random *rand.Rand) {
	ctx, cancel := context.WithTimeout(parent, 30*time.Second)
	defer cancel()
	var err error
	switch random.IntN(4) {
	case 0: // Succeeds, unless the server is away.
		_, err = c.db.ExecContext(ctx, sleepFor(c.engine, time.Duration(random.IntN(4))*time.Millisecond))
	case 1: // Fails.
		_, err = c.db.ExecContext(ctx, "SELECT * FROM missing")
	case 2: // Is cancelled while it waits for a connection or while it runs.
		ctx, cancel := context.WithTimeout(ctx, time.Duration(random.IntN(int(20*time.Millisecond))))
		defer cancel()
		_, err = c.db.ExecContext(ctx, sleepFor(c.engine, time.Minute))
	case 3: // Is cancelled while it runs in a transaction.
		err = c.cancelledTransaction(ctx, random)
	}
	c.count(err)
}

func (c *crowd) cancelledTransaction(ctx context.Context, random *rand.Rand) error {
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(random.IntN(int(5*time.Millisecond))))
	defer cancel()
	_, err = tx.ExecContext(ctx, sleepFor(c.engine, time.Minute))
	return err
}

func (c *crowd) count(err error) {
	switch {
	case err == nil:
		c.done.Add(1)
	case strings.Contains(err.Error(), "context"), strings.Contains(err.Error(), "canceling statement"):
		c.cancelled.Add(1)
	case strings.Contains(err.Error(), "missing"):
		c.failed.Add(1)
	default:
		c.unavailable.Add(1)
		c.refusal.Store(&err)
		select {
		case <-c.disturbed:
			<-c.restored
		default:
		}
	}
}

// TestCancelledStatementsOccupyTheirPlacesUntilTheServerHasDroppedThem lets the
// server itself refuse a connection too many: no sampling can miss that.
func TestCancelledStatementsOccupyTheirPlacesUntilTheServerHasDroppedThem(t *testing.T) {
	t.Parallel()
	const limit = 2
	// On MySQL the connections that kill statements count against the limit too.
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	account.LimitConnections(t, limit)
	db := wrapped.open(t, account, limit)
	for i := range randomtest.Rounds(40, 1000) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%10)*time.Millisecond)
		_, err := db.ExecContext(ctx, sleepFor(testbed.Postgres, time.Minute))
		cancel()
		require.Error(t, err)
		var one int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT 1").Scan(&one))
	}
}

// TestAConnectionIsCountedUntilTheServerHasEndedIt: drivers close their sockets and do not wait for the
// server. It takes one connection of the account, so it refuses one that is dialled too early.
func TestAConnectionIsCountedUntilTheServerHasEndedIt(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		account.LimitConnections(t, 1)
		connectors := map[string]*pooldriver.Connector{"New": pooldriver.New(account.URL(), quiet)}
		if account.Server.Engine == testbed.Postgres { // docs/transparency.md has the exception
			connectors["Wrap"] = pooldriver.Wrap(connectorOf(t, account), quiet)
		}
		for name, connector := range connectors {
			t.Run(name, func(t *testing.T) {
				db := sql.OpenDB(connector)
				defer db.Close()
				for range randomtest.Rounds(30, 1_000) {
					require.NoError(t, db.PingContext(t.Context()))
					connector.Flush()
					for connector.Stats().Pool.Count > 0 {
						time.Sleep(100 * time.Microsecond)
					}
					requireAllEnded(t, account)
				}
			})
		}
	})
}

// requireAllEnded checks that the server has ended all connections of the account. MySQL first gives
// the place of one back, closes its socket, and then takes it from the list: a moment later, if the
// machine is busy.
func requireAllEnded(t *testing.T, account testbed.Account) {
	t.Helper()
	if account.Server.Engine != testbed.Postgres {
		awaitBackends(t, account, 0)
		return
	}
	counted, _, err := account.Backends(t.Context())
	require.NoError(t, err)
	require.Zero(t, counted)
}
