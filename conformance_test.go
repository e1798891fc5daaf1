package pooldriver_test

import (
	"database/sql"
	"database/sql/driver"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/conformance"
	"github.com/pooldriver/pooldriver/internal/fakedb"
)

// The conformance suite is the definition of transparent. It runs here over
// every shape of driver and over SQLite; in integration over real servers.

func TestEveryShapeOfDriverBehavesAsIfBare(t *testing.T) {
	for _, v := range fakedb.Variants() {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, conformance.Fake(v, func(c driver.Connector) driver.Connector { return pooldriver.Wrap(c) }))
		})
	}
}

func TestSQLiteBehavesAsIfBare(t *testing.T) {
	file := func(t testing.TB) string {
		return filepath.Join(t.TempDir(), "x.db") + "?_pragma=busy_timeout(5000)"
	}
	conformance.Run(t, conformance.Target{
		Name: "sqlite",
		SQL:  conformance.SQLite(),
		Bare: func(t testing.TB) *sql.DB {
			db, err := sql.Open("sqlite", "file:"+file(t))
			require.NoError(t, err)
			return db
		},
		Wrapped: func(t testing.TB) *sql.DB { return sql.OpenDB(pooldriver.New("sqlite:" + file(t))) },
	})
}
