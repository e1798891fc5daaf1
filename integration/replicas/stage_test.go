package replicas

import (
	"context"
	"database/sql"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// counters is how many rows the table has: one for each goroutine of a program.
const counters = 64

// stage is a primary with its replicas, and an account with a table of counters that begin with 0.
type stage struct {
	*testbed.Replicas
	account testbed.Account
}

// eachServer runs a test on PostgreSQL and on MariaDB.
func eachServer(t *testing.T, test func(t *testing.T, s *stage)) {
	for _, engine := range []testbed.Engine{testbed.Postgres, testbed.MariaDB} {
		t.Run(engine.String(), func(t *testing.T) { test(t, newStage(t, engine)) })
	}
}

func newStage(t *testing.T, engine testbed.Engine) *stage {
	t.Helper()
	s := &stage{Replicas: testbed.StartReplicas(t, engine)}
	s.account = s.NewAccount(t)
	db := s.account.OpenBare(t)
	_, err := db.ExecContext(t.Context(), "CREATE TABLE counter (id integer PRIMARY KEY, n bigint NOT NULL)")
	require.NoError(t, err)
	for id := range counters {
		_, err := db.ExecContext(t.Context(), s.text("INSERT INTO counter VALUES (?, 0)"), id)
		require.NoError(t, err)
	}
	s.CatchUp(t)
	return s
}

// text returns a statement with the marks that the server has for arguments.
func (s *stage) text(query string) string {
	if s.account.Server.Engine != testbed.Postgres {
		return query
	}
	for n := 1; strings.Contains(query, "?"); n++ {
		query = strings.Replace(query, "?", "$"+strconv.Itoa(n), 1)
	}
	return query
}

// open opens the account with its replicas.
func (s *stage) open(t *testing.T, parameters ...string) (*sql.DB, *pooldriver.Connector) {
	t.Helper()
	return s.openAs(t, s.account, parameters...)
}

// openAs is open with another address of the primary.
func (s *stage) openAs(t *testing.T, account testbed.Account, parameters ...string) (*sql.DB, *pooldriver.Connector) {
	t.Helper()
	c := pooldriver.New(account.URL(append([]string{"pool_max_conns=16", "pool_replicas=" + s.Hosts()}, parameters...)...),
		func(c *pooldriver.Config) { c.Logger = slog.New(slog.NewTextHandler(t.Output(), nil)) })
	require.NoError(t, c.Err())
	db := sql.OpenDB(c)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db, c
}

// on opens the account on a replica, without a pool driver.
func (s *stage) on(t *testing.T, r *testbed.Replica) *sql.DB {
	t.Helper()
	return s.account.On(r.Server).Via(r.Proxy.Addr()).OpenBare(t)
}

// TestReplicasAreHeldAndCut is about the servers alone.
func TestReplicasAreHeldAndCut(t *testing.T) {
	eachServer(t, func(t *testing.T, s *stage) {
		ctx := t.Context()
		primary := s.account.OpenBare(t)
		held, other := s.Replicas.Replicas[0], s.Replicas.Replicas[1]
		shown := func(r *testbed.Replica) (n int64, err error) {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			err = s.on(t, r).QueryRowContext(ctx, s.text("SELECT n FROM counter WHERE id = ?"), 0).Scan(&n)
			return n, err
		}
		shows := func(r *testbed.Replica, want int64) {
			t.Helper()
			require.Eventually(t, func() bool {
				n, err := shown(r)
				return err == nil && n == want
			}, time.Minute, 10*time.Millisecond)
		}

		require.NoError(t, held.Hold(ctx))
		_, err := primary.ExecContext(ctx, s.text("UPDATE counter SET n = ? WHERE id = ?"), 1, 0)
		require.NoError(t, err)
		shows(other, 1)
		time.Sleep(200 * time.Millisecond)
		n, err := shown(held)
		require.NoError(t, err)
		require.Zero(t, n, "it is held")
		require.NoError(t, held.Release(ctx))
		shows(held, 1)

		connected := s.on(t, other)
		require.NoError(t, connected.PingContext(ctx))
		other.Proxy.SetDown(true)
		require.Error(t, connected.PingContext(ctx))
		_, err = shown(other)
		require.Error(t, err)
		other.Proxy.SetDown(false)
		shows(other, 1)
		require.NoError(t, connected.PingContext(ctx))

		_, err = s.on(t, held).ExecContext(ctx, s.text("UPDATE counter SET n = ? WHERE id = ?"), 2, 0)
		require.Error(t, err, "a replica refuses writes")
	})
}

func TestAReplicaIsPromoted(t *testing.T) {
	s := newStage(t, testbed.Postgres)
	ctx := t.Context()
	s.Primary.Kill(t)
	to := s.Newest(t)
	s.Promote(t, to)
	_, err := s.on(t, to).ExecContext(ctx, "UPDATE counter SET n = 1 WHERE id = 0")
	require.NoError(t, err)
	s.CatchUp(t)
}
