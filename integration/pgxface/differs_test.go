package pgxface

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// What pgxpool's own tests ask and gets another answer here. docs/pgx.md says why.

// pgxpool closes such a connection; here it is rolled back and kept.
func TestReleaseInATransactionByHandRollsBackAndKeeps(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"select 1", "selct"} {
		b, ctx := open(t, "pool_max_conns=1"), t.Context()
		c, err := b.pool.Acquire(ctx)
		require.NoError(t, err)
		_, err = c.Exec(ctx, "begin")
		require.NoError(t, err)
		require.Equal(t, byte('T'), c.Conn().PgConn().TxStatus())
		pid := c.Conn().PgConn().PID()
		_, _ = c.Exec(ctx, text)
		c.Release()
		b.atRest(t)
		c, err = b.pool.Acquire(ctx)
		require.NoError(t, err)
		require.Equal(t, pid, c.Conn().PgConn().PID())
		require.Equal(t, byte('I'), c.Conn().PgConn().TxStatus())
		c.Release()
	}
}

// pgxpool closes the connection of rows or of a transaction that are open at Release. Here they end, and the connection is kept.
func TestReleaseEndsWhatIsOpen(t *testing.T) {
	t.Parallel()
	b, ctx := open(t, "pool_max_conns=1"), t.Context()
	pid := ask[int](ctx, t, b.pool, pidQuery)
	c, err := b.pool.Acquire(ctx)
	require.NoError(t, err)
	tx, err := c.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "create table t (id int)")
	require.NoError(t, err)
	rows, err := tx.Query(ctx, "select generate_series(1,10)")
	require.NoError(t, err)
	var batch pgx.Batch
	batch.Queue("select generate_series(1,10)")
	results := c.SendBatch(ctx, &batch)
	require.NotNil(t, c.Conn())
	c.Release()
	c.Release()
	require.Equal(t, pid, ask[int](ctx, t, b.pool, pidQuery))

	next, err := b.pool.Acquire(ctx)
	require.NoError(t, err)
	require.False(t, rows.Next())
	_, err = results.Exec()
	require.Error(t, err)
	_, err = tx.Exec(ctx, "select 1")
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	require.ErrorIs(t, tx.Rollback(ctx), pgx.ErrTxClosed)
	require.Zero(t, ask[int](ctx, t, next, "select count(*) from pg_class where relname = 't'"))
	next.Release()
	b.atRest(t)
}

func TestABeginThatFailsNeedsNoConnection(t *testing.T) {
	t.Parallel()
	b, ctx := open(t, "pool_max_conns=1"), t.Context()
	for _, opts := range []pgx.TxOptions{{IsoLevel: "foo"}, {AccessMode: "foo"}, {DeferrableMode: "foo"}} {
		tx, err := b.pool.BeginTx(ctx, opts)
		require.ErrorContains(t, err, "foo")
		require.Nil(t, tx)
		b.atRest(t)
	}
	require.NoError(t, b.pool.Ping(ctx))
}

// A batch that begins a transaction is refused, but not by a panic of the usual deferred Rollback.
func TestABatchThatBeginsATransaction(t *testing.T) {
	t.Parallel()
	b, ctx := open(t, "pool_max_conns=1"), t.Context()
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{})
	batch.Queue("select 1")
	results := b.pool.SendBatch(ctx, &batch)
	tx := results.Tx()
	require.NotNil(t, tx)
	require.ErrorIs(t, tx.Rollback(ctx), pgx.ErrTxClosed)
	require.ErrorContains(t, results.Close(), "SendBatch of the transaction")
	_, err := results.Exec()
	require.Error(t, err)
	b.atRest(t)

	batch = pgx.Batch{}
	batch.Queue("select 1")
	results = b.pool.SendBatch(ctx, &batch)
	require.Nil(t, results.Tx())
	require.NoError(t, results.Close())
}

// pgxpool's Close waits for connections that are in use; here it does not.
func TestCloseDoesNotWait(t *testing.T) {
	t.Parallel()
	b, ctx := open(t, "pool_max_conns=1"), t.Context()
	c, err := b.pool.Acquire(ctx)
	require.NoError(t, err)
	closed := make(chan struct{})
	go func() { b.pool.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(waits):
		t.Fatal("Close waits for the connection")
	}
	c.Release()
	require.Eventually(t, func() bool { return b.pool.Stat().TotalConns() == 0 }, waits, tick)
}
