package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/byteproxy"
	"github.com/pooldriver/pooldriver/integration/sshtunnel"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// hidden is a name that leads to the account's server, and only for the tunnel.
const hidden = "db.hidden.invalid:4711"

// throughTunnel opens a pool whose connections go through a tunnel of SSH. The DSN has a
// name that only the other end of the tunnel knows.
func throughTunnel(t testing.TB, tunnel *sshtunnel.Tunnel, account testbed.Account, parameters ...string) (*sql.DB, *pooldriver.Connector) {
	t.Helper()
	connector := pooldriver.New(account.Via(hidden).URL(parameters...), quiet, func(c *pooldriver.Config) {
		c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if network != "tcp" || addr != hidden {
				return nil, errors.New("nobody is asked for but the server of the DSN: " + network + " " + addr)
			}
			return tunnel.Dial(ctx, network, account.Addr)
		}
	})
	db := sql.OpenDB(connector)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db, connector
}

func TestATunnelServesWhatASocketDoes(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		tunnel := sshtunnel.Open(t)
		db, connector := throughTunnel(t, tunnel, account, "pool_max_conns=1")
		mustExec(t, db, "CREATE TABLE written (id integer)")
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.Exec("INSERT INTO written VALUES (1)")
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		mark := map[bool]string{true: "$1", false: "?"}[account.Server.Engine == testbed.Postgres]
		var size int
		require.NoError(t, db.QueryRow("SELECT length("+mark+")", long).Scan(&size))
		require.Equal(t, len(long), size)
		var text string
		require.NoError(t, db.QueryRow("SELECT repeat('x', 1048576)").Scan(&text))
		require.Equal(t, long, text)

		before := tunnel.Dialled()
		mustExec(t, db, "SET SESSION "+map[bool]string{true: "TimeZone = 'Asia/Tokyo'", false: "time_zone = '+09:00'"}[account.Server.Engine == testbed.Postgres])
		mustExec(t, db, "INSERT INTO written VALUES (2)")
		require.Equal(t, before, tunnel.Dialled(), "the session was cleaned in place")
		require.NoError(t, db.Close())
		awaitBackends(t, account, 0)
		require.Zero(t, connector.Stats().Orphans)
	})
}

func TestTLSInATunnel(t *testing.T) {
	t.Parallel()
	for _, engine := range testbed.Engines() {
		t.Run(engine.String(), func(t *testing.T) {
			t.Parallel()
			account := testbed.Start(t, engine, testbed.WithTLSOnly()).NewAccount(t)
			tunnel := sshtunnel.Open(t)
			const host = "127.0.0.1" // which the certificate is for
			connector := pooldriver.New(account.URL("pool_max_conns=1"), quiet, func(c *pooldriver.Config) { c.Dial = tunnel.Dial })
			db := sql.OpenDB(connector)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			require.Contains(t, account.Addr, host)
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			require.True(t, encrypted(t, engine, conn))
			require.NoError(t, conn.Close())
			requireKilled(t, db, account)
			tunnel.Cut()
			awaitBackends(t, account, 0)
			require.NoError(t, db.PingContext(t.Context()), "the dead tunnel is noticed")
			require.NoError(t, db.Close())
			awaitBackends(t, account, 0)
		})
	}
}

// requireKilled cancels a statement and asserts that the server soon runs it no more,
// while the pool has a connection for others.
func requireKilled(t *testing.T, db *sql.DB, account testbed.Account) {
	t.Helper()
	inTime(t, 2*time.Second, func() time.Duration {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := db.ExecContext(ctx, sleepFor(account.Server.Engine, time.Hour))
		took := time.Since(began)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var one int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT 1").Scan(&one))
		awaitBackends(t, account, 1)
		if time.Since(began) >= 5*time.Second { // the statement's place is free before it would be given up
			return time.Since(began)
		}
		return took
	}, "the statement has ended in time")
}

func TestStatementsCancelledInATunnelAreKilledOnTheServer(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		db, connector := throughTunnel(t, sshtunnel.Open(t), account, "pool_max_conns=1")
		for range 5 {
			requireKilled(t, db, account)
		}
		require.Zero(t, connector.Stats().Orphans)
	})
}

// metered is what a connector for a cloud returns: a wrapper around a connection, here with deadlines that do
// nothing.
type metered struct{ net.Conn }

