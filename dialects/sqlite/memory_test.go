package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/pooldriver/pooldriver"
)

// openMemory opens a database in memory that has one table.
func openMemory(t *testing.T, dsn string, options ...pooldriver.Option) *sql.DB {
	db := sql.OpenDB(pooldriver.New(dsn, options...))
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err := db.Exec("create table t as select 7 as a")
	require.NoError(t, err)
	return db
}

// openBareMemory opens the same by the driver alone.
func openBareMemory(t *testing.T, dsn string) *sql.DB {
	db, err := sql.Open("sqlite", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	db.SetMaxOpenConns(1) // each connection has its own database
	_, err = db.Exec("create table t as select 7 as a")
	require.NoError(t, err)
	return db
}

// files are the names in a directory.
func files(t *testing.T, dir string) []string {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// valueIn is the value of t.a in a file.
func valueIn(t *testing.T, path string) (a int) {
	db, err := sql.Open("sqlite", "file:"+path)
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.QueryRow("select a from t").Scan(&a))
	return a
}

// TestAFileBesideADatabaseInMemoryIsTheOneOfTheBareDriver: DIR stands for a directory.
func TestAFileBesideADatabaseInMemoryIsTheOneOfTheBareDriver(t *testing.T) {
	const fill = "; create table a.t as select a from main.t"
	for _, tc := range []struct {
		query string
		args  []any
		want  []string // the files
	}{
		{"vacuum into 'DIR/f.db'", nil, []string{"f.db"}},
		{"vacuum main into ?", []any{"DIR/f.db"}, []string{"f.db"}},
		{"vacuum into :f", []any{sql.Named("f", "DIR/f.db")}, []string{"f.db"}},
		{"vacuum into 'DIR/' || ? -- daily", []any{"f.db"}, []string{"f.db"}},
		{"vacuum into \"DIR/f.db\"", nil, []string{"f.db"}},
		{"select 1; vacuum into '/DIR/f.db';", nil, []string{"f.db"}}, // two slashes
		{"vacuum into 'DIR/it''s 1#?%25&.db'", nil, []string{"it's 1#?%25&.db"}},
		{"vacuum into 'file:DIR/f.db'", nil, []string{"f.db"}},
		{"vacuum into 'file:DIR/f.db?#x?y'", nil, []string{"f.db"}},
		{"vacuum into 'file:DIR/f%231.db?mode=rwc&cache=private#x'", nil, []string{"f#1.db"}},
		{"vacuum into 'DIR/none/f.db'", nil, nil},
		{"vacuum into null", nil, nil},
		{"vacuum into f", nil, nil},
		{"vacuum into ''", nil, nil},
		{"vacuum into 'file:DIR/f.db?vfs=memdb'", nil, nil},
		{"attach 'DIR/f.db' as a" + fill, nil, []string{"f.db"}},
		{"attach database [DIR/f.db] as a" + fill, nil, []string{"f.db"}},
		{"attach ? as a" + fill, []any{"DIR/f.db"}, []string{"f.db"}},
		{"attach ? as a" + fill, []any{[]byte("DIR/f.db")}, []string{"f.db"}},
		{"attach ? as ?" + fill, []any{"file:DIR/f.db", "a"}, []string{"f.db"}},
		{"attach $2 as $1" + fill, []any{"a", "DIR/f.db"}, []string{"f.db"}},
		{"attach ':memory:' as a" + fill, nil, nil},
		{"attach 'file::memory:' as a" + fill, nil, nil},
		{"attach 'file:DIR/f.db?mode=memory' as a" + fill, nil, nil},
		{"attach 'file:DIR/f.db?mode=ro' as a" + fill, nil, nil},
		{"attach 'file:/DIR/f?vfs=memdb' as a" + fill, nil, nil},
		{"attach 'file:DIR/f.db?vfs=none' as a" + fill, nil, nil},
		{"attach '' as a" + fill, nil, nil},
		{"attach null as a" + fill, nil, nil},
	} {
		run := func(db *sql.DB) (err error) {
			dir := t.TempDir()
			args := append([]any{}, tc.args...)
			for i, a := range args {
				switch a := a.(type) {
				case string:
					args[i] = strings.ReplaceAll(a, "DIR", dir)
				case []byte:
					args[i] = []byte(strings.ReplaceAll(string(a), "DIR", dir))
				case sql.NamedArg:
					args[i] = sql.Named(a.Name, strings.ReplaceAll(a.Value.(string), "DIR", dir))
				}
			}
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			_, err = conn.ExecContext(t.Context(), strings.ReplaceAll(tc.query, "DIR", dir), args...)
			require.NoError(t, conn.Close())
			require.ElementsMatch(t, tc.want, files(t, dir), "%s: %v", tc.query, err)
			for _, f := range tc.want {
				require.Equal(t, 7, valueIn(t, filepath.Join(dir, strings.NewReplacer("%", "%25", "#", "%23", "?", "%3f").Replace(f))), tc.query)
			}
			return err
		}
		bare := run(openBareMemory(t, ":memory:"))
		got := run(openMemory(t, ":memory:"))
		require.Equal(t, bare == nil, got == nil, "%s: bare %v, pooled %v", tc.query, bare, got)
	}
}

func TestAFileIsAttachedToEveryConnectionOfADatabaseInMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	db := openMemory(t, "file:x?mode=memory&cache=shared", func(c *pooldriver.Config) { c.MaxConns = 2 })
	_, err := db.Exec("attach ? as disk", path)
	require.NoError(t, err)
	for range 2 { // held both
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.ExecContext(t.Context(), "create table if not exists disk.t as select a from main.t")
		require.NoError(t, err)
		var file string
		require.NoError(t, conn.QueryRowContext(t.Context(), "select file from pragma_database_list where name = 'disk'").Scan(&file))
		require.Equal(t, path, file)
	}
	require.Equal(t, 7, valueIn(t, path))
}

