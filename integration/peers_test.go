package integration

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
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
		patience := 2 * time.Second
		if name == "pooldriver" {
			patience = slowMachine
		}
		m := newMeeting(t, patience)
		var all sync.WaitGroup
		errs := make([]error, 2)
		for i := range errs {
			all.Go(func() {
				first := true
				errs[i] = p.inLoop(m, func() error {
					if first {
						m.pass()
						first = false
					}
					_, err := p.ask(m, "SELECT 'x'")
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

// meeting is where two goroutines wait for each other. It is a context that ends so long after both have come, however
// long that took.
type meeting struct {
	context.Context
	end      func()
	missing  atomic.Int32
	met      chan struct{}
	patience time.Duration
}

func newMeeting(t *testing.T, patience time.Duration) *meeting {
	done := make(chan struct{})
	m := &meeting{Context: expiring{t.Context(), done}, end: sync.OnceFunc(func() { close(done) }), met: make(chan struct{}), patience: patience}
	m.missing.Store(2)
	late := time.AfterFunc(slowMachine, m.end)
	t.Cleanup(func() { late.Stop(); m.end() })
	return m
}

// pass returns when both have come, or one of them will not.
func (m *meeting) pass() {
	if m.missing.Add(-1) == 0 {
		time.AfterFunc(m.patience, m.end)
		close(m.met)
	}
	select {
	case <-m.met:
	case <-m.Done():
	}
}

// TestPostgresPeersServeInOrder: the order of waiting callers.
func TestPostgresPeersServeInOrder(t *testing.T) {
	t.Parallel()
	const waiters = 20
	eachPeer(t, 1, func(t *testing.T, name string, p peer) {
		serve := func() (served []int) {
			release, err := p.hold(t.Context())
			require.NoError(t, err)
			var mu sync.Mutex
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
			return served
		}
		inOrder := name != "database/sql"
		served := serve()
		for try := 1; inOrder && try < mostTries && !slices.IsSorted(served); try++ { // one that did not run for 20 ms came late
			served = serve()
		}
		require.Equal(t, inOrder, slices.IsSorted(served), "served %v", served)
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
		m := newMeeting(t, 2*time.Second)
		var all sync.WaitGroup
		errs := make([]error, 2)
		for i := range errs {
			all.Go(func() {
				release, err := p.hold(m)
				if err != nil {
					errs[i] = err
					return
				}
				defer release()
				m.pass()
				_, errs[i] = p.ask(m, "SELECT 'x'")
			})
		}
		all.Wait()
		require.ErrorIs(t, errs[0], context.DeadlineExceeded, "it hangs")
	})
}
