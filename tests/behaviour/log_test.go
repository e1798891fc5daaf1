package behaviour

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// TestAConnectorInALogIsItsTargetWithWhatIsNotTheDefault: everything else of it would be noise.
func TestAConnectorInALogIsItsTargetWithWhatIsNotTheDefault(t *testing.T) {
	for dsn, want := range map[string]string{
		"postgres://app:" + secret + "@db/shop":                                            `{"target":"postgres app@db:5432/shop"}`,
		"postgres://app:" + secret + "@db/shop?pool_max_conns=20&pool_leak_exempt=reports": `{"target":"postgres app@db:5432/shop","pool_max_conns":"20","pool_leak_exempt":"reports"}`,
		"postgres://app:" + secret + "@db/shop?pool_max_conns=0":                           `"pooldriver: this Connector cannot be used: pooldriver: pool_max_conns: 0 is too small; the least is 1"`,
	} {
		var log bytes.Buffer
		slog.New(slog.NewJSONHandler(&log, nil)).Info("opened", "pool", pooldriver.New(dsn))
		require.Contains(t, log.String(), `"pool":`+want+"}", dsn)
	}
}

// TestALogMayUseTheOnlyConnection: what is said of a connection is said when it is on
// its way back.
func TestALogMayUseTheOnlyConnection(t *testing.T) {
	for message, use := range map[string]func(context.Context, *testing.T, *fakedb.Server, *sql.DB){
		"a transaction was open when its connection came back": func(_ context.Context, t *testing.T, _ *fakedb.Server, db *sql.DB) {
			leaveOpen(t, db)
		},
		"a task ended with a transaction open": func(ctx context.Context, t *testing.T, _ *fakedb.Server, db *sql.DB) {
			task, end := pooldriver.WithTask(ctx)
			tx, err := db.BeginTx(context.WithoutCancel(task), nil)
			require.NoError(t, err)
			end()
			_ = tx.Rollback()
		},
		"asked whether a connection is valid": func(_ context.Context, t *testing.T, server *fakedb.Server, db *sql.DB) {
			server.Inject(fakedb.Fault{Call: fakedb.ConnValid, Panic: "boom"})
			require.NoError(t, db.Ping())
		},
		"while a function of Raw has its connection": func(ctx context.Context, t *testing.T, _ *fakedb.Server, db *sql.DB) {
			task, end := pooldriver.WithTask(ctx)
			conn, err := db.Conn(context.WithoutCancel(task))
			require.NoError(t, err)
			done := inRaw(context.WithoutCancel(task), conn, nothing)
			ended := make(chan struct{})
			go func() { defer close(ended); end() }()
			<-task.Done()
			time.Sleep(10 * time.Millisecond)
			require.NoError(t, done())
			require.NoError(t, conn.Close())
			<-ended
		},
	} {
		t.Run(message, func(t *testing.T) {
			log := &detailed{}
			server, db, c := openTasks(t, 1, func(c *pooldriver.Config) { c.Logger = slog.New(log) })
			var failed atomic.Pointer[error]
			log.during = func() {
				if err := db.Ping(); err != nil {
					failed.Store(&err)
				}
			}
			soon(t, message, func() { use(t.Context(), t, server, db) })
			require.Eventually(t, func() bool { return log.count(message) == 1 }, 10*time.Second, time.Millisecond)
			require.Nil(t, failed.Load())
			atRest(t, c)
		})
	}
}

// TestATransactionThatATaskHasForgottenIsToldOf with the context of the task, which ends with it.
func TestATransactionThatATaskHasForgottenIsToldOf(t *testing.T) {
	log := &detailed{}
	_, db, c := openTasks(t, 1, func(c *pooldriver.Config) { c.Logger = slog.New(log) })
	ctx, end := pooldriver.WithTask(t.Context())
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	_, err := db.BeginTx(within, nil)
	require.NoError(t, err)
	end()
	require.Equal(t, 1, log.count("a task ended with a transaction open"))
	require.EqualValues(t, 1, c.Stats().Rollbacks)

	parent, cancel := context.WithCancel(t.Context())
	ctx, end = pooldriver.WithTask(parent)
	_, err = db.BeginTx(ctx, nil)
	require.NoError(t, err)
	cancel()
	end()
	require.Equal(t, 1, log.count("a task ended with a transaction open"), "its context has ended before")
	atRest(t, c)
}

// TestALogIsNotFlooded by tasks that leave a transaction open. Where its context has ended,
// database/sql rolls it back a moment later, and there is nothing to tell.
func TestALogIsNotFlooded(t *testing.T) {
	const message = "a task ended with a transaction open"
	log := &detailed{}
	_, db, c := openTasks(t, 1, func(c *pooldriver.Config) { c.Logger = slog.New(log) })
	leave := func(cancelFirst bool) {
		task, end := pooldriver.WithTask(t.Context())
		ctx, cancel := context.WithCancel(context.WithoutCancel(task))
		defer cancel()
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		if cancelFirst {
			cancel()
		}
		end()
		_ = tx.Rollback()
	}
	for range 20 {
		leave(true)
	}
	require.Zero(t, log.count(message))
	for range 20 {
		leave(false)
	}
	require.Equal(t, 1, log.count(message))
	atRest(t, c)
}
