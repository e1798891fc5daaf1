package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/inspect"
	"github.com/pooldriver/pooldriver/integration/byteproxy"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// heard is what one Listen of a test has been told.
type heard struct {
	told  chan pooldriver.Notification
	ended chan error
	stop  context.CancelFunc
}

// listenTo begins to listen, and ends with the test.
func listenTo(t *testing.T, c *pooldriver.Connector, channel string) *heard {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	h := &heard{told: make(chan pooldriver.Notification, 100), ended: make(chan error, 1), stop: stop}
	go func() {
		h.ended <- c.Listen(ctx, channel, func(_ context.Context, n pooldriver.Notification) { h.told <- n })
	}()
	t.Cleanup(stop)
	return h
}

// listenUnproven listens to news where nobody knows whether notifications arrive.
func listenUnproven(t *testing.T, account testbed.Account) *heard {
	t.Helper()
	c := pooldriver.New(account.URL(), quiet)
	require.NoError(t, c.Err())
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	h := listenTo(t, c, "news")
	h.gap(t)
	require.Equal(t, pooldriver.ListenUnproven, c.Stats().Listen.State)
	return h
}

func (h *heard) next(t *testing.T) pooldriver.Notification {
	t.Helper()
	select {
	case n := <-h.told:
		return n
	case err := <-h.ended:
		require.FailNow(t, "Listen has returned", "%v", err)
	case <-time.After(20 * time.Second):
		require.FailNow(t, "nothing was told")
	}
	panic("unreachable")
}

func (h *heard) gap(t *testing.T) pooldriver.Notification {
	t.Helper()
	n := h.next(t)
	require.True(t, n.Gap, "%+v", n)
	return n
}

func TestNotificationsOfTheProgramsOwnSessionsArrive(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	c := pooldriver.New(account.URL("pool_max_conns=1"), quiet)
	db := sql.OpenDB(c)
	defer db.Close()
	h := listenTo(t, c, "News \"of\" the day")
	require.Zero(t, h.gap(t).Since)
	mustExec(t, db, "SELECT pg_notify('News \"of\" the day', 'one')")
	n := h.next(t)
	require.Equal(t, pooldriver.Notification{Channel: "News \"of\" the day", Payload: "one"}, n)
}

// TestAChannelsNameIsData: pg_notify takes it as it is, and only the words of a statement are folded.
func TestAChannelsNameIsData(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	c := pooldriver.New(account.URL(), quiet)
	db := sql.OpenDB(c)
	defer db.Close()
	upper, lower := listenTo(t, c, "Jobs"), listenTo(t, c, "jobs")
	longest := listenTo(t, c, strings.Repeat("ü", 31)+"x")
	for _, h := range []*heard{upper, lower, longest} {
		h.gap(t)
	}
	for _, statement := range []string{
		"NOTIFY Jobs, 'folded'", `NOTIFY "Jobs", 'quoted'`, "SELECT pg_notify('Jobs', 'data')",
		"SELECT pg_notify('" + strings.Repeat("ü", 31) + "x', '" + strings.Repeat("p", 7999) + "')",
	} {
		mustExec(t, db, statement)
	}
	require.Equal(t, "folded", lower.next(t).Payload)
	require.Equal(t, "quoted", upper.next(t).Payload)
	require.Equal(t, "data", upper.next(t).Payload)
	require.Equal(t, strings.Repeat("p", 7999), longest.next(t).Payload)
	for _, bad := range []string{"", strings.Repeat("ü", 32), "a\x00b", "a\xff"} {
		require.Error(t, c.Listen(t.Context(), bad, func(context.Context, pooldriver.Notification) {}), "%q", bad)
	}
	require.ErrorContains(t, c.Listen(t.Context(), "a", nil), "no function")
	require.Equal(t, 1, len(c.Holders()))
}

