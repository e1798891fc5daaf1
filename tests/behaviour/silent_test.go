package behaviour

import (
	"context"
	"database/sql"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/pool"
)

// openSilent opens n connections to the stub, which are idle then, and has the server be
// silent on them, and on those that are dialled if all is set.
func openSilent(t *testing.T, n int, all bool, options ...pooldriver.Option) (*gateway, *sql.DB, *pooldriver.Connector) {
	t.Helper()
	g, db, c, _ := openGateway(t, options...)
	var held []*sql.Conn
	for range n {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, conn.PingContext(t.Context()))
		held = append(held, conn)
	}
	for _, conn := range held {
		require.NoError(t, conn.Close())
	}
	time.Sleep(2 * time.Second)
	g.OnPeek = func() dialects.Liveness { return dialects.Unsure }
	g.OnPing = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	if all {
		g.answer(hanging)
	}
	return g, db, c
}

// TestAStatementDoesNotAskEachHalfOpenConnection: ten idle connections through a NAT that has
// forgotten them cost one wait, and the statement is served.
func TestAStatementDoesNotAskEachHalfOpenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, db, c := openSilent(t, 10, false, quiet, func(c *pooldriver.Config) { c.AcquireTimeout = 3 * time.Second })
		g.Pings.Store(0)
		began := time.Now()
		_, err := db.ExecContext(t.Context(), "SELECT n FROM numbers LIMIT 1")
		require.NoError(t, err)
		require.Equal(t, 1500*time.Millisecond, time.Since(began), "half of the timeout for the ping")
		require.EqualValues(t, 1, g.Pings.Load())
		synctest.Wait()
		require.Equal(t, 1, c.Stats().Pool.Count, "the suspects are closed")
		require.NoError(t, db.Close())
		synctest.Wait()
	})
}

// TestConnectionsThatWorkMeanwhileAreNoSuspects.
func TestConnectionsThatWorkMeanwhileAreNoSuspects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, db, c := openSilent(t, 2, false, quiet)
		silent := g.OnPing
		g.OnPing = nil
		held, err := db.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, held.PingContext(t.Context()))
		g.OnPing = silent
		_, err = db.ExecContext(t.Context(), "SELECT n FROM numbers LIMIT 1")
		require.NoError(t, err)
		g.OnPing = nil
		require.NoError(t, held.Close())
		opened := c.Stats().Pool.Creates
		for range 4 {
			require.NoError(t, db.Ping())
		}
		require.Equal(t, opened, c.Stats().Pool.Creates)
		require.NoError(t, db.Close())
		synctest.Wait()
	})
}

// TestTheAcquireTimeoutBoundsChecksAndDialsTogether, and the error says what took the time.
func TestTheAcquireTimeoutBoundsChecksAndDialsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db, _ := openSilent(t, 10, true, quiet, func(c *pooldriver.Config) { c.AcquireTimeout = 3 * time.Second })
		began := time.Now()
		_, err := db.ExecContext(t.Context(), "SELECT n FROM numbers LIMIT 1")
		require.ErrorIs(t, err, pool.ErrTimeout)
		require.Equal(t, 3*time.Second, time.Since(began))
		require.ErrorContains(t, err, "the server has not answered")
		require.ErrorContains(t, err, "waited 3s")
		require.NoError(t, db.Close())
		synctest.Wait()
	})
}

// TestADeadlineThatAPingHasTakenIsToldSo.
func TestADeadlineThatAPingHasTakenIsToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db, _ := openSilent(t, 3, true, quiet)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := db.ExecContext(ctx, "SELECT n FROM numbers LIMIT 1")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "the server has not answered for 2s on a connection that was idle")
		require.ErrorContains(t, err, "waited 2s")
		require.NoError(t, db.Close())
		synctest.Wait()
	})
}

// TestANestedStatementsDialIsBoundedByTheAcquireTimeout.
func TestANestedStatementsDialIsBoundedByTheAcquireTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, db, _, _ := openGateway(t, quiet, func(c *pooldriver.Config) { c.AcquireTimeout = time.Second })
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		rows, err := db.QueryContext(ctx, "SELECT n FROM numbers LIMIT 3")
		require.NoError(t, err)
		defer rows.Close()
		g.answer(hanging)
		began := time.Now()
		_, err = db.ExecContext(ctx, "SELECT n FROM numbers LIMIT 1")
		if err != nil {
			require.ErrorIs(t, err, pool.ErrTimeout)
		}
		require.LessOrEqual(t, time.Since(began), time.Second)
		require.NoError(t, rows.Close())
		require.NoError(t, db.Close())
		synctest.Wait()
	})
}

// TestADatabaseMaySleepWhileNobodyUsesIt: a health check would keep a database awake that scales to
// zero. After a use it is asked once.
func TestADatabaseMaySleepWhileNobodyUsesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, db, c, _ := openGateway(t, quiet, func(c *pooldriver.Config) {
			c.MinConns, c.HealthCheckPeriod, c.MaxConnLifetime = 2, time.Minute, 0
		})
		for range 3 {
			_, err := db.ExecContext(t.Context(), "SELECT n FROM numbers LIMIT 1")
			require.NoError(t, err)
			g.Pings.Store(0)
			time.Sleep(61 * time.Second)
			synctest.Wait()
			require.EqualValues(t, 2, g.Pings.Load(), "each connection once")
			dials := c.Stats().Pool.Creates
			time.Sleep(12 * time.Hour)
			require.EqualValues(t, 2, g.Pings.Load())
			require.Equal(t, dials, c.Stats().Pool.Creates)
		}
		require.NoError(t, db.Close())
		synctest.Wait()
	})
}
