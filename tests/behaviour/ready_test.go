package behaviour

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/pool"
)

func TestReadyAsksTheServerOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, c := openStub(t, dialects.Traits{})
		for range 3 {
			for range 5 {
				require.NoError(t, c.Ready(t.Context()))
			}
			time.Sleep(time.Second)
		}
		require.EqualValues(t, 3, s.Pings.Load())
		require.Equal(t, 1, s.Server.State().Opened, "it uses what is idle")
	})
}

func TestReadyOpensAConnectionWhereThereIsNone(t *testing.T) {
	s, _, c := openStub(t, dialects.Traits{})
	c.Flush()
	require.NoError(t, c.Ready(t.Context()))
	require.Equal(t, 1, c.Stats().Pool.Idle, "it stays")
	require.Equal(t, 2, s.Server.State().Opened)
}

func TestReadyReplacesConnectionsThatDoNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db, c := openStub(t, dialects.Traits{}, func(c *pooldriver.Config) { c.MaxConns = 3 })
		a, b := someConn(t, t.Context(), db), someConn(t, t.Context(), db)
		require.NoError(t, errors.Join(insert(t.Context(), a), insert(t.Context(), b), a.Close(), b.Close()))
		s.Server.KillAll()
		require.NoError(t, c.Ready(t.Context()))
		synctest.Wait()
		require.Equal(t, 1, c.Stats().Pool.Count)
		s.Server.KillAll()
		s.Server.Refuse(errors.New("stub: refused"))
		time.Sleep(proofLasts)
		require.ErrorContains(t, c.Ready(t.Context()), "stub: refused")
		s.Server.Refuse(nil)
		require.NoError(t, c.Ready(t.Context()))
	})
}

// TestABusyPoolIsReady: all are lent, and others wait.
func TestABusyPoolIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db, c := openTasks(t, 1)
		tx, err := db.Begin()
		require.NoError(t, err)
		began := time.Now()
		require.NoError(t, c.Ready(t.Context()))
		waited := make(chan error)
		go func() { waited <- insert(t.Context(), db) }()
		synctest.Wait()
		require.NoError(t, c.Ready(t.Context()))
		require.Zero(t, time.Since(began))
		require.NoError(t, tx.Commit())
		require.NoError(t, <-waited)
	})
}

// TestABusyPoolIsNotReadyWhereDialsFail: what it has will be gone some day.
func TestABusyPoolIsNotReadyWhereDialsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, db, c := openTasks(t, 2)
		tx, err := db.Begin()
		require.NoError(t, err)
		server.Refuse(errors.New("stub: refused"))
		require.ErrorContains(t, c.Ready(t.Context()), "stub: refused")
		// Others wait for a dial that does not end.
		gate := server.Block(fakedb.Connect)
		waited := make(chan error)
		go func() { waited <- insert(t.Context(), db) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, c.Ready(ctx), context.DeadlineExceeded)
		server.Refuse(nil)
		gate.Open()
		require.NoError(t, <-waited)
		require.NoError(t, c.Ready(t.Context()))
		require.NoError(t, tx.Rollback())
	})
}

func TestADialThatDoesNotEndIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, _, c := openTasks(t, 1)
		c.Flush()
		gate := server.Block(fakedb.Connect)
		for range 2 { // for the dial of its own, and behind that
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			require.ErrorIs(t, c.Ready(ctx), context.DeadlineExceeded)
			cancel()
		}
		gate.Open()
	})
}

// TestReadyClosesTheBreaker: where nobody is sent requests any more, nobody else would.
func TestReadyClosesTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, _, c := openTasks(t, 1, func(c *pooldriver.Config) { c.BreakerFailures, c.BreakerCooldown = 1, time.Minute })
		c.Flush()
		server.Refuse(errors.New("stub: refused"))
		require.ErrorContains(t, c.Ready(t.Context()), "stub: refused")
		server.Refuse(nil)
		require.ErrorIs(t, c.Ready(t.Context()), pool.ErrUnavailable)
		time.Sleep(time.Minute)
		require.NoError(t, c.Ready(t.Context()))
		require.Equal(t, pool.Active, c.Stats().Pool.State)
	})
}

func TestADrainedOrClosedConnectorIsNotReady(t *testing.T) {
	_, _, c := openTasks(t, 1)
	require.NoError(t, c.Drain(t.Context()))
	require.ErrorIs(t, c.Ready(t.Context()), pool.ErrClosed)
	_, _, c = openTasks(t, 1)
	require.NoError(t, c.Close())
	require.ErrorIs(t, c.Ready(t.Context()), pool.ErrClosed)
	bad := pooldriver.New("nonsense")
	_, err := bad.Connect(t.Context())
	require.Error(t, err)
	require.Equal(t, err, bad.Ready(t.Context()))
}

// proofLasts is how long a connection that has answered is proof enough.
const proofLasts = time.Second

func TestAServerOfAnotherRoleIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, c, _ := openRoles(t, true)
		s.answer(func(r *roleSession) error {
			if r.ID == 1 {
				return errDemoted
			}
			return nil
		})
		require.NoError(t, c.Ready(t.Context()), "the next connection leads to another server")
		require.EqualValues(t, 1, c.Stats().WrongRoles)
		synctest.Wait()
		require.EqualValues(t, 1, c.Stats().Closed[pooldriver.CloseWrongRole])
		time.Sleep(proofLasts)
		s.answer(func(*roleSession) error { return errDemoted })
		require.ErrorIs(t, c.Ready(t.Context()), dialects.ErrWrongRole, "nor does it look for ever")
	})
}
