package base

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

var (
	_ dialects.Template = (*Template)(nil)
	_ dialects.Session  = (*Session)(nil)
)

func TestRollbackFindsTheWayThatTheDriverOffers(t *testing.T) {
	old, oldSkips := &oldExec{}, &oldExec{skip: true}
	now, nowSkips := &modern{}, &modern{skip: true}
	naked := &bare{}
	for _, c := range []struct {
		name string
		conn driver.Conn
		log  *[]string
		want []string
	}{
		{"prepare and exec", naked, &naked.log, []string{"prepare ROLLBACK", "exec", "close stmt"}},
		{"old exec", old, &old.log, []string{"old ROLLBACK"}},
		{"old exec that skips", oldSkips, &oldSkips.log, []string{"prepare ROLLBACK", "exec", "close stmt"}},
		{"exec context", now, &now.log, []string{"modern ROLLBACK"}},
		{"exec context that skips", nowSkips, &nowSkips.log, []string{"prepare context ROLLBACK", "exec context", "close stmt"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, NewSession(c.conn, "x").Rollback(t.Context()))
			require.Equal(t, c.want, *c.log)
		})
	}
}

func TestACancelledContextSendsNothing(t *testing.T) {
	conn := &bare{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, NewSession(conn, "x").Rollback(ctx), context.Canceled)
	require.Empty(t, conn.log)
}

func TestCloseWaitsForACallThatWasLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &bare{block: make(chan struct{})}
		s := NewSession(conn, "x")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.Rollback(ctx), context.DeadlineExceeded)

		// The driver still works: closing under its hands would be a race.
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, s.Close(ctx), context.DeadlineExceeded)
		synctest.Wait()
		require.NotContains(t, conn.log, "close")

		close(conn.block)
		synctest.Wait()
		require.Equal(t, []string{"prepare ROLLBACK", "exec", "close stmt", "close"}, conn.log)
	})
}

func TestAPanicOfTheDriverIsAnError(t *testing.T) {
	err := NewSession(&bare{panics: true}, "x").Rollback(t.Context())
	require.ErrorContains(t, err, "panicked")
}

func TestTheValidatorDecidesWhatCanBeSeen(t *testing.T) {
	for _, c := range []struct {
		conn   driver.Conn
		status dialects.TxStatus
		peek   dialects.Liveness
	}{
		{&bare{}, dialects.TxUnknown, dialects.Alive},
		{&modern{}, dialects.TxUnknown, dialects.Alive},
		{&modern{invalid: true}, dialects.TxLost, dialects.Dead},
	} {
		s := NewSession(c.conn, "x")
		require.Equal(t, c.status, s.TxStatus())
		require.Equal(t, c.peek, s.Peek())
		_, known := s.Sent()
		require.False(t, known)
	}
}

func TestPingIsTheDriversOrNothing(t *testing.T) {
	require.NoError(t, NewSession(&bare{}, "x").Ping(t.Context()))
	require.ErrorIs(t, NewSession(&modern{}, "x").Ping(t.Context()), errFake)
}

func TestNothingIsCleanedInPlace(t *testing.T) {
	_, err := NewSession(&modern{}, "x").Clean(t.Context(), dialects.Clean)
	require.ErrorIs(t, err, dialects.ErrCannotClean)
}

func TestTheTemplateDialsByTheConnectorAndClosesIt(t *testing.T) {
	c := &connector{conn: &bare{}, secret: "hunter2"}
	tmpl, err := Wrap(c, "generic fake")
	require.NoError(t, err)
	require.Equal(t, fakeDriver{}, tmpl.Driver())
	require.False(t, tmpl.TakesCredential())

	s, err := tmpl.Dial(t.Context(), nil)
	require.NoError(t, err)
	require.Same(t, c.conn, s.Conn())
	require.NotContains(t, fmt.Sprintf("%+v %#v %+v", tmpl, tmpl, s), c.secret)

	_, err = tmpl.Dial(t.Context(), &dialects.Credential{User: "u", Password: "hunter2"})
	require.ErrorContains(t, err, "credential")
	require.NotContains(t, err.Error(), "hunter2")

	require.NoError(t, tmpl.Close())
	require.Equal(t, 1, c.closed)
}

type Pool struct{ _ int }

type poolingConnector struct {
	connector
	pool  *Pool
	db    *sql.DB
	spare *sync.Pool
}

func TestAConnectorThatPoolsIsRefused(t *testing.T) {
	require.NoError(t, refusePool(&connector{}))
	require.NoError(t, refusePool(&poolingConnector{}), "no pool is set")
	require.NoError(t, refusePool(poolingConnector{spare: &sync.Pool{}}.asConnector()), "a sync.Pool holds no connections")
	require.ErrorContains(t, refusePool(&poolingConnector{pool: &Pool{}}), "two pools fight")
	require.ErrorContains(t, refusePool(&poolingConnector{db: &sql.DB{}}), "two pools fight")
	require.NoError(t, refusePool((*poolingConnector)(nil)))
}

func (c poolingConnector) asConnector() driver.Connector { return &c }
