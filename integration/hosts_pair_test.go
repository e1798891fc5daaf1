package integration

import (
	"database/sql"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// pair are two servers of one engine that have nothing to do with each other,
// with the same account on both. Each begins as one that can be written to.
type pair struct {
	engine testbed.Engine
	a, b   *testbed.Server
	testbed.Account
}

const pairName = "pair"

func startPair(t *testing.T, engine testbed.Engine, opts ...testbed.Option) pair {
	t.Helper()
	p := pair{engine: engine, a: testbed.Start(t, engine, opts...), b: testbed.Start(t, engine, opts...)}
	p.Account = testbed.Account{Server: p.a, User: pairName, Password: "Secret-" + pairName, Database: pairName}
	for _, s := range []*testbed.Server{p.a, p.b} {
		if engine == testbed.Postgres {
			admin(t, s, "CREATE ROLE pair LOGIN PASSWORD '"+p.Password+"'", "CREATE DATABASE pair OWNER pair")
		} else {
			admin(t, s, "CREATE DATABASE pair", "CREATE USER pair@'%' IDENTIFIED BY '"+p.Password+"'", "GRANT ALL ON pair.* TO pair@'%'")
		}
		db := p.Via(s.Addr).OpenBare(t)
		mustExec(t, db, "CREATE TABLE written (n INT)")
		mustExec(t, db, "CREATE TABLE me (name VARCHAR(10))")
		mustExec(t, db, "INSERT INTO me VALUES ('"+p.nameOf(s)+"')")
		require.NoError(t, db.Close())
	}
	return p
}

// eachPair runs a test on two servers of each engine, the engines side by side.
func eachPair(t *testing.T, test func(t *testing.T, p pair), opts ...testbed.Option) {
	t.Helper()
	for _, engine := range testbed.Engines() {
		t.Run(engine.String(), func(t *testing.T) {
			t.Parallel()
			test(t, startPair(t, engine, opts...))
		})
	}
}

func (p pair) nameOf(s *testbed.Server) string {
	if s == p.a {
		return "a"
	}
	return "b"
}

// list is the addresses as a DSN has them.
func list(addresses ...string) string { return strings.Join(addresses, ",") }

func (p pair) open(t *testing.T, addresses string, parameters ...string) (*sql.DB, *pooldriver.Connector) {
	t.Helper()
	c := pooldriver.New(p.Via(addresses).URL(parameters...), quiet)
	db := sql.OpenDB(c)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db, c
}

// whose returns the server that a statement of db runs on.
func whose(t *testing.T, db *sql.DB) (name string) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT name FROM me").Scan(&name))
	return name
}

func admin(t *testing.T, s *testbed.Server, statements ...string) {
	t.Helper()
	db, err := s.Admin()
	require.NoError(t, err)
	for _, statement := range statements {
		mustExec(t, db, statement)
	}
}

// freeze makes a server refuse to write, for sessions that are open as well.
func freeze(t *testing.T, s *testbed.Server) { t.Helper(); write(t, s, false) }

// thaw makes it write again.
func thaw(t *testing.T, s *testbed.Server) { t.Helper(); write(t, s, true) }

func write(t *testing.T, s *testbed.Server, can bool) {
	t.Helper()
	setting := map[bool]string{true: "off", false: "on"}[can]
	if s.Engine == testbed.Postgres {
		admin(t, s, "ALTER SYSTEM SET default_transaction_read_only = "+setting, "SELECT pg_reload_conf()")
		db, err := s.Admin()
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			var now string
			require.NoError(t, db.QueryRowContext(t.Context(), "SHOW default_transaction_read_only").Scan(&now))
			return now == setting
		}, slowMachine, 10*time.Millisecond)
		return
	}
	admin(t, s, "SET GLOBAL read_only = "+setting)
}

// backends counts the account's connections on a server, by that server.
func (p pair) backends(t *testing.T, s *testbed.Server) int {
	t.Helper()
	a := p.Account
	a.Server = s
	counted, exempt, err := a.Backends(t.Context())
	require.NoError(t, err)
	return counted + exempt
}

func (p pair) rows(t *testing.T, s *testbed.Server) (n int) {
	t.Helper()
	db := p.Via(s.Addr).OpenBare(t)
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM written").Scan(&n))
	require.NoError(t, db.Close())
	return n
}

// hole is an address where connections are accepted and never answered; accepted
// counts them. With hangsUp they are closed at once.
func hole(t *testing.T, hangsUp bool) (address string, accepted func() int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done, n := make(chan struct{}), make(chan int, 1)
	n <- 0
	go func() {
		defer close(done)
		var held []net.Conn
		for {
			nc, err := l.Accept()
			if err != nil {
				break
			}
			n <- 1 + <-n
			if held = append(held, nc); hangsUp {
				_ = nc.Close()
			}
		}
		for _, nc := range held {
			_ = nc.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String(), func() int { now := <-n; n <- now; return now }
}