// TestEveryWayToADatabaseInMemoryWritesFiles: prepared, as a query, by Raw and in AfterConnect.
func TestEveryWayToADatabaseInMemoryWritesFiles(t *testing.T) {
	dir := t.TempDir()
	db := openMemory(t, ":memory:", func(c *pooldriver.Config) {
		c.AfterConnect = func(ctx context.Context, conn driver.Conn) error {
			_, err := conn.(driver.ExecerContext).ExecContext(ctx, "vacuum into '"+dir+"/hook.db'", nil)
			return err
		}
	})
	stmt, err := db.Prepare("vacuum into ?")
	require.NoError(t, err)
	_, err = stmt.Exec(dir + "/prepared.db")
	require.NoError(t, err)
	require.NoError(t, stmt.Close())

	rows, err := db.Query("vacuum into ?", dir+"/query.db")
	require.NoError(t, err)
	require.NoError(t, rows.Close())

	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, pooldriver.Raw(t.Context(), conn, func(dc driver.Conn) error {
		c := dc.(driver.Execer) //nolint:staticcheck // the driver has it
		_, err := c.Exec("vacuum into ?", []driver.Value{dir + "/raw.db"})
		require.NoError(t, err)
		q := dc.(driver.Queryer) //nolint:staticcheck // the driver has it
		rows, err := q.Query("vacuum into '"+dir+"/raw query.db'", nil)
		require.NoError(t, err)
		require.NoError(t, rows.Close())
		s, err := dc.Prepare("vacuum into '" + dir + "/raw prepared.db'")
		require.NoError(t, err)
		_, err = s.Exec(nil) //nolint:staticcheck // as above
		require.NoError(t, err)
		return s.Close()
	}))
	require.ElementsMatch(t, []string{"hook.db", "prepared.db", "query.db", "raw.db", "raw query.db", "raw prepared.db"}, files(t, dir))
}

// TestRawOnADatabaseInMemoryHasWhatTheDriversConnectionHas: a type assertion succeeds on
// both or on neither.
func TestRawOnADatabaseInMemoryHasWhatTheDriversConnectionHas(t *testing.T) {
	methods := func(conn any) map[string]string {
		all := map[string]string{}
		of := reflect.TypeOf(conn)
		for i := range of.NumMethod() {
			name := of.Method(i).Name
			all[name] = reflect.ValueOf(conn).Method(i).Type().String()
		}
		return all
	}
	var bare, ours map[string]string
	conn, err := openBareMemory(t, ":memory:").Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, conn.Raw(func(dc any) error { bare = methods(dc); return nil }))
	require.NoError(t, conn.Close())
	for _, ofItsMutex := range []string{"Lock", "TryLock", "Unlock"} {
		delete(bare, ofItsMutex)
	}

	conn, err = openMemory(t, ":memory:").Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, pooldriver.Raw(t.Context(), conn, func(dc driver.Conn) error { ours = methods(dc); return nil }))
	require.NoError(t, conn.Close())
	require.Equal(t, bare, ours)
}

// TestADSNsVFSOpensTheFilesBesideADatabaseInMemory, also where the program chose memdb:
// then the bare driver writes no file.
func TestADSNsVFSOpensTheFilesBesideADatabaseInMemory(t *testing.T) {
	for dsn, want := range map[string][]string{
		":memory:?vfs=unix-none":           {"f.db"},
		"file:x?mode=memory&vfs=unix-none": {"f.db"},
		"file:/chosen?vfs=memdb":           {},
	} {
		for _, db := range []*sql.DB{openBareMemory(t, dsn), openMemory(t, strings.Replace(dsn, "/chosen", "/chosen2", 1))} {
			dir := t.TempDir()
			_, err := db.Exec("vacuum into ?", dir+"/f.db")
			require.NoError(t, err, dsn)
			require.Equal(t, want, files(t, dir), dsn)
		}
	}
}

