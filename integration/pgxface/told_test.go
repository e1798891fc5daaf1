package pgxface

import (
	"bytes"
	"database/sql"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/pgxpooldriver"
)

// words are what the pool logs.
type words struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

func TestWhatTheConnectorTells(t *testing.T) {
	t.Parallel()
	var log words
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	connector := pooldriver.New(account.URL("pool_max_conns=2"), func(c *pooldriver.Config) {
		c.Logger, c.SampleStacks = slog.New(slog.NewTextHandler(&log, nil)), 1
	})
	b := both{account, connector, pgxpooldriver.New(connector), sql.OpenDB(connector)}
	defer b.db.Close()
	ctx := pooldriver.Label(t.Context(), "GET /orders")

	rows, err := b.pool.Query(ctx, "SELECT g FROM generate_series(1, 100000) g WHERE g > $1", 0)
	require.NoError(t, err)
	held := connector.Holders()
	require.Len(t, held, 1)
	require.Equal(t, "GET /orders", held[0].Label)
	require.Equal(t, pooldriver.PinRows, held[0].Pin)
	require.Contains(t, held[0].Statement, "generate_series")
	require.NotEmpty(t, held[0].TakenAt)
	require.Contains(t, held[0].TakenAt[0].Func, "TestWhatTheConnectorTells", "the stack begins at the program: %v", held[0].TakenAt)
	rows.Close()

	tx, err := b.pool.Begin(ctx)
	require.NoError(t, err)
	require.Empty(t, connector.Holders(), "nothing was sent")
	_, err = tx.Exec(ctx, "SELECT 1")
	require.NoError(t, err)
	require.Equal(t, pooldriver.PinTransaction, connector.Holders()[0].Pin)
	require.NotNil(t, tx.Conn())
	require.Equal(t, pooldriver.PinRaw, connector.Holders()[0].Pin)
	require.NoError(t, tx.Commit(ctx))

	// State that its statement loses is told, and state that a Conn keeps is not.
	require.NoError(t, b.pool.AcquireFunc(ctx, func(c *pgxpooldriver.Conn) error {
		_, err := c.Exec(ctx, "SET work_mem = '5MB'")
		return err
	}))
	require.NoError(t, pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SET work_mem = '5MB'")
		return err
	}))
	b.atRest(t)
	require.Zero(t, connector.Stats().StateDropped, log.String())
	_, err = b.pool.Exec(ctx, "SET work_mem = '6MB'")
	require.NoError(t, err)
	b.atRest(t)
	require.EqualValues(t, 1, connector.Stats().StateDropped)
	require.Equal(t, 1, strings.Count(log.String(), "WARN"), log.String())
}
