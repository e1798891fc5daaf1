package integration

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// peer is a pool of the table of docs/compared.md, with as many connections as it was opened
// with.
type peer struct {
	// exec executes a statement on a connection of the pool.
	exec func(ctx context.Context, query string) error
	// inLoop opens rows, and calls f while they are open.
	inLoop func(ctx context.Context, f func() error) error
	// ask queries a text.
	ask func(ctx context.Context, query string) (string, error)
	// hold takes a connection until release is called.
	hold func(ctx context.Context) (release func(), err error)
}

var errUnfinished = errors.New("the loop's rows were not read")

// loop calls f for each of three rows.
func loop(rows interface {
	Next() bool
	Err() error
}, f func() error,
) error {
	read := 0
	for ; rows.Next(); read++ {
		if err := f(); err != nil {
			return err
		}
	}
	if read < 3 && rows.Err() == nil {
		return errUnfinished
	}
	return rows.Err()
}

func sqlPeer(db *sql.DB) peer {
	return peer{
		exec: func(ctx context.Context, query string) error { _, err := db.ExecContext(ctx, query); return err },
		inLoop: func(ctx context.Context, f func() error) error {
			rows, err := db.QueryContext(ctx, "SELECT generate_series(1, 3)")
			if err != nil {
				return err
			}
			defer rows.Close()
			return loop(rows, f)
		},
		ask: func(ctx context.Context, query string) (answer string, err error) {
			return answer, db.QueryRowContext(ctx, query).Scan(&answer)
		},
		hold: func(ctx context.Context) (func(), error) {
			conn, err := db.Conn(ctx)
			if err != nil {
				return nil, err
			}
			return func() { _ = conn.Close() }, conn.PingContext(ctx)
		},
	}
}

func pgxpoolPeer(pool *pgxpool.Pool) peer {
	return peer{
		exec: func(ctx context.Context, query string) error { _, err := pool.Exec(ctx, query); return err },
		inLoop: func(ctx context.Context, f func() error) error {
			rows, err := pool.Query(ctx, "SELECT generate_series(1, 3)")
			if err != nil {
				return err
			}
			defer rows.Close()
			return loop(rows, f)
		},
		ask: func(ctx context.Context, query string) (answer string, err error) {
			return answer, pool.QueryRow(ctx, query).Scan(&answer)
		},
		hold: func(ctx context.Context) (func(), error) {
			conn, err := pool.Acquire(ctx)
			if err != nil {
				return nil, err
			}
			return conn.Release, nil
		},
	}
}

// eachPeer runs f with each pool of n connections, and with what the table says of it.
func eachPeer(t *testing.T, n int, f func(t *testing.T, name string, p peer)) {
	t.Helper()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	ours := sql.OpenDB(pooldriver.New(account.URL(), quiet, func(c *pooldriver.Config) { c.MaxConns = n }))
	t.Cleanup(func() { _ = ours.Close() })
	bare := account.OpenBare(t)
	bare.SetMaxOpenConns(n)
	config, err := pgxpool.ParseConfig(account.URL())
	require.NoError(t, err)
	config.MaxConns = int32(n)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	for name, p := range map[string]peer{"pooldriver": sqlPeer(ours), "database/sql": sqlPeer(bare), "pgxpool": pgxpoolPeer(pool)} {
		t.Run(name, func(t *testing.T) { f(t, name, p) })
	}
}

// TestPostgresPeersInRowsLoops: all connections are in rows loops, and each loop runs a query.
func TestPostgresPeersInRowsLoops(t *testing.T) {
	t.Parallel()
	eachPeer(t, 2, func(t *testing.T, name string, p peer) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		var together, all sync.WaitGroup
		together.Add(2)
		errs := make([]error, 2)
		for i := range errs {
			all.Go(func() {
				first := true
				errs[i] = p.inLoop(ctx, func() error {
					if first {
						together.Done()
						together.Wait()
						first = false
					}
					_, err := p.ask(ctx, "SELECT 'x'")
					return err
				})
			})
		}
		all.Wait()
		if name == "pooldriver" {
			require.NoError(t, errors.Join(errs...))
		} else {
			require.ErrorIs(t, errs[0], context.DeadlineExceeded, "it hangs")
			require.ErrorIs(t, errs[1], context.DeadlineExceeded, "it hangs")
		}
	})
}

// TestPostgresPeersServeInOrder: the order of waiting callers.
func TestPostgresPeersServeInOrder(t *testing.T) {
	t.Parallel()
	const waiters = 20
	eachPeer(t, 1, func(t *testing.T, name string, p peer) {
		release, err := p.hold(t.Context())
		require.NoError(t, err)
		var mu sync.Mutex
		var served []int
		var all sync.WaitGroup
		for i := range waiters {
			all.Go(func() {
				mine, err := p.hold(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				served = append(served, i)
				mu.Unlock()
				mine()
			})
			time.Sleep(20 * time.Millisecond) // it waits now
		}
		release()
		all.Wait()
		require.Equal(t, name != "database/sql", slices.IsSorted(served), "served %v", served)
	})
}

// TestPostgresPeersAndTheStateOfTheLastBorrower: what the next one finds.
func TestPostgresPeersAndTheStateOfTheLastBorrower(t *testing.T) {
	t.Parallel()
	eachPeer(t, 1, func(t *testing.T, name string, p peer) {
		require.NoError(t, p.exec(t.Context(), "SET app.of = 'the last one'"))
		got, err := p.ask(t.Context(), "SELECT coalesce(current_setting('app.of', true), '')")
		require.NoError(t, err)
		if name == "pooldriver" {
			require.Empty(t, got)
		} else {
			require.Equal(t, "the last one", got)
		}
	})
}

// TestPostgresPeersWhereEachHolderWaitsForOneMore: nobody can go on.
func TestPostgresPeersWhereEachHolderWaitsForOneMore(t *testing.T) {
	t.Parallel()
	eachPeer(t, 2, func(t *testing.T, name string, p peer) {
		if name == "pooldriver" {
			return // an error in tasks, and that is tested with them: task_cycle_test.go
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		var together, all sync.WaitGroup
		together.Add(2)
		errs := make([]error, 2)
		for i := range errs {
			all.Go(func() {
				release, err := p.hold(ctx)
				if err != nil {
					errs[i] = err
					return
				}
				defer release()
				together.Done()
				together.Wait()
				_, errs[i] = p.ask(ctx, "SELECT 'x'")
			})
		}
		all.Wait()
		require.ErrorIs(t, errs[0], context.DeadlineExceeded, "it hangs")
	})
}
