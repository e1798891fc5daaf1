package riverqueue

import (
	"context"
	"testing"
	"time"

	"github.com/riverqueue/river/riverdriver"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/riverpooldriver"
)

// TestTheListenerDoesWhatRiverWantsOfOne follows River's own tests of a listener (package riverdrivertest, which is not
// published), but for the order of notifications of different topics.
func TestTheListenerDoesWhatRiverWantsOfOne(t *testing.T) {
	t.Parallel()
	s, ctx := open(t, "pool_max_conns=2"), t.Context()
	driver := riverpooldriver.New(s.pool)
	executor, l := driver.GetExecutor(), driver.GetListener(&riverdriver.GetListenenerParams{})
	notify := func(e riverdriver.Executor, topic string, payload ...string) {
		t.Helper()
		require.NoError(t, e.NotifyMany(ctx, &riverdriver.NotifyManyParams{Topic: topic, Payload: payload, Schema: l.Schema()}))
	}
	hears := func(topic, payload string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(ctx, waits)
		defer cancel()
		n, err := l.WaitForNotification(ctx)
		require.NoError(t, err)
		require.Equal(t, &riverdriver.Notification{Topic: topic, Payload: payload}, n)
	}
	hearsNothing := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		n, err := l.WaitForNotification(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded, "%+v", n)
	}
	l.SetAfterConnectExec("SET search_path TO 'pg_catalog'")
	for _, schema := range []string{"pg_catalog", "pg_catalog"} { // the schema, once found, stays
		require.NoError(t, l.Connect(ctx))
		require.Equal(t, schema, l.Schema())
		for _, topic := range []string{"river_insert", `Control "of" Ü`, "river_insert"} {
			require.NoError(t, l.Listen(ctx, topic))
		}
		require.Equal(t, 2, s.connector.Stats().Listen.Listeners)
		require.NoError(t, l.Ping(ctx))
		notify(executor, "river_insert", "1", "2")
		hears("river_insert", "1")
		hears("river_insert", "2")
		notify(executor, `Control "of" Ü`, "3")
		hears(`Control "of" Ü`, "3")

		tx, err := executor.Begin(ctx)
		require.NoError(t, err)
		notify(tx, "river_insert", "4")
		hearsNothing()
		require.NoError(t, tx.Commit(ctx))
		hears("river_insert", "4")

		require.NoError(t, l.Unlisten(ctx, "river_insert"))
		notify(executor, "river_insert", "5")
		hearsNothing()
		require.NoError(t, l.Close(ctx))
		require.Zero(t, s.connector.Stats().Listen.Listeners)
	}
	require.Eventually(t, func() bool { return s.connector.Stats().Listen.State == pooldriver.ListenUnused }, waits, tick)
}

// TestAListenerThatIsNotHeardOutEnds although a notification waits for somebody.
func TestAListenerThatIsNotHeardOutEnds(t *testing.T) {
	t.Parallel()
	s, ctx := open(t), t.Context()
	driver := riverpooldriver.New(s.pool)
	l := driver.GetListener(&riverdriver.GetListenenerParams{Schema: "jobs"})
	require.NoError(t, l.Connect(ctx))
	require.NoError(t, l.Listen(ctx, "topic"))
	require.NoError(t, driver.GetExecutor().NotifyMany(ctx, &riverdriver.NotifyManyParams{Topic: "topic", Payload: []string{"1", "2", "3"}, Schema: "jobs"}))
	require.Eventually(t, func() bool { return s.connector.Stats().Listen.Received >= 3 }, waits, tick)
	require.NoError(t, l.Close(ctx))
	require.Zero(t, s.connector.Stats().Listen.Listeners)
}

// TestAListenerIsToldWhenItsConnectorIsClosed: River's own driver says so by an error of the wait, too.
func TestAListenerIsToldWhenItsConnectorIsClosed(t *testing.T) {
	t.Parallel()
	s, ctx := open(t), t.Context()
	l := riverpooldriver.New(s.pool).GetListener(&riverdriver.GetListenenerParams{Schema: "jobs"})
	require.NoError(t, l.Connect(ctx))
	require.NoError(t, l.Listen(ctx, "a"))
	require.NoError(t, l.Listen(ctx, "b"))
	s.pool.Close()
	_, err := l.WaitForNotification(ctx)
	require.ErrorIs(t, err, riverdriver.ErrClosedPool)
	require.ErrorIs(t, err, pooldriver.ErrClosed)
	require.NoError(t, l.Close(ctx))
}
