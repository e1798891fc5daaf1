package conformance

import (
	"database/sql"
	"database/sql/driver"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/pooldriver/pooldriver/internal/fakedb"
)

func unwrapped(c driver.Connector) driver.Connector { return c }

func TestEveryFakeDriverConformsToItself(t *testing.T) {
	for _, v := range fakedb.Variants() {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			Run(t, Fake(v, unwrapped))
		})
	}
}

func TestSQLiteConformsToItself(t *testing.T) {
	t.Parallel()
	open := func(t testing.TB) *sql.DB {
		file := filepath.Join(t.TempDir(), "suite.db")
		db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_txlock=immediate")
		require.NoError(t, err)
		return db
	}
	Run(t, Target{Name: "sqlite", Bare: open, Wrapped: open, SQL: SQLite()})
}

func TestEveryCaseHasAUniqueNameAndRunsSomewhere(t *testing.T) {
	seen := map[string]bool{}
	postgres := Postgres()
	postgres.Own = []OwnArgs{{}}
	mysql, sqlite := MySQL(), SQLite()
	for _, c := range Cases() {
		require.False(t, seen[c.Name], c.Name)
		seen[c.Name] = true
		runs := false
		for _, f := range []*Flavor{&fakeFlavor, &postgres, &mysql, &sqlite} {
			runs = runs || f.provides().has(c.Needs)
		}
		require.True(t, runs, "%s runs nowhere", c.Name)
	}
	require.Greater(t, len(seen), 100)
}

func TestPlaceholdersAreRebound(t *testing.T) {
	f := Flavor{Dollar: true}
	require.Equal(t, "SELECT $1, $2", f.rebind("SELECT ?, ?"))
	require.Equal(t, "SELECT 1", f.rebind("SELECT 1"))
	require.Equal(t, "SELECT ?", (&Flavor{}).rebind("SELECT ?"))
}
