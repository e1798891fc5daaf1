package behaviour

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/task"
)

// orphan inserts a child before its parent, which only deferred foreign keys allow.
func orphan(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO child VALUES (1)")
	if err == nil {
		_, err = tx.ExecContext(ctx, "INSERT INTO parent VALUES (1)")
	}
	return err
}

// TestForeignKeysThatAreDeferredOnADBAreSoForTheNextTransaction, as a library that loads
// fixtures into SQLite writes it, and for no other.
func TestForeignKeysThatAreDeferredOnADBAreSoForTheNextTransaction(t *testing.T) {
	bothWays(t, func(t *testing.T, db *sql.DB, c *pooldriver.Connector, max int) {
		_, err := db.Exec("CREATE TABLE parent (id INTEGER PRIMARY KEY); CREATE TABLE child (parent INTEGER REFERENCES parent (id))")
		require.NoError(t, err)
		must := func(text string) {
			_, err := db.Exec(text)
			require.NoError(t, err, text)
		}
		load := func(ctx context.Context) error {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			if err := orphan(ctx, tx); err != nil {
				require.NoError(t, tx.Rollback())
				return err
			}
			require.NoError(t, tx.Commit())
			must("DELETE FROM child")
			must("DELETE FROM parent")
			return nil
		}
		implicit, end := task.WithImplicit(t.Context())
		defer end()
		for _, ctx := range []context.Context{t.Context(), implicit} {
			must("PRAGMA defer_foreign_keys = ON")
			require.NoError(t, load(ctx))
			require.ErrorContains(t, load(ctx), "FOREIGN KEY", "it was for one transaction")

			must("PRAGMA defer_foreign_keys = ON")
			must("PRAGMA defer_foreign_keys = OFF")
			require.ErrorContains(t, load(ctx), "FOREIGN KEY", "it was taken back")

			must("PRAGMA defer_foreign_keys = 1")
			must("DELETE FROM parent")
			require.ErrorContains(t, load(ctx), "FOREIGN KEY", "a write in autocommit ends it, as on one connection")
		}
		// A task's transaction has only what its own statements set.
		must("PRAGMA defer_foreign_keys = ON")
		explicit, ended := pooldriver.WithTask(t.Context())
		require.ErrorContains(t, load(explicit), "FOREIGN KEY")
		ended()
		require.NoError(t, load(t.Context()), "it still waits for the next transaction")
		everyConn(t, db, max, func(conn *sql.Conn) { require.Equal(t, "0", pragma(t, conn, "defer_foreign_keys")) })
		require.Zero(t, c.Stats().StateDropped)
	})
}
