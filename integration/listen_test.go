package integration

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
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
