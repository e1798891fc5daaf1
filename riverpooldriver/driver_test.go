package riverpooldriver

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	"github.com/pooldriver/pooldriver/pgxpooldriver"
)

// Tests with a server are in integration/riverqueue.

type tx struct{ pgx.Tx }

func TestATransactionComesBackAsItWasGiven(t *testing.T) {
	t.Parallel()
	for _, d := range []*Driver{nil, New(nil)} {
		given := &tx{}
		e := d.UnwrapExecutor(given)
		require.Same(t, given, d.UnwrapTx(e))
	}
	require.False(t, New(nil).PoolIsSet())
}

func TestAClosedConnectorIsAClosedPoolForRiver(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), pgxpooldriver.New(pooldriver.New("postgres://nobody@localhost/x"))
	d := New(pool)
	require.True(t, d.PoolIsSet())
	pool.Close()
	says := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, riverdriver.ErrClosedPool)
		require.ErrorIs(t, err, pooldriver.ErrClosed)
	}
	e := d.GetExecutor()
	require.NotImplements(t, (*riverdriver.ExecutorTx)(nil), e)
	says(e.Exec(ctx, "SELECT 1"))
	tx, err := e.Begin(ctx)
	require.NoError(t, err, "it begins with its first statement")
	says(tx.Exec(ctx, "SELECT 1"))
	says(tx.Commit(ctx))
	_, err = e.QueueList(ctx, &riverdriver.QueueListParams{Max: 1})
	says(err)
	says(d.GetListener(&riverdriver.GetListenenerParams{}).Connect(ctx))
	l := d.GetListener(&riverdriver.GetListenenerParams{Schema: "jobs"})
	require.Equal(t, "jobs", l.Schema())
	require.NoError(t, l.Connect(ctx))
	says(l.Listen(ctx, "topic"))
}

func TestAListenerThatIsNotConnected(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), pgxpooldriver.New(pooldriver.New("postgres://nobody@localhost/x"))
	defer pool.Close()
	l := New(pool).GetListener(&riverdriver.GetListenenerParams{Schema: "jobs"})
	for range 2 {
		require.ErrorIs(t, l.Listen(ctx, "topic"), errNotConnected)
		_, err := l.WaitForNotification(ctx)
		require.ErrorIs(t, err, errNotConnected)
		require.NoError(t, l.Unlisten(ctx, "topic"))
		require.NoError(t, l.Close(ctx))
		require.NoError(t, l.Connect(ctx))
		require.Error(t, l.Connect(ctx))
		require.NoError(t, l.Close(ctx))
	}
}

func TestWhoWaitsIsToldOfTheClose(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), pgxpooldriver.New(pooldriver.New("postgres://nobody@localhost/x"))
	defer pool.Close()
	l := New(pool).GetListener(&riverdriver.GetListenenerParams{Schema: "jobs"})
	require.NoError(t, l.Connect(ctx))
	told := make(chan error)
	go func() {
		_, err := l.WaitForNotification(ctx)
		told <- err
	}()
	select {
	case err := <-told:
		t.Fatal(err)
	case <-time.After(10 * time.Millisecond):
	}
	require.NoError(t, l.Close(ctx))
	require.ErrorIs(t, <-told, errNotConnected)
}
