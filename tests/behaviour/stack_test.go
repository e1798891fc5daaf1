package behaviour

import (
	"context"
	"database/sql"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// TestAGoroutineWaitsOnAStackOf4kB has goroutines that do little else wait for a connection: to the primary and to a
// replica, with a floor and without. The next size of a stack is 8 kB. See docs/adr/0022.
func TestAGoroutineWaitsOnAStackOf4kB(t *testing.T) {
	if randomtest.Raced() {
		t.Skip("the race detector needs larger stacks")
	}
	for name, contextOf := range map[string]func(context.Context) context.Context{
		"primary":              func(ctx context.Context) context.Context { return ctx },
		"primary with a floor": pooldriver.WithReads,
		"replica":              pooldriver.Replica,
		"replica with a floor": func(ctx context.Context) context.Context { return pooldriver.Replica(pooldriver.WithReads(ctx)) },
	} {
		t.Run(name+", query", func(t *testing.T) {
			requireStack(t, contextOf, func(ctx context.Context, db *sql.DB) error {
				return db.QueryRowContext(ctx, read).Scan(new(int))
			})
		})
		t.Run(name+", exec", func(t *testing.T) {
			requireStack(t, contextOf, func(ctx context.Context, db *sql.DB) error {
				_, err := db.ExecContext(ctx, read)
				return err
			})
		})
	}
}

// requireStack has goroutines that make a call wait for the only connection.
func requireStack(t *testing.T, contextOf func(context.Context) context.Context, call func(context.Context, *sql.DB) error) {
	t.Helper()
	const waiters = 1000
	d := newReplicated()
	db, c := openReplicated(t, d, func(c *pooldriver.Config) { c.MaxConns, c.ReplicaMaxConns = 1, 1 })
	held, err := db.BeginTx(contextOf(t.Context()), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	var done sync.WaitGroup
	before := stacks()
	for range waiters {
		done.Go(func() {
			if err := call(contextOf(t.Context()), db); err != nil {
				t.Error(err)
			}
		})
	}
	require.Eventually(t, func() bool {
		s := c.Stats()
		return s.Pool.Waiting+s.Replica.Pools[0].Pool.Waiting == waiters
	}, time.Minute, time.Millisecond)
	each := (stacks() - before) / waiters
	require.NoError(t, held.Rollback())
	done.Wait()
	t.Logf("%d bytes for each", each)
	require.Less(t, each, uint64(5000))
}

func stacks() uint64 {
	runtime.GC() // frees those of goroutines that have ended
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.StackInuse
}
