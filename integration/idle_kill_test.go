package integration

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

// use is a way to use a connection from the pool.
type use struct {
	name string
	// prepare is called before the connections are killed and returns what is
	// called after.
	prepare func(ctx context.Context, db *sql.DB) (func() error, error)
}

var uses = []use{
	{"query", func(ctx context.Context, db *sql.DB) (func() error, error) {
		return func() error {
			var one int
			return db.QueryRowContext(ctx, "SELECT 1").Scan(&one)
		}, nil
	}},
	{"exec", func(ctx context.Context, db *sql.DB) (func() error, error) {
		return func() error {
			_, err := db.ExecContext(ctx, "INSERT INTO written VALUES (1)")
			return err
		}, nil
	}},
	{"transaction", func(ctx context.Context, db *sql.DB) (func() error, error) {
		return func() error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if _, err := tx.ExecContext(ctx, "INSERT INTO written VALUES (1)"); err != nil {
				return err
			}
			return tx.Commit()
		}, nil
	}},
	{"prepare", func(ctx context.Context, db *sql.DB) (func() error, error) {
		return func() error {
			stmt, err := db.PrepareContext(ctx, "SELECT 1")
			if err != nil {
				return err
			}
			defer stmt.Close()
			var one int
			return stmt.QueryRowContext(ctx).Scan(&one)
		}, nil
	}},
	{"statement prepared before", func(ctx context.Context, db *sql.DB) (func() error, error) {
		stmt, err := db.PrepareContext(ctx, "SELECT 1")
		return func() error {
			var one int
			return stmt.QueryRowContext(ctx).Scan(&one)
		}, err
	}},
	{"connection", func(ctx context.Context, db *sql.DB) (func() error, error) {
		return func() error {
			conn, err := db.Conn(ctx)
			if err != nil {
				return err
			}
			defer conn.Close()
			var one int
			return conn.QueryRowContext(ctx, "SELECT 1").Scan(&one)
		}, nil
	}},
}

// TestIdleConnectionsKilledByTheAdministratorAreNobodysError fills the pool,
// has the server kill all of it, and then uses every connection.
func TestIdleConnectionsKilledByTheAdministratorAreNobodysError(t *testing.T) {
	t.Parallel()
	const size = 4
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		setup := account.OpenBare(t)
		mustExec(t, setup, "CREATE TABLE written (id integer)")
		require.NoError(t, setup.Close())
		for _, use := range uses {
			t.Run(use.name, func(t *testing.T) {
				db := wrapped.open(t, account, size)
				next, err := use.prepare(t.Context(), db)
				require.NoError(t, err)
				for _, inParallel := range []bool{false, true} {
					fill(t, db, size)
					account.KillIdle(t, size)
					awaitBackends(t, account, 0)
					// The server has hung up; Docker's proxy passes that on in its
					// own time. What is not there yet nobody can see.
					time.Sleep(50 * time.Millisecond)
					if inParallel {
						for _, err := range parallel(4*size, next) {
							require.NoError(t, err)
						}
						continue
					}
					for range 2 * size {
						require.NoError(t, next())
					}
				}
				require.NoError(t, db.Close())
				awaitBackends(t, account, 0)
			})
		}
	})
}

// fill makes the pool open n connections and leaves them idle.
func fill(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	conns := make([]*sql.Conn, n)
	for i := range conns {
		var err error
		conns[i], err = db.Conn(t.Context())
		require.NoError(t, err)
		// A connection may be opened no sooner than it is used.
		require.NoError(t, conns[i].PingContext(t.Context()))
	}
	for _, conn := range conns {
		require.NoError(t, conn.Close())
	}
}

func awaitBackends(t *testing.T, account testbed.Account, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		counted, _, err := account.Backends(t.Context())
		return err == nil && counted == n
	}, 10*time.Second, 2*time.Millisecond)
}

func parallel(n int, do func() error) []error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = do() })
	}
	all.Wait()
	return errs
}
