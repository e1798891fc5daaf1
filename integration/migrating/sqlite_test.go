package migrating

import (
	"database/sql/driver"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	_ "github.com/pooldriver/pooldriver/dialects/sqlite"

	"github.com/pooldriver/pooldriver"
)

func TestBackup(t *testing.T) {
	t.Parallel()
	db := open(t, "sqlite:"+filepath.Join(t.TempDir(), "shop.db"))
	ctx := t.Context()
	mustExec(t, db, "CREATE TABLE items (id integer)")
	mustExec(t, db, "INSERT INTO items VALUES (7)")
	file := filepath.Join(t.TempDir(), "copy.db")
	conn := connOf(t, db)
	// page: backup
	err := pooldriver.Raw(ctx, conn, func(dc driver.Conn) error {
		b, err := dc.(interface {
			NewBackup(string) (*sqlite.Backup, error)
		}).NewBackup(file)
		if err != nil {
			return err
		}
		for more := true; more && err == nil; {
			more, err = b.Step(100)
		}
		return errors.Join(err, b.Finish())
	})
	// end
	require.NoError(t, err)
	require.Equal(t, 7, value[int](t, ctx, open(t, "sqlite:"+file), "SELECT id FROM items"))
}

func TestPragma(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "shop.db")
	// page: pragma
	db, err := pooldriver.Open("sqlite:" + file + "?_pragma=foreign_keys(1)&_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)")
	// end
	require.NoError(t, err)
	defer db.Close()
	require.Equal(t, 5000, value[int](t, t.Context(), db, "PRAGMA busy_timeout"))
	require.True(t, value[bool](t, t.Context(), db, "PRAGMA foreign_keys"))
}

func TestImmediate(t *testing.T) {
	t.Parallel()
	file, ctx := filepath.Join(t.TempDir(), "shop.db"), t.Context()
	plain := open(t, "sqlite:"+file)
	mustExec(t, plain, "CREATE TABLE items (id integer, sold integer)")
	mustExec(t, plain, "INSERT INTO items VALUES (7, 0)")
	sell := func() error {
		// page: immediate
		db, err := pooldriver.Open("sqlite:" + file + "?_txlock=immediate") // each BeginTx is a BEGIN IMMEDIATE
		if err != nil {
			return err
		}
		defer db.Close()
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // does nothing after the commit
		if _, err := tx.ExecContext(ctx, "UPDATE items SET sold = 1 WHERE id = 7"); err != nil {
			return err
		}
		return tx.Commit()
		// end
	}
	require.NoError(t, sell())
	require.Equal(t, 1, value[int](t, ctx, plain, "SELECT sold FROM items"))
}