func TestAChannelThatTheServerRefusesEndsItsListenersOnly(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	c := pooldriver.New(account.URL("client_encoding=EUC_JP"), quiet)
	defer c.Close()
	refused := func() {
		bad := listenTo(t, c, "日") // in UTF-8, which are no characters of EUC_JP
		require.ErrorContains(t, <-bad.ended, "invalid byte sequence")
	}
	refused()
	require.Eventually(t, func() bool { return c.Stats().Listen.State == pooldriver.ListenUnused }, 10*time.Second, time.Millisecond,
		"nobody listens")
	h := listenTo(t, c, "a")
	h.gap(t)
	refused()
	require.Equal(t, 1, c.Stats().Listen.Channels)
	require.Zero(t, c.Stats().Listen.Losses)
}

func TestTwoListenersOfAChannelGetEachNotificationOnce(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	c := pooldriver.New(account.URL(), quiet)
	db := sql.OpenDB(c)
	defer db.Close()
	a, b := listenTo(t, c, "a"), listenTo(t, c, "a")
	a.gap(t)
	b.gap(t)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	for _, payload := range []string{"1", "2", "1"} { // the server folds equal ones of a transaction
		mustExec(t, tx, "SELECT pg_notify('a', $1)", payload)
	}
	require.NoError(t, tx.Commit())
	mustExec(t, db, "SELECT pg_notify('a', '1')")
	for _, payload := range []string{"1", "2", "1"} {
		require.Equal(t, payload, a.next(t).Payload)
		require.Equal(t, payload, b.next(t).Payload)
	}
	require.Empty(t, a.told)
	require.Empty(t, b.told)
	counted, _, err := account.Backends(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, counted, "one beside the pool's")
}

func TestTheServerSeesTheListenersConnectionOnlyWhileSomebodyListens(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	c := pooldriver.New(account.URL(), quiet)
	defer c.Close()
	backends := func() int {
		counted, _, err := account.Backends(t.Context())
		require.NoError(t, err)
		return counted
	}
	require.Zero(t, backends())
	require.Equal(t, pooldriver.ListenUnused, c.Stats().Listen.State)
	a, b := listenTo(t, c, "a"), listenTo(t, c, "b")
	a.gap(t)
	b.gap(t)
	require.Equal(t, 1, backends())
	s := c.Stats().Listen
	require.Equal(t, pooldriver.ListenListening, s.State)
	require.Equal(t, 2, s.Channels)
	require.Zero(t, c.Stats().Pool.Count, "it is no connection of the pool")
	h := c.Holders()[0]
	require.Equal(t, pooldriver.PinListen, h.Pin)
	require.Equal(t, "LISTEN a, b", h.Statement)
	shown := inspect.Handler(c).Snapshot().Pools[0]
	require.Equal(t, h.ProcessID, shown.Listens.ProcessID)
	require.Empty(t, shown.Holders)
	admin, err := account.Server.Admin()
	require.NoError(t, err)
	var user string
	require.NoError(t, admin.QueryRowContext(t.Context(), "SELECT usename FROM pg_stat_activity WHERE pid = $1", h.ProcessID).Scan(&user))
	require.Equal(t, account.User, user)
	a.stop()
	b.stop()
	require.NoError(t, <-a.ended)
	require.NoError(t, <-b.ended)
	require.Eventually(t, func() bool { return backends() == 0 }, slowMachine, time.Millisecond)
	require.Empty(t, c.Holders())
}

// mute is a connection without deadlines.
type mute struct{ net.Conn }

var errNoDeadlines = errors.New("this connection has no deadlines")

func (mute) SetDeadline(time.Time) error      { return errNoDeadlines }
func (mute) SetReadDeadline(time.Time) error  { return errNoDeadlines }
func (mute) SetWriteDeadline(time.Time) error { return errNoDeadlines }

