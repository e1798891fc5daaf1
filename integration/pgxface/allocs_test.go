package pgxface

import (
	"context"
	"math"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// TestAllocationsBesidePgxpool bounds what a call allocates more than by pgxpool.
func TestAllocationsBesidePgxpool(t *testing.T) {
	if randomtest.Raced() {
		t.Skip("the race detector allocates")
	}
	b := open(t, "pool_max_conns=1")
	peer, err := pgxpool.New(t.Context(), b.URL("pool_max_conns=1"))
	require.NoError(t, err)
	defer peer.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, tc := range map[string]struct {
		extra float64
		run   func(f face) error
	}{
		"exec": {0, func(f face) error {
			_, err := f.Exec(ctx, "SELECT $1::int", 1)
			return err
		}},
		"query": {0, func(f face) error {
			rows, err := f.Query(ctx, "SELECT $1::int", 1)
			if err != nil {
				return err
			}
			_, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int32])
			return err
		}},
		"row": {0, func(f face) error {
			var n int32
			return f.QueryRow(ctx, "SELECT $1::int", 1).Scan(&n)
		}},
		"transaction": {5, func(f face) error {
			tx, err := f.Begin(ctx)
			if err != nil {
				return err
			}
			return tx.Commit(ctx)
		}},
		"batch of 20": {-20, func(f face) error {
			var batch pgx.Batch
			for range 20 {
				batch.Queue("SELECT $1::int", 1).QueryRow(func(row pgx.Row) error {
					var n int32
					return row.Scan(&n)
				})
			}
			return f.SendBatch(ctx, &batch).Close()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			allocs := func(f face) float64 {
				least := math.Inf(1) // goroutines of earlier tests may end late
				for range 3 {
					least = min(least, testing.AllocsPerRun(200, func() { require.NoError(t, tc.run(f)) }))
				}
				return least
			}
			theirs, ours := allocs(peer), allocs(b.pool)
			t.Logf("pgxpool %v, pgxpooldriver %v", theirs, ours)
			require.LessOrEqual(t, ours, theirs+tc.extra)
		})
	}
}
