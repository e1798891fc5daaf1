package replicas

import (
	"context"
	"database/sql"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/byteproxy"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// stage is a primary with two replicas, which programs reach through proxies. It has counters, one for each worker of a
// program: a worker that adds one inserts a row with the next number.
type stage struct {
	*testbed.ReplicaSet
	account     testbed.Account
	proxies     [2]*byteproxy.Proxy
	insert, max string // the second one says, too, whether it ran on a replica
}

func onStage(t *testing.T, engine testbed.Engine) *stage {
	t.Helper()
	s := &stage{
		ReplicaSet: testbed.StartReplicaSet(t, engine),
		insert:     "INSERT INTO counters VALUES ($1, $2)",
		max:        "SELECT coalesce(max(n), 0), pg_is_in_recovery() FROM counters WHERE worker = $1",
	}
	if engine != testbed.Postgres {
		s.insert = "INSERT INTO counters VALUES (?, ?)"
		s.max = "SELECT coalesce(max(n), 0), @@server_id > 1 FROM counters WHERE worker = ?"
	}
	s.account = s.NewAccount(t)
	for i, replica := range s.Replicas {
		proxy, err := byteproxy.Listen(replica.Addr)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, proxy.Close()) })
		s.proxies[i] = proxy
	}
	s.empty(t)
	return s
}

// empty sets all counters to nothing.
func (s *stage) empty(t *testing.T) {
	t.Helper()
	db := s.account.OpenBare(t)
	for _, statement := range []string{
		"DROP TABLE IF EXISTS counters",
		"CREATE TABLE counters (worker integer NOT NULL, n integer NOT NULL, PRIMARY KEY (worker, n))",
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	s.CatchUp(t)
}

// open opens the account with the replicas behind their proxies.
func (s *stage) open(t *testing.T, parameters ...string) *sql.DB {
	t.Helper()
	return open(t, s.connect(t, append([]string{"pool_max_conns=20", "pool_replica_max_conns=20"}, parameters...)...))
}

// connect is a connector to the account, with the replicas behind their proxies.
func (s *stage) connect(t *testing.T, parameters ...string) *pooldriver.Connector {
	t.Helper()
	return connect(t, s.account.URL(append(parameters, "pool_replicas="+s.proxies[0].Addr()+","+s.proxies[1].Addr())...))
}

func connect(t *testing.T, url string) *pooldriver.Connector {
	t.Helper()
	c := pooldriver.New(url, func(c *pooldriver.Config) { c.Logger = slog.New(slog.NewTextHandler(t.Output(), nil)) })
	require.NoError(t, c.Err())
	return c
}

func open(t *testing.T, c *pooldriver.Connector) *sql.DB {
	t.Helper()
	db := sql.OpenDB(c)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func (s *stage) write(ctx context.Context, db *sql.DB, worker, n int) error {
	_, err := db.ExecContext(ctx, s.insert, worker, n)
	return err
}

func (s *stage) read(ctx context.Context, db *sql.DB, worker int) (n int, onReplica bool, err error) {
	err = db.QueryRowContext(ctx, s.max, worker).Scan(&n, &onReplica)
	return n, onReplica, err
}

// disturb holds the first replica for up to half a second, again and again, and cuts the second one off, until the
// returned function is called. With both it holds the second one, too.
func (s *stage) disturb(t *testing.T, seed uint64, both bool) (calm func()) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	held := s.Replicas[:1]
	if both {
		held = s.Replicas[:]
	}
	for i, replica := range held {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		all.Go(func() {
			for ctx.Err() == nil {
				// Also when the test ends: what is held must be released.
				if err := replica.Hold(context.Background()); err != nil {
					t.Error(err)
				}
				sleep(ctx, random, 0, 500*time.Millisecond)
				if err := replica.Release(context.Background()); err != nil {
					t.Error(err)
				}
				sleep(ctx, random, 0, 200*time.Millisecond)
			}
		})
	}
	random := rand.New(rand.NewPCG(seed, 9))
	all.Go(func() {
		// Longer than the second for which a replica that did not answer is left alone.
		for sleep(ctx, random, 0, time.Second); ctx.Err() == nil; sleep(ctx, random, time.Second, 3*time.Second) {
			s.proxies[1].Refuse()
			sleep(ctx, random, 0, 300*time.Millisecond)
			s.proxies[1].Serve()
		}
	})
	return sync.OnceFunc(func() {
		stop()
		all.Wait()
	})
}

// sleep sleeps between least and most, unless ctx ends.
func sleep(ctx context.Context, random *rand.Rand, least, most time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(least + time.Duration(random.Int64N(int64(most-least)))):
	}
}

// eachEngine runs the test on each server, one after the other.
func eachEngine(t *testing.T, test func(t *testing.T, s *stage)) {
	for name, engine := range map[string]testbed.Engine{"postgres": testbed.Postgres, "mariadb": testbed.MariaDB, "mysql": testbed.OracleMySQL} {
		t.Run(name, func(t *testing.T) {
			if engine == testbed.OracleMySQL && !testbed.HasMySQL() {
				t.Skip("NOT RUN: MySQL's image could not be had")
			}
			test(t, onStage(t, engine))
		})
	}
}