// TestListenersComeAndGo: each one that comes or goes interrupts the wait for notifications, and the
// connection stays. At the end the session listens to nothing that nobody wants.
func TestListenersComeAndGo(t *testing.T) {
	t.Parallel()
	for way, connector := range map[string]func(account testbed.Account) *pooldriver.Connector{
		"TLS": func(account testbed.Account) *pooldriver.Connector { return pooldriver.New(account.URL(), quiet) },
		"plain": func(account testbed.Account) *pooldriver.Connector {
			return pooldriver.New(strings.Replace(account.URL(), "sslmode=verify-full", "sslmode=disable", 1), quiet)
		},
		"Wrap": func(account testbed.Account) *pooldriver.Connector {
			return pooldriver.Wrap(connectorOf(t, account), quiet)
		},
		"Dial": func(account testbed.Account) *pooldriver.Connector {
			return pooldriver.New(account.URL(), quiet, func(c *pooldriver.Config) {
				c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
					nc, err := new(net.Dialer).DialContext(ctx, network, addr)
					return mute{nc}, err
				}
			})
		},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			account := testbed.Shared(t, testbed.Postgres).NewAccount(t) // notifications are the database's
			comeAndGo(t, connector(account), randomtest.Rounds(300, 1000))
		})
	}
}

func comeAndGo(t *testing.T, c *pooldriver.Connector, times int) {
	db := sql.OpenDB(c)
	defer db.Close()
	own := listenTo(t, c, "own")
	own.gap(t)
	random := randomtest.Seeded(t)
	var all sync.WaitGroup
	for range 20 {
		r := rand.New(rand.NewPCG(random.Uint64(), 0))
		all.Go(func() {
			for range times / 20 {
				ctx, stop := context.WithTimeout(t.Context(), time.Duration(r.IntN(20))*time.Millisecond)
				require.NoError(t, c.Listen(ctx, "c"+strconv.Itoa(r.IntN(5)), func(context.Context, pooldriver.Notification) {
					if r.IntN(2) == 0 {
						stop()
					}
				}))
				stop()
			}
		})
	}
	all.Wait()
	require.Eventually(t, func() bool { return c.Stats().Listen.Channels == 1 }, slowMachine, time.Millisecond)
	mustExec(t, db, "SELECT pg_notify('own', 'first')") // what the last ones have asked for is done before this arrives
	require.Equal(t, "first", own.next(t).Payload)
	for i := range 5 {
		mustExec(t, db, "SELECT pg_notify($1, 'nobody')", "c"+strconv.Itoa(i))
	}
	before := c.Stats().Listen.Received
	mustExec(t, db, "SELECT pg_notify('own', 'here')")
	require.Equal(t, "here", own.next(t).Payload)
	require.Equal(t, before+1, c.Stats().Listen.Received, "the server sends nothing else")
	require.Zero(t, c.Stats().Listen.Gaps)
	require.Zero(t, c.Stats().Listen.Losses)
}

// TestAListenerThatSleepsHoldsUpNobody: the server keeps a notification until all sessions that listen
// have read it.
func TestAListenerThatSleepsHoldsUpNobody(t *testing.T) {
	t.Parallel()
	account := testbed.Start(t, testbed.Postgres).NewAccount(t) // its queue is the server's
	c := pooldriver.New(account.URL(), quiet)
	db := sql.OpenDB(c)
	defer db.Close()
	sleeping, wake := make(chan struct{}), make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var told []pooldriver.Notification
	done := make(chan error, 1)
	go func() {
		first := true
		done <- c.Listen(ctx, "a", func(_ context.Context, n pooldriver.Notification) {
			told = append(told, n)
			if first {
				first = false
				close(sleeping)
				<-wake
			}
			if n.Payload == "end" {
				stop()
			}
		})
	}()
	<-sleeping
	for range randomtest.Rounds(3, 30) {
		mustExec(t, db, "SELECT pg_notify('a', n::text || repeat('x', 4000)) FROM generate_series(1, 2000) n")
	}
	require.Eventually(t, func() bool {
		var usage float64
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT pg_notification_queue_usage()").Scan(&usage))
		return usage == 0
	}, slowMachine, time.Millisecond)
	close(wake)
	mustExec(t, db, "SELECT pg_notify('a', 'end')")
	require.NoError(t, <-done)
	require.True(t, told[1].Gap)
	require.Positive(t, c.Stats().Listen.Dropped)
	require.Equal(t, uint64(1), c.Stats().Listen.Gaps)
}

