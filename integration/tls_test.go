package integration

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// atOnce is how long a failure that needs no waiting may take.
const atOnce = 20 * time.Second // pool_acquire_timeout is 30 s

// requireRefusal asserts that no connection comes about: with one error at the
// first use of New's connector and from Open, both at once, both naming the
// cause, neither giving the password away. It returns the first of them.
func requireRefusal(t *testing.T, account testbed.Account, cause string) error {
	t.Helper()
	dsn := account.URL("pool_max_conns=4")
	db := sql.OpenDB(pooldriver.New(dsn, quiet))
	defer db.Close()

	start := time.Now()
	first := db.PingContext(t.Context())
	opened, fromOpen := pooldriver.Open(dsn, quiet)
	require.Less(t, time.Since(start), atOnce)
	require.Nil(t, opened)
	for _, err := range []error{first, fromOpen} {
		require.Error(t, err)
		text := err.Error()
		require.Equal(t, 1, strings.Count(text, cause), "one cause, named once: %s", text)
		require.NotContains(t, text, account.Password)
		require.Less(t, len(text), 400, text)
	}
	t.Log(first)
	return first
}

func TestOptionsForTLSReachEveryConnection(t *testing.T) {
	t.Parallel()
	for _, engine := range testbed.Engines() {
		t.Run(engine.String(), func(t *testing.T) {
			t.Parallel()
			server := testbed.Start(t, engine, testbed.WithTLSOnly())
			account := server.NewAccount(t)

			db, err := pooldriver.Open(account.URL("pool_max_conns=4"), quiet)
			require.NoError(t, err)
			defer db.Close()
			for range 4 {
				conn, err := db.Conn(t.Context())
				require.NoError(t, err)
				defer conn.Close()
				require.True(t, encrypted(t, engine, conn))
			}

			t.Run("expired certificate", func(t *testing.T) {
				if engine == testbed.OracleMySQL {
					t.Skip("MySQL refuses to load an expired certificate")
				}
				server.UseCertificate(t, testbed.Expired)
				_ = requireRefusal(t, account, "certificate has expired or is not yet valid")
			})
			t.Run("certificate of another host", func(t *testing.T) {
				server.UseCertificate(t, testbed.WrongHost)
				_ = requireRefusal(t, account, "doesn't contain any IP SANs")
			})
		})
	}
}

func encrypted(t *testing.T, engine testbed.Engine, conn *sql.Conn) bool {
	t.Helper()
	if engine == testbed.Postgres {
		var on bool
		require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").Scan(&on))
		return on
	}
	var name, cipher string
	require.NoError(t, conn.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Ssl_cipher'").Scan(&name, &cipher))
	return cipher != ""
}

func TestWrongPasswordIsOneErrorAtOnceWithoutThePassword(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		account.Password = "Wrong-Password-8c1f"
		if account.Server.Engine == testbed.Postgres {
			err := requireRefusal(t, account, "28P01")
			var refused *pgconn.PgError
			require.True(t, errors.As(err, &refused))
			require.Equal(t, "28P01", refused.Code)
			return
		}
		err := requireRefusal(t, account, "1045")
		var refused *mysql.MySQLError
		require.True(t, errors.As(err, &refused))
		require.EqualValues(t, 1045, refused.Number)
	})
}

func TestRefusedConnectionIsOneErrorAtOnce(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := listener.Addr().String()
	require.NoError(t, listener.Close())
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		_ = requireRefusal(t, account.Via(nobody), "connection refused")
	})
}

func TestServerAtItsConnectionLimitIsOneErrorAtOnce(t *testing.T) {
	t.Parallel()
	cause := map[testbed.Engine]string{testbed.Postgres: "53300", testbed.MySQL: "1040"}
	for _, engine := range testbed.Engines() {
		t.Run(engine.String(), func(t *testing.T) {
			t.Parallel()
			server := testbed.Start(t, engine, testbed.WithMaxConnections(6))
			account := server.NewAccount(t)
			occupy(t, account.OpenBare(t))
			_ = requireRefusal(t, account, cause[engine])
		})
	}
}

// occupy takes connections until the server refuses one.
func occupy(t *testing.T, db *sql.DB) {
	t.Helper()
	for range 100 {
		conn, err := db.Conn(context.Background())
		if err != nil {
			return
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	require.Fail(t, "the server has no limit")
}
