package pgxface

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// Behind PgBouncer in transaction mode the server of a connection changes with each transaction.
func TestBehindPgBouncer(t *testing.T) {
	t.Parallel()
	account := testbed.Start(t, testbed.Postgres, testbed.WithNetwork(testbed.NewNetwork(t), "db")).NewAccount(t)
	via := account.Via(testbed.StartPgBouncer(t, account, "default_pool_size=2", "max_prepared_statements=200").Addr)
	for _, mode := range []string{"simple_protocol", "exec", "cache_describe", "cache_statement"} {
		t.Run(mode, func(t *testing.T) {
			b := over(t, account, pooldriver.New(via.URL("default_query_exec_mode="+mode), quiet))
			_, err := b.pool.Exec(t.Context(), "CREATE TABLE IF NOT EXISTS t (id int); TRUNCATE t")
			require.NoError(t, err)
			var g errgroup.Group
			for range 4 {
				g.Go(func() error {
					for i := range 10 {
						if err := pooldriver.Do(t.Context(), func(ctx context.Context) error {
							return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
								rows, err := b.pool.Query(ctx, "SELECT generate_series(1, $1::int)", 3)
								if err != nil {
									return err
								}
								if _, err := b.db.ExecContext(ctx, "INSERT INTO t VALUES ($1)", i); err != nil {
									return err
								}
								if _, err := pgx.CollectRows(rows, pgx.RowTo[int]); err != nil {
									return err
								}
								var batch pgx.Batch
								batch.Queue("INSERT INTO t VALUES ($1)", i)
								batch.Queue("SELECT count(*) FROM t WHERE id = $1", i)
								if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
									return err
								}
								_, err = tx.CopyFrom(ctx, pgx.Identifier{"t"}, []string{"id"}, pgx.CopyFromRows([][]any{{int32(i)}}))
								return err
							})
						}); err != nil {
							return err
						}
					}
					return nil
				})
			}
			require.NoError(t, g.Wait())
			require.Equal(t, 120, ask[int](t.Context(), t, b.pool, "SELECT count(*) FROM t"))
			b.atRest(t)
		})
	}
}
