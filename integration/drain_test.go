package integration

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
	"github.com/pooldriver/pooldriver/pool"
)

// TestDrainUnderLoad drains a pool again and again while programs begin transactions.
// Nothing that has begun fails, the server has no connection when Drain returns, and that
// is soon after the last transaction.
func TestDrainUnderLoad(t *testing.T) {
	const conns = 4
	rounds := randomtest.Rounds(40, 100)
	late := 100 * time.Millisecond
	if !randomtest.Long() {
		late *= 10 // on a machine that does other things, too
	}
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		s := serverStage(t, account)
		var committed int64
		var latest time.Duration
		pulse := feelPulse(t, s.witness)
		for round := range rounds {
			programs := conns
			if round%2 == 1 {
				programs = 3 * conns // most of them wait
			}
			l := &drainLoad{stagePool: s.open(t, conns, func(c *pooldriver.Config) { c.LazyBegin = round%4 > 1 })}
			var all sync.WaitGroup
			for range programs {
				all.Go(func() {
					for l.transact(t) {
					}
				})
			}
			time.Sleep(20*time.Millisecond + rand.N(40*time.Millisecond))
			_ = pulse.late()
			began := time.Now()
			require.NoError(t, l.connector.Drain(t.Context()))
			took := time.Since(began)
			requireAllEnded(t, account)
			all.Wait()
			longest := time.Duration(l.longest.Load())
			require.Less(t, took, longest+late+3*pulse.late(), "longest transaction: %v", longest)
			latest = max(latest, took-longest)
			committed += l.committed.Load()
		}
		t.Logf("%d transactions in %d rounds; Drain took as long as the longest of a round and %v, at the most", committed, rounds, latest.Round(time.Millisecond))
		var stored int64
		require.NoError(t, s.witness.QueryRow("SELECT count(*) FROM ledger").Scan(&stored))
		require.Equal(t, committed, stored)
	})
}

// drainLoad is the load of a round.
type drainLoad struct {
	stagePool
	committed atomic.Int64
	longest   atomic.Int64 // transaction, in nanoseconds, with its wait for a connection
}

// transact runs a transaction, alone or in a task whose other statements join it. It reports
// false if it was refused before it had begun.
func (l *drainLoad) transact(t *testing.T) bool {
	ctx, began := context.Background(), time.Now()
	inTask := rand.IntN(2) == 0
	if inTask {
		withTask, end := pooldriver.WithTask(ctx)
		defer end()
		ctx = withTask
	}
	tx, err := l.BeginTx(ctx, nil)
	if err != nil {
		if !errors.Is(err, pool.ErrClosed) {
			t.Errorf("begin: %v", err)
		}
		return false
	}
	if err := l.finish(ctx, tx, inTask); err != nil {
		t.Errorf("a transaction that had begun: %v", err)
		return false
	}
	l.committed.Add(1)
	for took, longest := int64(time.Since(began)), l.longest.Load(); took > longest && !l.longest.CompareAndSwap(longest, took); {
		longest = l.longest.Load()
	}
	return true
}

func (l *drainLoad) finish(ctx context.Context, tx *sql.Tx, inTask bool) error {
	time.Sleep(rand.N(30 * time.Millisecond))
	if _, err := tx.ExecContext(ctx, insertInto(1)); err != nil {
		return err
	}
	if inTask {
		var n int
		if err := l.QueryRowContext(ctx, "SELECT count(*) FROM ledger").Scan(&n); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// TestDrainWaitsForANestedTransactionWithAConnectionOfItsOwn: the outer transaction waits
// for the inner one, which is new on the server.
func TestDrainWaitsForANestedTransactionWithAConnectionOfItsOwn(t *testing.T) {
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		s := serverStage(t, account)
		db := s.open(t, 2)
		drained := make(chan error, 1)
		require.NoError(t, pooldriver.InTx(t.Context(), db.DB, nil, func(ctx context.Context, tx *sql.Tx) error {
			go func() { drained <- db.connector.Drain(context.Background()) }()
			require.Eventually(t, func() bool { return errors.Is(db.Ping(), pool.ErrClosed) }, 10*time.Second, time.Millisecond)
			_, err := tx.ExecContext(ctx, insertInto(1))
			require.NoError(t, err)
			separate, end := pooldriver.NewTask(ctx)
			defer end()
			return pooldriver.InTx(separate, db.DB, nil, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, insertInto(2))
				return err
			})
		}))
		require.NoError(t, <-drained)
		require.Equal(t, []int{1, 2}, s.stored(t))
		requireAllEnded(t, account)
	})
}
