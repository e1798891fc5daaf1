package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/byteproxy"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// TestAContextThatEndsWhileAStatementIsBeingSentIsFoundInItsError: the server has
// stopped reading in the middle of it.
func TestAContextThatEndsWhileAStatementIsBeingSentIsFoundInItsError(t *testing.T) {
	t.Parallel()
	errWhy := errors.New("the request has gone")
	long := "SELECT '" + strings.Repeat("x", 12<<20) + "'"
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		proxy, err := byteproxy.Listen(account.Addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = proxy.Close() })
		for _, f := range []front{wrapped, around} {
			for _, task := range []bool{false, true} {
				t.Run(fmt.Sprint(f.name, " task=", task), func(t *testing.T) {
					db := f.open(t, account.Via(proxy.Addr()), 1)
					parent := t.Context()
					if task {
						var end func()
						parent, end = pooldriver.NewTask(parent)
						defer end()
					}
					conn, err := db.Conn(parent)
					require.NoError(t, err)
					defer func() { _ = conn.Close() }()
					require.NoError(t, conn.PingContext(parent))
					proxy.Arm(byteproxy.Fault{Direction: byteproxy.ToServer, At: 1 << 20, Cut: byteproxy.Stall})
					ctx, cancel := context.WithTimeoutCause(parent, 300*time.Millisecond, errWhy)
					defer cancel()
					_, err = conn.ExecContext(ctx, long)
					t.Log(err)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.ErrorIs(t, err, errWhy)
				})
			}
		}
	})
}
