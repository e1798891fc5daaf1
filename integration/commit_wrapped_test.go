package integration

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/byteproxy"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// TestACommitThatHappenedIsNotCalledSafeToRepeat cuts the connection between COMMIT and
// its answer, under a connector of pgx's own, where nobody counts bytes.
func TestACommitThatHappenedIsNotCalledSafeToRepeat(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	witness := account.Witness(t)
	mustExec(t, account.OpenBare(t), "CREATE TABLE t (a int)")
	proxy, err := byteproxy.Listen(account.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	db := sql.OpenDB(pooldriver.Wrap(connectorOf(t, account.Via(proxy.Addr())), quiet))
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	stored := 0
	for _, cut := range []byteproxy.Cut{byteproxy.Reset, byteproxy.Finish} {
		for name, commit := range map[string]func(*testing.T) error{
			"commit": func(t *testing.T) error {
				tx, err := db.Begin()
				require.NoError(t, err)
				_, err = tx.Exec("INSERT INTO t VALUES (1)")
				require.NoError(t, err)
				proxy.Arm(byteproxy.Fault{Direction: byteproxy.ToClient, Cut: cut})
				return tx.Commit()
			},
			"statement": func(t *testing.T) error {
				conn, err := db.Conn(t.Context())
				require.NoError(t, err)
				defer func() { _ = conn.Close() }()
				require.NoError(t, conn.PingContext(t.Context()))
				proxy.Arm(byteproxy.Fault{Direction: byteproxy.ToClient, Cut: cut})
				_, err = conn.ExecContext(t.Context(), "INSERT INTO t VALUES (1)")
				return err
			},
		} {
			t.Run(fmt.Sprint(cut, name), func(t *testing.T) {
				err := commit(t)
				t.Log(err)
				require.Error(t, err)
				stored++
				require.Eventually(t, func() bool { return pgRows(t, witness) == stored }, 10*time.Second, 10*time.Millisecond)
				require.False(t, pgconn.SafeToRetry(err))
				require.NotErrorIs(t, err, driver.ErrBadConn)
				require.True(t, errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, pgconn.ErrConnClosed), "pgx's own error: %v", err)
			})
		}
	}
	require.Equal(t, stored, pgRows(t, witness), "each is executed once")
}
