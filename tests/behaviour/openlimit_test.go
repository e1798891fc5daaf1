package behaviour

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

const openLimitWarning = "SetMaxOpenConns undoes"

// TestInTxWarnsOnceOfASetMaxOpenConnsThatUndoesNesting: with as many virtual connections as real
// ones, or fewer, a statement inside another one waits in database/sql.
func TestInTxWarnsOnceOfASetMaxOpenConnsThatUndoesNesting(t *testing.T) {
	for most, lines := range map[int]int{0: 0, 1: 1, 3: 1, 4: 1, 5: 0} {
		log := &lockedBuffer{}
		_, db, _ := openTasks(t, 4, func(c *pooldriver.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
		db.SetMaxOpenConns(most)
		for range 3 {
			require.NoError(t, pooldriver.InTx(t.Context(), db, nil, func(ctx context.Context, tx *sql.Tx) error { return insertTwo(ctx, tx) }))
		}
		require.Equal(t, lines, log.lines(openLimitWarning), most)
	}
}

// TestAHandleOfOpenWarnsOfASmallSetMaxOpenConns: Open knows the handle, and looks at it when the
// program has had the time to set it up.
func TestAHandleOfOpenWarnsOfASmallSetMaxOpenConns(t *testing.T) {
	file := "sqlite:" + filepath.Join(t.TempDir(), "test.db")
	for _, tc := range []struct {
		most  int
		close bool
		lines int
	}{{0, false, 0}, {1, false, 1}, {11, false, 0}, {1, true, 0}} {
		synctest.Test(t, func(t *testing.T) {
			log := &lockedBuffer{}
			db, err := pooldriver.Open(file, func(c *pooldriver.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
			require.NoError(t, err)
			db.SetMaxOpenConns(tc.most)
			if tc.close {
				require.NoError(t, db.Close())
			}
			time.Sleep(2 * time.Second) // of the bubble
			require.Equal(t, tc.lines, log.lines(openLimitWarning), tc)
			require.NoError(t, db.Close())
		})
	}
}

// TestAnInTxThatWaitsInDatabaseSQLSaysSo: pooldriver does not see the wait, so it gives no other
// error, and the error of database/sql is only that of the context.
func TestAnInTxThatWaitsInDatabaseSQLSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db, c := openTasks(t, 4)
		db.SetMaxOpenConns(1)
		inner := func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			return pooldriver.InTx(ctx, db, nil, func(context.Context, *sql.Tx) error { return errors.New("it has begun") })
		}
		err := pooldriver.InTx(t.Context(), db, nil, func(ctx context.Context, _ *sql.Tx) error { return inner(ctx) })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "pooldriver: InTx has waited in database/sql, because SetMaxOpenConns(1) lets it give no further connection")

		db.SetMaxOpenConns(0)
		require.EqualError(t, pooldriver.InTx(t.Context(), db, nil, func(ctx context.Context, _ *sql.Tx) error { return inner(ctx) }), "it has begun")

		// A context that ended before says only that.
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		db.SetMaxOpenConns(1)
		require.Equal(t, context.Canceled, pooldriver.InTx(ended, db, nil, func(context.Context, *sql.Tx) error { return nil }))
		require.Zero(t, c.Stats().Pool.Lent)
	})
}
