package integration

import (
	"context"
	"crypto/tls"
	"database/sql"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// clientFiles are the names of the certificate and the key that a program presents.
type clientFiles struct{ certificate, key string }

func (f clientFiles) write(t *testing.T, certificate, key []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(f.certificate, certificate, 0o600))
	require.NoError(t, os.WriteFile(f.key, key, 0o600))
}

// TestALoginByCertificate on every way to a server of PostgreSQL, with files that are replaced while
// the program runs.
func TestALoginByCertificate(t *testing.T) {
	t.Parallel()
	server := testbed.Start(t, testbed.Postgres, testbed.WithTLSOnly())
	account := server.NewAccount(t)
	account.RequireCertificate(t)
	dir := t.TempDir()
	files := clientFiles{certificate: filepath.Join(dir, "client.crt"), key: filepath.Join(dir, "client.key")}
	certificate, key, _ := server.ClientCertificate(t, account.User)
	files.write(t, certificate, key)

	account.Password = ""
	base := account.URL("pool_max_conns=1", "sslcert="+url.QueryEscape(files.certificate), "sslkey="+url.QueryEscape(files.key))
	u, err := url.Parse(base)
	require.NoError(t, err)
	with := func(host string, more ...string) string {
		v, query := *u, u.Query()
		v.Host, v.User = host, url.User(account.User)
		for i := 0; i < len(more); i += 2 {
			query.Set(more[i], more[i+1])
		}
		v.RawQuery = query.Encode()
		return v.String()
	}
	_, port, err := net.SplitHostPort(account.Addr)
	require.NoError(t, err)
	presented := func(db *sql.DB) *big.Int {
		var text string
		require.NoError(t, db.QueryRow("SELECT client_serial FROM pg_stat_ssl WHERE pid = pg_backend_pid()").Scan(&text))
		n, ok := new(big.Int).SetString(text, 10)
		require.True(t, ok, text)
		return n
	}
	for name, dsn := range map[string]string{
		"one host":            with(account.Addr),
		"behind a dead host":  with("127.0.0.1:1," + account.Addr),
		"with fallbacks":      with(account.Addr, "sslmode", "prefer"),
		"with a role":         with("127.0.0.1:1,"+account.Addr, "target_session_attrs", "read-write"),
		"addresses of a name": with("localhost:"+port, "sslmode", "verify-ca"),
	} {
		t.Run(name, func(t *testing.T) {
			certificate, key, number := server.ClientCertificate(t, account.User)
			files.write(t, certificate, key)
			connector := pooldriver.New(dsn, quiet)
			db := sql.OpenDB(connector)
			defer db.Close()
			require.Equal(t, number, presented(db))

			certificate, key, number = server.ClientCertificate(t, account.User)
			files.write(t, certificate, key)
			connector.Flush()
			require.Equal(t, number, presented(db))
		})
	}

	connector := pooldriver.New(with(account.Addr), quiet)
	db := sql.OpenDB(connector)
	defer db.Close()
	t.Run("a request to cancel", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := db.ExecContext(ctx, "SELECT pg_sleep(60)")
		require.Error(t, err)
		require.Eventually(t, func() bool {
			var n int
			require.NoError(t, account.Witness(t).QueryRow("SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND state = 'active'", account.User).Scan(&n))
			return n == 0
		}, 20*time.Second, 20*time.Millisecond)
	})
	t.Run("a listener", func(t *testing.T) {
		heard := make(chan string, 1)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- connector.Listen(ctx, "arrivals", func(_ context.Context, n pooldriver.Notification) {
				if n.Gap {
					n.Payload = "listens"
				}
				heard <- n.Payload
			})
		}()
		require.Equal(t, "listens", <-heard)
		_, err = db.Exec("NOTIFY arrivals, 'one'")
		require.NoError(t, err)
		require.Equal(t, "one", <-heard)
		cancel()
		require.NoError(t, <-ended)
	})
	t.Run("a certificate of somebody else", func(t *testing.T) {
		certificate, key, _ := server.ClientCertificate(t, "somebody")
		files.write(t, certificate, key)
		connector.Flush()
		require.ErrorContains(t, db.Ping(), "28000")
	})
}

// TestALoginByCertificateOnMySQL with a certificate that is replaced while the program runs, and
// with the connection that kills a cancelled statement.
func TestALoginByCertificateOnMySQL(t *testing.T) {
	t.Parallel()
	server := testbed.Start(t, testbed.MySQL, testbed.WithTLSOnly())
	account := server.NewAccount(t)
	account.RequireCertificate(t)
	var present atomic.Pointer[tls.Certificate]
	var asked atomic.Int32
	replace := func(user string) {
		certificate, key, _ := server.ClientCertificate(t, user)
		pair, err := tls.X509KeyPair(certificate, key)
		require.NoError(t, err)
		present.Store(&pair)
	}
	config := server.ClientTLS()
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		asked.Add(1)
		return present.Load(), nil
	}
	name := "client-" + account.User
	require.NoError(t, mysql.RegisterTLSConfig(name, config))
	defer mysql.DeregisterTLSConfig(name)

	replace(account.User)
	connector := pooldriver.New(fmt.Sprintf("mysql://%s:%s@%s/%s?tls=%s&pool_max_conns=1", account.User, account.Password, account.Addr, account.Database, name), quiet)
	db := sql.OpenDB(connector)
	defer db.Close()
	require.NoError(t, db.Ping())
	replace(account.User)
	connector.Flush()
	require.NoError(t, db.Ping())
	require.EqualValues(t, 2, asked.Load())

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := db.ExecContext(ctx, "DO SLEEP(60)")
	require.Error(t, err)
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, account.Witness(t).QueryRow("SELECT count(*) FROM performance_schema.threads WHERE processlist_user = ? AND processlist_info LIKE 'DO SLEEP%'", account.User).Scan(&n))
		return n == 0
	}, 20*time.Second, 20*time.Millisecond)

	replace("somebody")
	connector.Flush()
	require.ErrorContains(t, db.Ping(), "1045")
}
