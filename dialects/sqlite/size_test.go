package sqlite_test

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// memdbSize is what memdb holds in this program, in place of 1 GiB. SQLite takes it before the
// first connection only.
const memdbSize = 1 << 20

func init() {
	tls := libc.NewTLS()
	defer tls.Close()
	args := libc.NewVaList(int64(memdbSize))
	defer libc.Xfree(tls, args)
	if rc := sqlite3.Xsqlite3_config(tls, sqlite3.SQLITE_CONFIG_MEMDB_MAXSIZE, args); rc != sqlite3.SQLITE_OK {
		panic("SQLITE_CONFIG_MEMDB_MAXSIZE is refused: somebody has opened a connection before")
	}
}

// TestADatabaseInMemoryIsAsLargeAsMemory, as over the bare driver, and unlike one in memdb. The long
// form fills more than memdb's usual limit.
func TestADatabaseInMemoryIsAsLargeAsMemory(t *testing.T) {
	fill := func(db *sql.DB, size int) error {
		db.SetMaxOpenConns(1)
		defer db.Close()
		_, err := db.Exec("create table t (a)")
		for ; size > 0 && err == nil; size -= 1 << 20 {
			_, err = db.Exec("insert into t values (zeroblob(1 << 20))")
		}
		return err
	}
	open := func(dsn string) *sql.DB {
		db, err := sql.Open("sqlite", dsn)
		require.NoError(t, err)
		return db
	}
	pooled := func(dsn string) *sql.DB { return sql.OpenDB(pooldriver.New(dsn)) }
	require.ErrorContains(t, fill(open("file:/size?vfs=memdb"), 2*memdbSize), "disk is full")
	require.ErrorContains(t, fill(pooled("file:/size?vfs=memdb"), 2*memdbSize), "disk is full")
	require.NoError(t, fill(open(":memory:"), 2*memdbSize))
	size := 2 * memdbSize
	if randomtest.Long() {
		size = 1100 << 20
	}
	require.NoError(t, fill(pooled(":memory:"), size))
	require.NoError(t, fill(pooled("file:size?mode=memory&cache=shared"), 2*memdbSize))
}
