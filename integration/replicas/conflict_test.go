package replicas

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// TestAReadThatARecoveryConflictCancelsRunsOnThePrimary has VACUUM remove rows that reads on the replica may still see. So the
// replica cancels the reads: 40001, "canceling statement due to conflict with recovery".
func TestAReadThatARecoveryConflictCancelsRunsOnThePrimary(t *testing.T) {
	s := onStage(t, testbed.Postgres)
	ctx := t.Context()
	replica, err := s.Replicas[0].Admin()
	require.NoError(t, err)
	for _, text := range []string{"ALTER SYSTEM SET max_standby_streaming_delay = '50ms'", "SELECT pg_reload_conf()"} {
		_, err := replica.ExecContext(ctx, text)
		require.NoError(t, err)
	}
	primary := s.account.OpenBare(t)
	for _, text := range []string{
		"CREATE TABLE removed (n integer) WITH (autovacuum_enabled = off)",
		"CREATE TABLE many AS SELECT n FROM generate_series(1, 5000) AS n",
	} {
		_, err := primary.ExecContext(ctx, text)
		require.NoError(t, err)
	}
	c := pooldriver.New(s.account.URL("pool_replicas=" + s.proxies[0].Addr()))
	require.NoError(t, c.Err())
	db, bare := sql.OpenDB(c), s.account.On(s.Replicas[0]).OpenBare(t)
	defer func() { require.NoError(t, db.Close()) }()

	// conflict runs a long read. When the replica executes it, rows that it may see are removed.
	conflict := func(t *testing.T, ctx context.Context, q querier) (onReplica bool, err error) {
		t.Helper()
		const executing = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = $1 AND clock_timestamp() - query_start > '100ms'"
		const read = "SELECT pg_is_in_recovery() FROM (SELECT count(*) FROM many a, many b, removed r) counted"
		_, err = primary.ExecContext(t.Context(), "INSERT INTO removed VALUES (1)")
		require.NoError(t, err)
		s.CatchUp(t)
		done := make(chan error)
		go func() { done <- q.QueryRowContext(ctx, read).Scan(&onReplica) }()
		require.Eventually(t, func() bool {
			var running int
			require.NoError(t, replica.QueryRowContext(t.Context(), executing, read).Scan(&running))
			return running == 1
		}, time.Minute, time.Millisecond)
		for _, text := range []string{"DELETE FROM removed", "VACUUM removed"} {
			_, err := primary.ExecContext(t.Context(), text)
			require.NoError(t, err)
		}
		return onReplica, <-done
	}
	requireCancelled := func(t *testing.T, err error) {
		t.Helper()
		said, ok := errors.AsType[*pgconn.PgError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, "40001", said.Code)
		require.Contains(t, said.Message, "conflict with recovery")
	}

	t.Run("bare driver", func(t *testing.T) {
		_, err := conflict(t, ctx, bare)
		requireCancelled(t, err)
	})
	t.Run("a statement", func(t *testing.T) {
		onReplica, err := conflict(t, pooldriver.Replica(ctx), db)
		require.NoError(t, err)
		require.False(t, onReplica)
		require.EqualValues(t, 1, c.Stats().Replica.Reads[pooldriver.ReplicaRefused])
	})
	t.Run("a transaction", func(t *testing.T) {
		inTx := func(t *testing.T, ctx context.Context, db *sql.DB) string {
			t.Helper()
			tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
			require.NoError(t, err)
			defer tx.Rollback()
			_, err = conflict(t, ctx, tx)
			requireCancelled(t, err)
			return err.Error()
		}
		require.Equal(t, inTx(t, ctx, bare), inTx(t, pooldriver.Replica(ctx), db))
	})
	_, onReplica, err := s.read(pooldriver.Replica(ctx), db, 0)
	require.NoError(t, err)
	require.True(t, onReplica, "it is not remembered")
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}