func (metered) SetDeadline(time.Time) error      { return nil }
func (metered) SetReadDeadline(time.Time) error  { return nil }
func (metered) SetWriteDeadline(time.Time) error { return nil }

func TestAConnectionInAWrapperIsAsGoodAsItsSocket(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		connector := pooldriver.New(account.URL("pool_max_conns=1"), quiet, func(c *pooldriver.Config) {
			c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				nc, err := new(net.Dialer).DialContext(ctx, network, addr)
				return &metered{nc}, err
			}
		})
		db := sql.OpenDB(connector)
		mustExec(t, db, "CREATE TABLE written (id integer)")
		for i := range randomtest.Rounds(10, 200) {
			mustExec(t, db, fmt.Sprintf("INSERT INTO written VALUES (%d)", i))
			account.KillIdle(t, 1)
			awaitBackends(t, account, 0)
		}
		var written int
		require.NoError(t, db.QueryRow("SELECT count(*) FROM written").Scan(&written))
		require.Equal(t, randomtest.Rounds(10, 200), written)
		require.Zero(t, connector.Stats().Retries, "a killed connection is seen before a statement is sent")
		requireKilled(t, db, account)
		require.NoError(t, db.Close())
		awaitBackends(t, account, 0)
		require.Zero(t, connector.Stats().Orphans)
	})
}

// TestTheServerSeesNoMoreConnectionsThroughATunnelThanAllowed has the crowd of the test
// without a tunnel.
func TestTheServerSeesNoMoreConnectionsThroughATunnelThanAllowed(t *testing.T) {
	t.Parallel()
	const limit = 4
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		random := randomtest.Seeded(t)
		if account.Server.Engine == testbed.Postgres {
			account.LimitConnections(t, limit) // the server itself refuses one more
		}
		watch := account.Watch(t)
		db, connector := throughTunnel(t, sshtunnel.Open(t), account, fmt.Sprintf("pool_max_conns=%d", limit))
		crowd := newCrowd(account.Server.Engine, db, random)
		crowd.run(t, func() {})
		require.Eventually(t, func() bool { return connector.Stats().Pool.Active == 0 }, 10*time.Second, time.Millisecond, "not at rest")
		require.NoError(t, db.Close())
		awaitBackends(t, account, 0)
		peak := watch.Stop()
		t.Logf("%+v, %s, orphans=%d", peak, crowd, connector.Stats().Orphans)
		require.LessOrEqual(t, peak.Backends, limit)
		require.Positive(t, crowd.done.Load())
		require.Positive(t, crowd.cancelled.Load())
		require.Zero(t, crowd.unavailable.Load())
		// On a busy machine the server may take longer than 5 s to end a connection.
		require.LessOrEqual(t, connector.Stats().Orphans, uint64(3), "of the connections that were ended")
	})
}

// TestADeadTunnelIsNobodysError ends idle connections: the server's side, and the tunnel
// itself.
func TestADeadTunnelIsNobodysError(t *testing.T) {
	t.Parallel()
	const size = 4
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		tunnel := sshtunnel.Open(t)
		setup := account.OpenBare(t)
		mustExec(t, setup, "CREATE TABLE written (id integer)")
		require.NoError(t, setup.Close())
		for _, use := range uses {
			for name, end := range map[string]func(t *testing.T){
				"server": func(t *testing.T) { account.KillIdle(t, size) },
				"tunnel": func(*testing.T) { tunnel.Cut() },
			} {
				t.Run(use.name+" "+name, func(t *testing.T) {
					db, _ := throughTunnel(t, tunnel, account, fmt.Sprintf("pool_max_conns=%d", size))
					next, err := use.prepare(t.Context(), db)
					require.NoError(t, err)
					fill(t, db, size)
					end(t)
					awaitBackends(t, account, 0)
					require.Eventually(t, func() bool { return tunnel.Forwards() == 0 }, slowMachine, time.Millisecond)
					time.Sleep(50 * time.Millisecond) // until the pool's side has read it
					for _, err := range parallel(4*size, next) {
						require.NoError(t, err)
					}
				})
			}
		}
	})
}

