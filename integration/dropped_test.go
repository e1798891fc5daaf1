package integration

import (
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// lines are what a logger wrote.
type lines struct {
	mu   sync.Mutex // protects text
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// with counts the lines that contain something.
func (l *lines) with(what string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, what) {
			n++
		}
	}
	return n
}

// TestStateThatEndsWithItsStatementIsToldOf: by Exec, Query, QueryRow with and without
// arguments, and not where it is kept.
func TestStateThatEndsWithItsStatementIsToldOf(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		log := &lines{}
		c := pooldriver.New(account.URL(), func(c *pooldriver.Config) {
			c.MaxConns, c.Logger = 2, slog.New(slog.NewTextHandler(log, nil))
		})
		db := sql.OpenDB(c)
		defer db.Close()
		setting, lock, release := "SET search_path = public", "SELECT pg_try_advisory_lock($1)", "SELECT pg_advisory_unlock($1)"
		if account.Server.Engine == testbed.MySQL {
			setting, lock, release = "SET time_zone = '+01:00'", "SELECT GET_LOCK(?, 0)", "SELECT RELEASE_LOCK(?)"
		}
		elected := func(row *sql.Row) {
			var got any
			require.NoError(t, row.Scan(&got))
		}
		for range 3 {
			_, err := db.ExecContext(t.Context(), setting)
			require.NoError(t, err)
			elected(db.QueryRowContext(t.Context(), lock, "1"))
		}
		require.EqualValues(t, 6, c.Stats().StateDropped)
		require.Equal(t, 2, log.with("set session state"))

		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		elected(conn.QueryRowContext(t.Context(), lock, "1"))
		require.NoError(t, conn.Close())
		task, end := pooldriver.WithTask(t.Context())
		elected(db.QueryRowContext(task, lock, "1"))
		elected(db.QueryRowContext(task, release, "1"))
		end()
		tx, err := db.Begin()
		require.NoError(t, err)
		elected(tx.QueryRowContext(t.Context(), lock, "1"))
		require.NoError(t, tx.Commit())
		for range 3 {
			_, err = db.ExecContext(t.Context(), "SELECT 1")
			require.NoError(t, err)
		}
		require.EqualValues(t, 6, c.Stats().StateDropped, "kept while they had a use")
	})
}

// TestALockThatTheConnsOfATaskShareIsToldOf: each of them has it, so it excludes none.
func TestALockThatTheConnsOfATaskShareIsToldOf(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		log := &lines{}
		db := sql.OpenDB(pooldriver.New(account.URL(), func(c *pooldriver.Config) {
			c.Logger = slog.New(slog.NewTextHandler(log, nil))
		}))
		defer db.Close()
		lock := "SELECT pg_advisory_lock(1)"
		if account.Server.Engine != testbed.Postgres {
			lock = "SELECT GET_LOCK('a', 1)"
		}
		locks := func(ctx context.Context, conn *sql.Conn) {
			rows, err := conn.QueryContext(ctx, lock)
			require.NoError(t, err)
			require.NoError(t, rows.Close())
		}
		const told = "a lock excludes none of them"
		for _, shared := range []bool{false, true} {
			ctx, end := pooldriver.WithTask(pooldriver.Label(t.Context(), "nightly"))
			for range 3 {
				conn, err := db.Conn(ctx)
				require.NoError(t, err)
				locks(ctx, conn)
				if !shared {
					require.NoError(t, conn.Close())
					continue
				}
				defer conn.Close()
			}
			end()
			require.Equal(t, shared, log.with(told) == 1, "of the kind once")
		}
		require.Equal(t, 1, log.with("label=nightly"))
		require.Equal(t, 1, log.with("dropped_test.go"), "with its place")
	})
}
