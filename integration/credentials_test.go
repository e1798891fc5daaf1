package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// vault holds an account's password and changes it, on the server first: dials
// that are under way are refused, and whoever asks then waits for the new one.
type vault struct {
	account testbed.Account
	lasts   time.Duration
	calls   atomic.Int32
	sealed  atomic.Bool

	mu       sync.Mutex // protects following fields
	password string
}

var errSealed = errors.New("the vault is sealed")

func (v *vault) source(context.Context) (pooldriver.Credential, error) {
	v.calls.Add(1)
	if v.sealed.Load() {
		return pooldriver.Credential{}, errSealed
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	c := pooldriver.Credential{User: v.account.User, Password: v.password}
	if v.lasts > 0 {
		c.Expires = time.Now().Add(v.lasts)
	}
	return c, nil
}

func (v *vault) rotate(t *testing.T, password string) {
	t.Helper()
	admin, err := v.account.Server.Admin()
	require.NoError(t, err)
	change := "ALTER USER '%s'@'%%' IDENTIFIED BY '%s'"
	if v.account.Server.Engine == testbed.Postgres {
		change = "ALTER ROLE %s PASSWORD '%s'"
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	_, err = admin.ExecContext(t.Context(), fmt.Sprintf(change, v.account.User, password))
	require.NoError(t, err)
	v.password = password
}

// connections are the account's, as the server numbers them.
func connections(t *testing.T, account testbed.Account) map[int64]bool {
	t.Helper()
	admin, err := account.Server.Admin()
	require.NoError(t, err)
	ask := "SELECT id FROM information_schema.processlist WHERE user = ?"
	if account.Server.Engine == testbed.Postgres {
		ask = "SELECT pid FROM pg_stat_activity WHERE usename = $1"
	}
	rows, err := admin.QueryContext(t.Context(), ask, account.User)
	require.NoError(t, err)
	defer rows.Close()
	ids := make(map[int64]bool)
	for rows.Next() {
		var id int64
		require.NoError(t, rows.Scan(&id))
		ids[id] = true
	}
	require.NoError(t, rows.Err())
	return ids
}

func (v *vault) open(t *testing.T, conns int) (*sql.DB, *pooldriver.Connector) {
	t.Helper()
	v.password = v.account.Password
	v.account.Password = "not-the-one-in-the-DSN"
	connector := pooldriver.New(v.account.URL(fmt.Sprintf("pool_max_conns=%d", conns)), func(c *pooldriver.Config) {
		c.Credentials = v.source
		quiet(c)
	})
	db := sql.OpenDB(connector)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db, connector
}

// Sixteen goroutines over four connections, statements and transactions, while the
// password changes again and again and is good for one second: nobody gets an error,
// and no connection is left that was made with a password of the past.
func TestAPasswordThatChangesUnderLoadReachesNoStatement(t *testing.T) {
	testbed.EachInTurn(t, func(t *testing.T, account testbed.Account) {
		v := &vault{account: account, lasts: time.Second}
		db, connector := v.open(t, 4)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var statements atomic.Int64
		var workers sync.WaitGroup
		for g := range 16 {
			workers.Go(func() {
				for ctx.Err() == nil {
					var err error
					if g%2 == 0 {
						_, err = db.ExecContext(t.Context(), "SELECT 1")
					} else {
						err = pooldriver.InTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error {
							_, err := tx.ExecContext(ctx, "SELECT 1")
							return err
						})
					}
					if err != nil {
						t.Errorf("goroutine %d: %v", g, err)
						return
					}
					statements.Add(1)
				}
			})
		}
		for n := range randomtest.Rounds(3, 30) {
			time.Sleep(200 * time.Millisecond)
			require.Eventually(t, func() bool {
				s := connector.Stats().Pool
				return s.Count == 4 && s.Creating == 0
			}, 10*time.Second, time.Millisecond, "a dial that two changes overtake is refused: it asks once more, not for ever")
			before := connections(t, account)
			v.rotate(t, fmt.Sprintf("Rotated-%d-%s", n, t.Name()[:4]))
			require.Eventually(t, func() bool {
				for id := range connections(t, account) {
					if before[id] {
						return false
					}
				}
				return true
			}, 10*time.Second, 20*time.Millisecond, "a connection of the old password is still there")
		}
		cancel()
		workers.Wait()
		s := connector.Stats()
		t.Logf("%d statements, %d dials, the source called %d times", statements.Load(), s.Pool.Creates, v.calls.Load())
		require.Greater(t, statements.Load(), int64(100))
	})
}

// A password without a date: each dial asks, so the first dial after the change
// has the new one, and what the old one made goes.
func TestTheFirstDialAfterAChangeReplacesWhatTheOldPasswordMade(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		v := &vault{account: account}
		db, _ := v.open(t, 4)
		held, err := db.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, held.PingContext(t.Context()))
		require.NoError(t, db.PingContext(t.Context()))
		before := connections(t, account)
		require.Len(t, before, 2)

		v.rotate(t, "Rotated-without-a-date")
		other, err := db.Conn(t.Context()) // takes the idle one
		require.NoError(t, err)
		require.NoError(t, other.PingContext(t.Context()))
		require.NoError(t, db.PingContext(t.Context()), "a dial")
		require.NoError(t, held.PingContext(t.Context()), "those in use go on")
		require.NoError(t, held.Close())
		require.NoError(t, other.Close())
		require.NoError(t, db.PingContext(t.Context()))
		require.Eventually(t, func() bool {
			for id := range connections(t, account) {
				if before[id] {
					return false
				}
			}
			return true
		}, slowMachine, 10*time.Millisecond)
	})
}

func TestConnectionsGoOnWhileTheSourceFailsAndADialSaysWhy(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		v := &vault{account: account}
		db, _ := v.open(t, 2)
		held, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer held.Close()
		require.NoError(t, held.PingContext(t.Context()))
		v.sealed.Store(true)
		err = db.PingContext(t.Context())
		require.ErrorIs(t, err, errSealed)
		require.ErrorContains(t, err, "the credential source failed")
		require.NoError(t, held.PingContext(t.Context()))
		v.sealed.Store(false)
		require.NoError(t, db.PingContext(t.Context()))
	})
}
