package pgxface

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/sqlite"
	"github.com/pooldriver/pooldriver/pgxpooldriver"
)

func TestWhatCannotBeKeptIsAnError(t *testing.T) {
	t.Parallel()
	other := pgxpooldriver.New(pooldriver.New("sqlite::memory:"))
	t.Cleanup(other.Close)
	_, err := other.Exec(t.Context(), "SELECT 1")
	require.ErrorContains(t, err, "PostgreSQL")
	require.ErrorContains(t, other.QueryRow(t.Context(), "SELECT 1").Scan(new(int)), "PostgreSQL")
	wrong := pgxpooldriver.New(pooldriver.New("nonsense://"))
	require.Error(t, wrong.Ping(t.Context()))
	require.Error(t, pgxpooldriver.New(nil).Ping(t.Context()))

	b := open(t)
	_, err = b.pool.BeginTx(t.Context(), pgx.TxOptions{BeginQuery: "BEGIN"})
	require.ErrorContains(t, err, "IsoLevel")
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{})
	require.ErrorContains(t, b.pool.SendBatch(t.Context(), &batch).Close(), "SendBatch of the transaction")
	c, err := b.pool.Acquire(t.Context())
	require.NoError(t, err)
	require.Panics(t, func() { c.Hijack() })
	c.Release()
	c.Release()
	b.pool.Close()
	_, err = b.pool.Exec(t.Context(), "SELECT 1")
	require.ErrorIs(t, err, pooldriver.ErrClosed)
}
