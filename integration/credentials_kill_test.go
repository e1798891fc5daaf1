package integration

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// rotating is a pool of two connections whose credentials come from a source, with
// a statement that runs for a while, and what its users have on the server.
type rotating struct {
	v         *vault
	connector *pooldriver.Connector
	db        *sql.DB
	admin     *sql.DB
	next      testbed.Account // another user of the same database
	cancel    func()
	first     testbed.Account
}

func startRotating(t *testing.T, lasts time.Duration) *rotating {
	t.Helper()
	server := testbed.Start(t, testbed.MySQL)
	r := &rotating{first: server.NewAccount(t), next: server.NewAccount(t)}
	var err error
	r.admin, err = server.Admin()
	require.NoError(t, err)
	_, err = r.admin.ExecContext(t.Context(), fmt.Sprintf("GRANT ALL ON %s.* TO '%s'@'%%'", r.first.Database, r.next.User))
	require.NoError(t, err)
	r.v = &vault{account: r.first, lasts: lasts}
	r.db, r.connector = r.v.open(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := r.db.ExecContext(ctx, "SELECT SLEEP(600)"); done <- err }()
	require.Eventually(t, func() bool { return r.running(t) == 1 }, slowMachine, 5*time.Millisecond)
	r.cancel = func() {
		cancel()
		require.Error(t, <-done)
	}
	return r
}

// running is how many of the statements the server is at, whoever waits for them.
func (r *rotating) running(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, r.admin.QueryRowContext(t.Context(),
		"SELECT COUNT(*) FROM information_schema.processlist WHERE user = ? AND info LIKE 'SELECT SLEEP(600)%'", r.first.User).Scan(&n))
	return n
}

// connections is what both users have on the server, but for the killer.
func (r *rotating) connections(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, r.admin.QueryRowContext(t.Context(),
		"SELECT COUNT(*) FROM information_schema.processlist WHERE user IN (?, ?) AND db IS NOT NULL", r.first.User, r.next.User).Scan(&n))
	return n
}

func (r *rotating) toNextUser() {
	r.v.mu.Lock()
	defer r.v.mu.Unlock()
	r.v.account, r.v.password = r.next, r.next.Password
}

// renameFirst takes the first user's name away until the test ends. Its statement goes on.
func (r *rotating) renameFirst(t *testing.T) {
	t.Helper()
	_, err := r.admin.ExecContext(t.Context(), fmt.Sprintf("RENAME USER '%s'@'%%' TO '%[1]s_old'@'%%'", r.first.User))
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := r.admin.ExecContext(context.Background(), fmt.Sprintf("RENAME USER '%s_old'@'%%' TO '%[1]s'@'%%'", r.first.User))
		require.NoError(t, err)
	})
}

// holdsTwo uses the pool until after, and fails if the server ever shows more
// connections than two while the pool has given up none.
func (r *rotating) holdsTwo(t *testing.T, until func() bool, within time.Duration) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	pinged := make(chan struct{})
	go func() { // wants two connections all the time
		defer close(pinged)
		for ctx.Err() == nil {
			if c, err := r.db.Conn(ctx); err == nil {
				_ = c.PingContext(ctx)
				_ = r.db.PingContext(ctx)
				_ = c.Close()
			}
		}
	}()
	require.Eventually(t, func() bool {
		if n := r.connections(t); n > 2 && r.connector.Stats().Orphans == 0 {
			t.Errorf("%d connections on the server", n)
		}
		return until()
	}, within, 2*time.Millisecond)
	stop()
	<-pinged
}

func TestACancelledStatementIsKilledWhateverBecameOfItsCredential(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		lasts  time.Duration
		change func(t *testing.T, r *rotating)
	}{
		{"another user, and a dial", 0, func(t *testing.T, r *rotating) {
			r.toNextUser()
			require.NoError(t, r.db.PingContext(t.Context()), "a dial of the next user")
		}},
		{"another password, renewed in the background", time.Second, func(t *testing.T, r *rotating) {
			r.v.rotate(t, "Rotated-and-renewed")
			calls := r.v.calls.Load()
			require.Eventually(t, func() bool { return r.v.calls.Load() > calls }, slowMachine, 5*time.Millisecond)
		}},
		{"another password without a date", 0, func(t *testing.T, r *rotating) { r.v.rotate(t, "Rotated-without-a-date") }},
		{"another password, a dial, and a source that fails", 0, func(t *testing.T, r *rotating) {
			r.v.rotate(t, "Rotated-and-dialled")
			require.NoError(t, r.db.PingContext(t.Context()))
			r.v.sealed.Store(true)
		}},
		{"no user any more, a dial of one who may kill, and a source that fails", 0, func(t *testing.T, r *rotating) {
			r.renameFirst(t)
			_, err := r.admin.ExecContext(t.Context(), fmt.Sprintf(
				"GRANT PROCESS, /*M!100000 CONNECTION ADMIN *//*!80000 CONNECTION_ADMIN */ ON *.* TO '%s'@'%%'", r.next.User))
			require.NoError(t, err)
			r.toNextUser()
			require.NoError(t, r.db.PingContext(t.Context()))
			r.v.sealed.Store(true)
		}},
		{"a password that the server does not know yet", 0, func(t *testing.T, r *rotating) {
			r.v.mu.Lock()
			r.v.password = "Not-yet-on-the-server"
			r.v.mu.Unlock()
			require.Error(t, r.db.PingContext(t.Context()))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := startRotating(t, c.lasts)
			c.change(t, r)
			r.cancel()
			begun := time.Now()
			r.holdsTwo(t, func() bool { return r.running(t) == 0 }, slowMachine)
			t.Logf("gone after %v", time.Since(begun).Round(time.Millisecond))
			require.Zero(t, r.connector.Stats().Orphans)
		})
	}
}

// The user is dropped while its statement runs, and the next one may not see it:
// nobody of ours can end it. Its place stays taken for as long as any end may take.
func TestAStatementThatNobodyMayKillKeepsItsPlaceForAWhileAndIsCounted(t *testing.T) {
	t.Parallel()
	r := startRotating(t, 0)
	r.renameFirst(t)
	r.toNextUser()
	begun := time.Now()
	r.cancel()
	r.holdsTwo(t, func() bool { return r.connector.Stats().Orphans == 1 || time.Since(begun) > 4500*time.Millisecond }, slowMachine)
	require.GreaterOrEqual(t, time.Since(begun), 4500*time.Millisecond, "given up too soon")
	require.Eventually(t, func() bool { return r.connector.Stats().Orphans == 1 }, slowMachine, 5*time.Millisecond)
}