func TestAConnectionThatAProxyForgetsIsFound(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	proxy, err := byteproxy.Listen(account.Addr)
	require.NoError(t, err)
	defer proxy.Close()
	direct := account.OpenBare(t)
	const ping = time.Second
	for _, through := range []string{"New", "Wrap"} {
		t.Run(through, func(t *testing.T) {
			c := pooldriver.New(account.Via(proxy.Addr()).URL("pool_listen_ping=1s"), quiet)
			if through == "Wrap" {
				c = pooldriver.Wrap(connectorOf(t, account.Via(proxy.Addr())), quiet, func(c *pooldriver.Config) { c.ListenPing = ping })
			}
			defer c.Close()
			h := listenTo(t, c, "a")
			h.gap(t)
			mustExec(t, direct, "SELECT pg_notify('a', 'before')")
			require.Equal(t, "before", h.next(t).Payload)
			pulse := feelPulse(t, direct)
			struck := proxy.Arm(byteproxy.Fault{Direction: byteproxy.ToClient, Cut: byteproxy.Stall})
			began := time.Now()
			mustExec(t, direct, "SELECT pg_notify('a', 'lost')")
			<-struck
			require.Eventually(t, func() bool { return c.Stats().Listen.Losses > 0 }, slowMachine, time.Millisecond)
			require.Less(t, time.Since(began), ping+5*time.Second+time.Second/2+3*pulse.late())
			gap := h.gap(t)
			require.True(t, gap.Since.Before(began))
			require.True(t, gap.Until.After(began))
			mustExec(t, direct, "SELECT pg_notify('a', 'after')")
			require.Equal(t, "after", h.next(t).Payload)
		})
	}
}

func TestListenersFollowTheServerThatAcceptsWrites(t *testing.T) {
	t.Parallel()
	p := startPair(t, testbed.Postgres)
	freeze(t, p.b)
	// Reads go to a server that is read-only; notifications come from the other one.
	c := pooldriver.New(p.Via(list(p.b.Addr, p.a.Addr)).URL("target_session_attrs=read-only", "pool_listen_ping=100ms"), quiet)
	defer c.Close()
	h := listenTo(t, c, "a")
	h.gap(t)
	mustExec(t, p.Via(p.a.Addr).OpenBare(t), "SELECT pg_notify('a', 'from a')")
	require.Equal(t, "from a", h.next(t).Payload)
	freeze(t, p.a)
	thaw(t, p.b)
	h.gap(t)
	mustExec(t, p.Via(p.b.Addr).OpenBare(t), "SELECT pg_notify('a', 'from b')")
	require.Equal(t, "from b", h.next(t).Payload)
	require.Equal(t, p.b.Addr, c.Holders()[0].Host)
}

// TestListenGoesOnWhereItCannotBeProven: the server refuses to send the notification of the probe. LISTEN works.
func TestListenGoesOnWhereItCannotBeProven(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	mustExec(t, account.Witness(t), "REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC")
	h := listenUnproven(t, account)
	mustExec(t, account.Witness(t), "SELECT pg_notify('news', 'one')")
	require.Equal(t, "one", h.next(t).Payload)
}

