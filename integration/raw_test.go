package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// TestRawAndItsConnOnRealServers: what the function tries with its own *sql.Conn is
// refused at once, the connection is good for more afterwards, and one that the function
// has closed is named.
func TestRawAndItsConnOnRealServers(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		for _, inTask := range []bool{false, true} {
			ctx := t.Context()
			if inTask {
				task, end := pooldriver.WithTask(ctx)
				defer end()
				ctx = task
			}
			c := pooldriver.New(account.URL("pool_max_conns=1"), quiet)
			db := sql.OpenDB(c)
			defer db.Close()
			conn, err := db.Conn(ctx)
			require.NoError(t, err)
			began := time.Now()
			for range 3 {
				require.NoError(t, pooldriver.Raw(ctx, conn, func(dc driver.Conn) error {
					_, err := conn.ExecContext(ctx, "SELECT 1")
					require.ErrorContains(t, err, "lent to a function of Raw")
					_, err = conn.BeginTx(ctx, nil)
					require.ErrorContains(t, err, "lent to a function of Raw")
					_, err = dc.(driver.ExecerContext).ExecContext(ctx, "SELECT 1", nil)
					return err
				}))
				_, err = conn.ExecContext(ctx, "SELECT 1")
				require.NoError(t, err)
			}
			require.Less(t, time.Since(began), 20*time.Second, "pool_acquire_timeout is 30 s")
			require.Zero(t, c.Stats().Discards)

			require.NoError(t, pooldriver.Raw(ctx, conn, func(dc driver.Conn) error { return closeBare(ctx, dc) }))
			_, err = conn.ExecContext(ctx, "SELECT 1")
			require.ErrorContains(t, err, "the function of Raw has closed the connection")
			require.ErrorIs(t, conn.Close(), sql.ErrConnDone)
			_, err = db.ExecContext(ctx, "SELECT 1")
			require.NoError(t, err)
		}
	})
}

func closeBare(ctx context.Context, dc driver.Conn) error {
	if pg, ok := dc.(*stdlib.Conn); ok {
		return pg.Conn().Close(ctx)
	}
	return dc.Close()
}
