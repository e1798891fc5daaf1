// Package conformance runs the suite of internal/testing/conformance over SQLite.
package conformance

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/sqlite"
	"github.com/pooldriver/pooldriver/internal/testing/conformance"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

func TestMain(m *testing.M) {
	randomtest.AtOnce(8)
	goleak.VerifyTestMain(m)
}

func quiet(c *pooldriver.Config) { c.Logger = slog.New(slog.DiscardHandler) }

func TestSQLiteConformsToItself(t *testing.T) {
	t.Parallel()
	open := func(t testing.TB) *sql.DB {
		file := filepath.Join(t.TempDir(), "suite.db")
		db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_txlock=immediate")
		require.NoError(t, err)
		return db
	}
	conformance.Run(t, conformance.Target{Name: "sqlite", Bare: open, Wrapped: open, SQL: conformance.SQLite()})
}

func TestSQLiteBehavesAsIfBare(t *testing.T) {
	file := func(t testing.TB) string {
		return filepath.Join(t.TempDir(), "x.db") + "?_pragma=busy_timeout(5000)"
	}
	bare := func(t testing.TB) *sql.DB {
		db, err := sql.Open("sqlite", "file:"+file(t))
		require.NoError(t, err)
		return db
	}
	for name, wrapped := range map[string]func(t testing.TB) *sql.DB{
		"New": func(t testing.TB) *sql.DB { return sql.OpenDB(pooldriver.New("sqlite:"+file(t), quiet)) },
		"Wrap": func(t testing.TB) *sql.DB {
			db := bare(t)
			defer db.Close()
			return sql.OpenDB(pooldriver.Wrap(named{db.Driver(), "file:" + file(t)}, quiet))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, conformance.Target{Name: "sqlite", SQL: conformance.SQLite(), Bare: bare, Wrapped: wrapped})
		})
	}
}

// named is the connector that database/sql makes of a driver without one.
type named struct {
	own  driver.Driver
	name string
}

func (n named) Connect(context.Context) (driver.Conn, error) { return n.own.Open(n.name) }
func (n named) Driver() driver.Driver                        { return n.own }