// TestListenBeginsWhileTheServersQueueIsFull: a session that listens and does not leave its transaction keeps the queue.
func TestListenBeginsWhileTheServersQueueIsFull(t *testing.T) {
	t.Parallel()
	server := testbed.Start(t, testbed.Postgres, testbed.WithArguments("-c", "max_notify_queue_pages=64"))
	account := server.NewAccount(t)
	witness := account.Witness(t)
	conn, err := witness.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	mustExec(t, conn, "LISTEN filler")
	mustExec(t, conn, "BEGIN")
	for err = nil; err == nil; {
		_, err = witness.ExecContext(t.Context(), "SELECT pg_notify('filler', i || repeat('x', 7900)) FROM generate_series(1, 20) i")
	}
	require.ErrorContains(t, err, "too many notifications in the NOTIFY queue")
	h := listenUnproven(t, account)
	mustExec(t, conn, "ROLLBACK")
	require.Eventually(t, func() bool {
		mustExec(t, conn, "SELECT pg_notification_queue_usage()") // it takes what the server sends, and empties the queue
		_, err := witness.ExecContext(t.Context(), "SELECT pg_notify('news', 'one')")
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, "one", h.next(t).Payload)
}

// TestARoleThatOnlyReadsListens: with several hosts, a server that is read only is an old primary, unless only our role is.
func TestARoleThatOnlyReadsListens(t *testing.T) {
	t.Parallel()
	server := testbed.Shared(t, testbed.Postgres)
	account := server.NewAccount(t)
	mustExec(t, account.Witness(t), fmt.Sprintf("ALTER ROLE %q SET default_transaction_read_only = on", account.User))
	_, port, err := net.SplitHostPort(account.Addr)
	require.NoError(t, err)
	c := pooldriver.New(fmt.Sprintf("postgres://%s:%s@127.0.0.1:1,127.0.0.1:%s/%s?sslmode=disable", account.User, account.Password, port, account.Database), quiet)
	require.NoError(t, c.Err())
	defer c.Close()
	h := listenTo(t, c, "news")
	h.gap(t)
	mustExec(t, account.Witness(t), "SELECT pg_notify('news', 'one')")
	require.Equal(t, "one", h.next(t).Payload)
}

func TestListenThroughWrap(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	c := pooldriver.Wrap(connectorOf(t, account), quiet)
	db := sql.OpenDB(c)
	defer db.Close()
	h := listenTo(t, c, "a")
	h.gap(t)
	mustExec(t, db, "SELECT pg_notify('a', '1')")
	require.Equal(t, "1", h.next(t).Payload)
	account.KillIdle(t, 2)
	h.gap(t)
	awaitBackends(t, account, 1) // the server has ended the pool's, too: a statement that it had received would be lost
	mustExec(t, db, "SELECT pg_notify('a', '2')")
	require.Equal(t, "2", h.next(t).Payload)

	config, err := pgx.ParseConfig(account.URL())
	require.NoError(t, err)
	config.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
	taken := pooldriver.Wrap(stdlib.GetConnector(*config), quiet)
	defer taken.Close()
	require.ErrorContains(t, taken.Listen(t.Context(), "a", func(context.Context, pooldriver.Notification) {}), "OnNotification")
	own := pooldriver.Wrap(stdlib.GetConnector(*config), quiet, func(c *pooldriver.Config) { c.ListenDSN = account.URL() })
	defer own.Close()
	listenTo(t, own, "a").gap(t)
}

func TestListenIsAnErrorWhereNothingNotifies(t *testing.T) {
	t.Parallel()
	fn := func(context.Context, pooldriver.Notification) {}
	mysqlDSN := testbed.Account{Server: &testbed.Server{Engine: testbed.MySQL}, Addr: "127.0.0.1:1", User: "u", Database: "d"}.URL()
	for _, dsn := range []string{mysqlDSN, "sqlite::memory:"} {
		c := pooldriver.New(dsn, quiet)
		require.ErrorContains(t, c.Listen(t.Context(), "a", fn), "sends no notifications", dsn)
		require.NoError(t, c.Close())
	}
	for listenDSN, want := range map[string]string{
		mysqlDSN: "is for mysql, and the Connector for postgres",
		"postgres://u:secret@h/d?pool_max_conns=1":    "parameters of the pool",
		"postgres://u:secret@h/d?sslmode=perhaps":     "ListenDSN for postgres",
		"postgres://u:secret@h/d?pool_listen_ping=1s": "parameters of the pool",
	} {
		c := pooldriver.New("postgres://u@h/d", quiet, func(c *pooldriver.Config) { c.ListenDSN = listenDSN })
		require.ErrorContains(t, c.Err(), want)
		require.NotContains(t, c.Err().Error(), "secret")
	}
	c := pooldriver.New("postgres://u@h/d", quiet, func(c *pooldriver.Config) { c.ListenDSN = "postgres://u:secret@h/d" })
	require.NoError(t, c.Err())
	require.NotContains(t, fmt.Sprintf("%v %+v %#v %s", c, c, c, c.Settings()), "secret")
	require.NoError(t, c.Close())
}

func TestAWrongPasswordEndsTheFirstListenAndNoLaterOne(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	var wrong atomic.Bool
	c := pooldriver.New(account.URL(), quiet, func(c *pooldriver.Config) {
		c.Credentials = func(context.Context) (pooldriver.Credential, error) {
			if wrong.Load() {
				return pooldriver.Credential{User: account.User, Password: "wrong"}, nil
			}
			return pooldriver.Credential{User: account.User, Password: account.Password}, nil
		}
	})
	db := sql.OpenDB(c)
	defer db.Close()
	wrong.Store(true)
	err := c.Listen(t.Context(), "a", func(context.Context, pooldriver.Notification) {})
	require.ErrorContains(t, err, "28P01")
	require.NotContains(t, err.Error(), account.Password)
	wrong.Store(false)
	h := listenTo(t, c, "a")
	h.gap(t)
	wrong.Store(true)
	account.KillIdle(t, 1)
	require.Eventually(t, func() bool { return c.Stats().DialErrors >= 3 }, 10*time.Second, time.Millisecond)
	wrong.Store(false)
	h.gap(t)
	mustExec(t, db, "SELECT pg_notify('a', '1')")
	require.Equal(t, "1", h.next(t).Payload)
}

func TestDrainEndsListenersLast(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	c := pooldriver.New(account.URL(), quiet)
	db := sql.OpenDB(c)
	h := listenTo(t, c, "a")
	h.gap(t)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	drained := make(chan error, 1)
	go func() { drained <- c.Drain(t.Context()) }()
	fn := func(context.Context, pooldriver.Notification) {}
	require.Eventually(t, func() bool {
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer stop()
		return errors.Is(c.Listen(ctx, "b", fn), pooldriver.ErrClosed)
	}, slowMachine, time.Millisecond, "a new listener is refused")
	// By another program: what the last transaction sends may come after it has ended, and so after the listeners.
	mustExec(t, account.Witness(t), "SELECT pg_notify('a', 'while Drain waits')")
	require.Equal(t, "while Drain waits", h.next(t).Payload)
	require.NoError(t, tx.Commit())
	require.NoError(t, <-drained)
	require.ErrorIs(t, <-h.ended, pooldriver.ErrClosed)
	counted, _, err := account.Backends(t.Context())
	require.NoError(t, err)
	require.Zero(t, counted)
	require.NoError(t, db.Close())
	require.ErrorIs(t, c.Listen(t.Context(), "a", fn), pooldriver.ErrClosed)
}

// TestAListenersFunctionHasNoTask: it is told of what others do, and joins no transaction of theirs.
func TestAListenersFunctionHasNoTask(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	log := &strings.Builder{}
	c := pooldriver.New(account.URL("pool_max_conns=2"), func(c *pooldriver.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	db := sql.OpenDB(c)
	task, end := pooldriver.WithTask(pooldriver.Label(t.Context(), "ear"))
	tx, err := db.BeginTx(task, nil)
	require.NoError(t, err)
	mustExec(t, tx, "SELECT set_config('app.tx', 'here', true)")
	ctx, stop := context.WithCancel(task)
	var label string
	var calls int
	require.NoError(t, c.Listen(ctx, "a", func(ctx context.Context, n pooldriver.Notification) {
		if calls++; calls == 1 {
			panic("oh")
		}
		require.True(t, n.Gap, "after a panic")
		conn, err := db.Conn(ctx)
		require.NoError(t, err)
		defer conn.Close()
		var setting sql.NullString
		require.NoError(t, conn.QueryRowContext(ctx, "SELECT current_setting('app.tx', true)").Scan(&setting))
		require.Empty(t, setting.String, "it is not in the transaction of the task")
		for _, h := range c.Holders() {
			if h.Pin == pooldriver.PinConn {
				label = h.Label
			}
		}
		stop()
	}))
	require.NoError(t, tx.Rollback())
	end()
	require.Equal(t, "ear", label)
	require.NoError(t, db.Close())
	require.Contains(t, log.String(), "a function of the program panicked")
	require.Contains(t, log.String(), "label=ear")
}
