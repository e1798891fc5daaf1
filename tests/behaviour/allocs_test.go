package behaviour

import (
	"context"
	"database/sql"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// TestNothingIsAllocatedOnTheWayToTheDriver compares with plain database/sql,
// whose own allocations we cannot help. It hands a copy of each argument to a
// connection that checks arguments, which is one more where the bare driver
// does not.
func TestNothingIsAllocatedOnTheWayToTheDriver(t *testing.T) {
	ctx := context.Background()
	for name, tc := range map[string]struct {
		extra float64
		run   func(db *sql.DB) error
	}{
		"exec": {1, func(db *sql.DB) error {
			_, err := db.ExecContext(ctx, "insert into t values (?, ?)", int64(1), "x")
			return err
		}},
		"exec without arguments": {0, func(db *sql.DB) error {
			_, err := db.ExecContext(ctx, "delete from t")
			return err
		}},
		"query": {1, func(db *sql.DB) error {
			rows, err := db.QueryContext(ctx, "select a from t where b = ?", int64(1))
			if err != nil {
				return err
			}
			return rows.Close()
		}},
		"transaction": {1, func(db *sql.DB) error { // the transaction
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			return tx.Commit()
		}},
		"ping": {0, func(db *sql.DB) error { return db.PingContext(ctx) }},
	} {
		t.Run(name, func(t *testing.T) {
			allocs := func(db *sql.DB) float64 {
				defer db.Close()
				least := math.Inf(1) // beside other tests goroutines end late, and new ones are made
				for range 3 {
					least = min(least, testing.AllocsPerRun(500, func() {
						if err := tc.run(db); err != nil {
							t.Fatal(err)
						}
					}))
				}
				return least
			}
			plain := allocs(sql.OpenDB(fakedb.NullConnector{Rows: 1}))
			ours := allocs(sql.OpenDB(pooldriver.Wrap(fakedb.NullConnector{Rows: 1})))
			require.LessOrEqual(t, ours, plain+tc.extra)
		})
	}
}
