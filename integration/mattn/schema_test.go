package mattn

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func on(t *testing.T, conn *sql.Conn, text string) {
	t.Helper()
	_, err := conn.ExecContext(context.Background(), text)
	require.NoError(t, err, text)
}

func conns(t *testing.T, db *sql.DB) (a, b *sql.Conn) {
	t.Helper()
	a, err := db.Conn(t.Context())
	require.NoError(t, err)
	b, err = db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()); require.NoError(t, b.Close()) })
	return a, b
}

func TestAnOldSchemaIsReadAgain(t *testing.T) {
	_, db := wrap(t, filepath.Join(t.TempDir(), "x.db"))
	old, changer := conns(t, db)
	on(t, changer, "create table n (a)")
	on(t, changer, "create unique index i on n (a)")
	on(t, old, "select count(*) from kept")
	on(t, changer, "drop table kept")
	on(t, old, "alter table n rename to kept")
	_, err := old.ExecContext(t.Context(), "insert into kept values (1), (1)")
	require.ErrorContains(t, err, "UNIQUE constraint failed")
}

func TestAnAttachIsRepeatedForTheSameFile(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	c, db := wrap(t, filepath.Join(dir, "x.db"))
	_, err := db.Exec("attach ? as a key ?", "a.db", "k")
	require.NoError(t, err)
	mustExec(t, db, "create table a.t as select 7 as n")
	t.Chdir(t.TempDir())
	c.Flush()
	mustExec(t, db, "select n from a.t")
	require.NoFileExists(t, "a.db")

	require.NoError(t, os.Rename(filepath.Join(dir, "a.db"), filepath.Join(dir, "b.db")))
	c.Flush()
	mustExec(t, db, "select a from kept")
	_, err = db.Exec("select n from a.t")
	require.ErrorContains(t, err, "ATTACH a: unable to open database")
	require.NoError(t, os.Rename(filepath.Join(dir, "b.db"), filepath.Join(dir, "a.db")))
	mustExec(t, db, "select n from a.t")
	mustExec(t, db, "detach a")
}