// serialized is a database with a table of one row, as Serialize gives it.
func serialized(t *testing.T, value string) (content []byte) {
	db := openBareMemory(t, ":memory:")
	_, err := db.Exec("create table loaded as select " + value + " as a")
	require.NoError(t, err)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.Raw(func(dc any) (err error) {
		content, err = dc.(interface{ Serialize() ([]byte, error) }).Serialize()
		return err
	}))
	return content
}

// TestDeserializeReplacesTheDatabaseOfAllConnections, as on the bare driver that of the one connection.
func TestDeserializeReplacesTheDatabaseOfAllConnections(t *testing.T) {
	type conn interface {
		Deserialize(buf []byte) error
	}
	bare := openBareMemory(t, ":memory:")
	bareConn, err := bare.Conn(t.Context())
	require.NoError(t, err)
	content := serialized(t, "5")
	require.NoError(t, bareConn.Raw(func(dc any) error { return dc.(conn).Deserialize(content) }))
	require.NoError(t, bareConn.Close())
	requireLoaded(t, bare, 5)

	for _, dsn := range []string{":memory:", "file:deserialized?mode=memory&cache=shared", "file:/deserialized?vfs=memdb"} {
		db := openMemory(t, dsn, func(c *pooldriver.Config) { c.MaxConns = 3 })
		other := sql.OpenDB(pooldriver.New(dsn)) // what is shared by its name is shared by all
		open, err := db.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, open.PingContext(t.Context()))
		for i, value := range []string{"5", "6"} {
			content := serialized(t, value)
			lent(t, db, func(dc driver.Conn) error { return dc.(conn).Deserialize(content) })
			requireLoaded(t, db, 5+i)
			var a int
			require.NoError(t, open.QueryRowContext(t.Context(), "select a from loaded").Scan(&a))
			require.Equal(t, 5+i, a)
			if dsn != ":memory:" {
				requireLoaded(t, other, 5+i)
			}
		}
		lent(t, db, func(dc driver.Conn) error {
			require.Error(t, dc.(conn).Deserialize(nil))
			require.Error(t, dc.(conn).Deserialize([]byte("no database")))
			return nil
		})
		requireLoaded(t, db, 6)
		require.NoError(t, open.Close())
		require.NoError(t, other.Close())
	}
}

// TestARestoreIsSeenByAllConnections, as Deserialize is.
func TestARestoreIsSeenByAllConnections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "backup.db")
	file, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	_, err = file.Exec("create table loaded as select 5 as a")
	require.NoError(t, err)
	require.NoError(t, file.Close())
	for _, dsn := range []string{":memory:", "file:restored?mode=memory&cache=shared"} {
		db := openMemory(t, dsn)
		lent(t, db, func(dc driver.Conn) error {
			b, err := dc.(interface {
				NewRestore(uri string) (*sqlite.Backup, error)
			}).NewRestore(path)
			require.NoError(t, err)
			_, err = b.Step(-1)
			require.NoError(t, err)
			return b.Finish()
		})
		requireLoaded(t, db, 5)
	}
}

// lent calls f with a connection that Raw lends.
func lent(t *testing.T, db *sql.DB, f func(driver.Conn) error) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, pooldriver.Raw(t.Context(), conn, f))
	require.NoError(t, conn.Close())
}

// requireLoaded asks on two connections at once.
func requireLoaded(t *testing.T, db *sql.DB, want int) {
	t.Helper()
	for range 2 {
		var a int
		require.NoError(t, db.QueryRow("select a from loaded").Scan(&a))
		require.Equal(t, want, a)
	}
}

func TestTheModeOfADatabaseInMemoryIsIgnoredAsByTheDriver(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{":memory:?mode=ro", ":memory:?mode=readonly"} {
		bare, err := sql.Open("sqlite", dsn)
		require.NoError(t, err)
		for _, db := range []*sql.DB{bare, openMemory(t, dsn)} {
			_, err = db.Exec("CREATE TABLE u (a)")
			require.NoError(t, err, dsn)
		}
		require.NoError(t, bare.Close())
	}
	readOnly := sql.OpenDB(pooldriver.New("sqlite::memory:?mode=ro"))
	_, err := readOnly.Exec("CREATE TABLE u (a)")
	require.ErrorContains(t, err, "readonly")
	require.NoError(t, readOnly.Close())
}
