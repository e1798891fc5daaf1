package failover

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// hear listens to the channel a until the test ends.
func hear(t *testing.T, c *pooldriver.Connector) (told chan pooldriver.Notification, ended chan error) {
	t.Helper()
	told, ended = make(chan pooldriver.Notification, 1000), make(chan error, 1)
	go func() {
		ended <- c.Listen(t.Context(), "a", func(_ context.Context, n pooldriver.Notification) { told <- n })
	}()
	return told, ended
}

func TestListenIsAnErrorBehindAPgBouncerThatDropsNotifications(t *testing.T) {
	t.Parallel()
	server := testbed.Start(t, testbed.Postgres, testbed.WithNetwork(testbed.NewNetwork(t), "db"))
	account := server.NewAccount(t)
	transaction := testbed.StartPgBouncer(t, account)

	// A session of its own tells nothing: PgBouncer gives it the same server connection again.
	config, err := pgx.ParseConfig(account.Via(transaction.Addr).URL("default_query_exec_mode=exec"))
	require.NoError(t, err)
	alone, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	for _, text := range []string{"LISTEN own", "SELECT pg_notify('own', '')"} {
		_, err := alone.Exec(t.Context(), text)
		require.NoError(t, err)
	}
	_, err = alone.WaitForNotification(t.Context())
	require.NoError(t, err, "which is why another session sends the probe's notification")
	require.NoError(t, alone.Close(t.Context()))

	c := pooldriver.New(account.Via(transaction.Addr).URL("default_query_exec_mode=exec"), logged(t))
	_, ended := hear(t, c)
	err = <-ended
	require.ErrorContains(t, err, "PgBouncer in transaction mode")
	require.NotContains(t, err.Error(), account.Password)
	require.NoError(t, c.Close())

	through := pooldriver.New(account.Via(transaction.Addr).URL("default_query_exec_mode=exec"), logged(t),
		func(c *pooldriver.Config) { c.ListenDSN = account.URL() })
	db := sql.OpenDB(through)
	told, _ := hear(t, through)
	require.True(t, (<-told).Gap)
	_, err = db.ExecContext(t.Context(), "SELECT pg_notify('a', '1')")
	require.NoError(t, err)
	require.Equal(t, "1", (<-told).Payload)
	require.NoError(t, db.Close())
}

func TestListenWorksBehindAPgBouncerInSessionMode(t *testing.T) {
	t.Parallel()
	server := testbed.Start(t, testbed.Postgres, testbed.WithNetwork(testbed.NewNetwork(t), "db"))
	account := server.NewAccount(t)
	session := testbed.StartPgBouncer(t, account, "pool_mode=session")
	c := pooldriver.New(account.Via(session.Addr).URL("default_query_exec_mode=exec"), logged(t))
	db := sql.OpenDB(c)
	defer db.Close()
	told, _ := hear(t, c)
	require.True(t, (<-told).Gap)
	_, err := db.ExecContext(t.Context(), "SELECT pg_notify('a', '1')")
	require.NoError(t, err)
	require.Equal(t, "1", (<-told).Payload)
}

func TestListenersGoOnAtTheNewPrimary(t *testing.T) {
	p := testbed.StartPostgresPair(t)
	account := p.NewAccount(t)
	c := pooldriver.New(account.URL("target_session_attrs=any"), logged(t))
	defer c.Close()
	told, _ := hear(t, c)
	require.True(t, (<-told).Gap)
	old := p.Primary
	old.Kill(t)
	killed := time.Now()
	p.Promote(t)
	promoted := time.Now()
	gap := <-told
	require.True(t, gap.Gap)
	require.True(t, gap.Since.Before(killed))
	require.Less(t, gap.Until.Sub(promoted), onThisMachine(t, account.On(p.Primary)))
	db := account.On(p.Primary).OpenBare(t)
	_, err := db.ExecContext(t.Context(), "SELECT pg_notify('a', '1')")
	require.NoError(t, err)
	require.Equal(t, "1", (<-told).Payload)
}
