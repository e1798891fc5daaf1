package replicas

import (
	"context"
	"database/sql"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// TestAHandlerReadsNothingOlderThanItsNotification, with replicas that replay, and with replicas that do not.
func TestAHandlerReadsNothingOlderThanItsNotification(t *testing.T) {
	s := onStage(t, testbed.Postgres)
	c := pooldriver.New(s.account.URL("pool_replicas="+s.proxies[0].Addr(), "pool_replica_reads=auto", "pool_replica_wait=1s"))
	require.NoError(t, c.Err())
	db := sql.OpenDB(c)
	defer func() { require.NoError(t, db.Close()) }()
	s.requireServes(t, db)
	ctx, stop := context.WithCancel(t.Context())
	told, ended := make(chan int), make(chan error, 1)
	replicas := 0
	go func() {
		ended <- c.Listen(ctx, "counters", func(ctx context.Context, n pooldriver.Notification) {
			got, onReplica, err := s.read(ctx, db, 3)
			if err != nil {
				t.Error(err)
			}
			if onReplica {
				replicas++
			}
			if want, _ := strconv.Atoi(n.Payload); got < want {
				t.Errorf("%d was notified, %d was read", want, got)
			}
			told <- got
		})
	}()
	<-told // the gap
	writer := s.account.OpenBare(t)
	write := func(n int) {
		t.Helper()
		tx, err := writer.Begin()
		require.NoError(t, err)
		_, err = tx.Exec(s.insert, 3, n)
		require.NoError(t, err)
		_, err = tx.Exec("SELECT pg_notify('counters', $1)", strconv.Itoa(n))
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		require.Equal(t, n, <-told)
	}
	for n := 1; n <= 40; n++ {
		write(n)
	}
	require.Greater(t, replicas, 20)
	require.NoError(t, s.Replicas[0].Hold(t.Context()))
	defer func() { require.NoError(t, s.Replicas[0].Release(context.Background())) }()
	for n := 41; n <= 45; n++ {
		write(n)
	}
	stop()
	require.NoError(t, <-ended)
}