// TestATunnelThatFallsSilentIsNoticed: a network that is gone tells nobody. What was idle
// for more than a second is asked.
func TestATunnelThatFallsSilentIsNoticed(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		tunnel := sshtunnel.Open(t)
		proxy, err := byteproxy.Listen(tunnel.Addr())
		require.NoError(t, err)
		t.Cleanup(func() { _ = proxy.Close() })
		tunnel.Enter(proxy.Addr())
		db, _ := throughTunnel(t, tunnel, account, "pool_max_conns=2", "pool_ping_timeout=300ms")
		require.NoError(t, db.PingContext(t.Context()))
		time.Sleep(1200 * time.Millisecond)
		proxy.Arm(byteproxy.Fault{Direction: byteproxy.ToServer, Cut: byteproxy.Stall})
		tunnel.Enter(tunnel.Addr()) // the program has noticed, and connects anew
		began := time.Now()
		require.NoError(t, db.PingContext(t.Context()))
		require.Less(t, time.Since(began), slowMachine, "nothing else would end it")
		require.NoError(t, proxy.Close())
	})
}

// TestAStatementThatDidNotEnterTheTunnelIsSafeToRepeat: the program holds the connection,
// so nobody looks at it before its next statement, and no other connection may have its
// place. ErrBadConn says that nothing was executed.
func TestAStatementThatDidNotEnterTheTunnelIsSafeToRepeat(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		tunnel := sshtunnel.Open(t)
		db, _ := throughTunnel(t, tunnel, account, "pool_max_conns=1")
		mustExec(t, db, "CREATE TABLE once (id integer)")
		for range 5 {
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			require.NoError(t, conn.PingContext(t.Context()))
			tunnel.Cut()
			awaitBackends(t, account, 0)
			_, err = conn.ExecContext(t.Context(), "INSERT INTO once VALUES (1)")
			require.ErrorIs(t, err, driver.ErrBadConn)
			_ = conn.Close()
		}
		rows := -1
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM once").Scan(&rows))
		require.Zero(t, rows)
	})
}

// TestAStatementThatIsCutWhileItIsSentThroughATunnelBlocksNoPlace is the test of
// PostgreSQL's backends that wait for the rest.
func TestAStatementThatIsCutWhileItIsSentThroughATunnelBlocksNoPlace(t *testing.T) {
	tunnel := sshtunnel.Open(t)
	cutStatements(t, testbed.Shared(t, testbed.Postgres).NewAccount(t), front{open: func(t testing.TB, account testbed.Account, max int) *sql.DB {
		db, _ := throughTunnel(t, tunnel, account, fmt.Sprintf("pool_max_conns=%d", max))
		return db
	}}, randomtest.Seeded(t))
}

// TestAStatementInATunnelThatIsCutIsExecutedOnceAtMost cuts the server's connection after
// each third byte of a statement's way, and of its answer's; in a long run after each.
func TestAStatementInATunnelThatIsCutIsExecutedOnceAtMost(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		witness := account.Witness(t)
		mustExec(t, account.OpenBare(t), "CREATE TABLE once (id integer)")
		proxy, err := byteproxy.Listen(account.Addr)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, proxy.Close()) })
		db, _ := throughTunnel(t, sshtunnel.Open(t), account.Via(proxy.Addr()), "pool_max_conns=1")
		insert := func(id int) error {
			_, err := db.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO once VALUES (%d)", id))
			return err
		}
		require.NoError(t, insert(1000))
		proxy.Count()
		require.NoError(t, insert(1001))
		there, back := proxy.Counted()
		id, failed := 1001, 0
		for direction, length := range map[byteproxy.Direction]int64{byteproxy.ToServer: there, byteproxy.ToClient: back} {
			for at := int64(0); at < length; at += int64(randomtest.Rounds(3, 1)) {
				for _, cut := range []byteproxy.Cut{byteproxy.Reset, byteproxy.Finish} {
					require.NoError(t, db.PingContext(t.Context()))
					id++
					fault := byteproxy.Fault{Direction: direction, At: at, Cut: cut}
					struck := proxy.Arm(fault)
					err := insert(id)
					<-struck
					rows := -1
					require.NoError(t, witness.QueryRow(fmt.Sprintf("SELECT count(*) FROM once WHERE id = %d", id)).Scan(&rows))
					if err != nil {
						failed++
						require.LessOrEqual(t, rows, 1, "%s: %v", fault, err)
						continue
					}
					require.Equal(t, 1, rows, fault)
				}
			}
		}
		t.Logf("%d cuts, %d errors", id-1001, failed)
		var most int
		require.NoError(t, witness.QueryRow("SELECT max(n) FROM (SELECT count(*) AS n FROM once GROUP BY id) AS counts").Scan(&most))
		require.Equal(t, 1, most)
		require.NotZero(t, failed)
	})
}
