package pooldriver_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/conformance"
	"github.com/pooldriver/pooldriver/internal/fakedb"
	"github.com/pooldriver/pooldriver/internal/randomtest"
)

// The conformance suite is the definition of transparent. It runs here over
// every shape of driver and over SQLite; in integration over real servers.

// TestEveryShapeOfDriverBehavesAsIfBare leaves the shapes with only one interface to the long tests:
// where code for one interface relies on another one by mistake, the shape without that other one
// shows it.
func TestEveryShapeOfDriverBehavesAsIfBare(t *testing.T) {
	for _, v := range fakedb.Variants() {
		if strings.HasPrefix(v.Name, "only ") && !randomtest.Long() {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, conformance.Fake(v, func(c driver.Connector) driver.Connector { return pooldriver.Wrap(c, quietly) }))
		})
	}
}

// A program whose contexts carry a task without its knowing must not change its
// meaning: here every statement of a case belongs to one implicit task.
func TestAdoptedProgramsBehaveAsIfBare(t *testing.T) {
	for _, v := range fakedb.Variants() {
		one := strings.HasPrefix(v.Name, "only ") || strings.HasPrefix(v.Name, "without ")
		if one && !randomtest.Long() {
			continue // by one interface each, which adoption does not meet
		}
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			target := conformance.Fake(v, adopt)
			conformance.Run(t, target)
		})
	}
}

// adopt wraps c so that all contexts belong to one task, which ends with the case, or a
// while after the database was closed: what a case does with a closed database comes first.
func adopt(c driver.Connector) driver.Connector {
	lifetime, end := context.WithCancel(context.Background())
	return adopting{pooldriver.Wrap(c, quietly, func(c *pooldriver.Config) {
		c.TaskKey = func(context.Context) (any, context.Context) {
			return "all", lifetime
		}
	}), end}
}

type adopting struct {
	*pooldriver.Connector
	end context.CancelFunc
}

func (a adopting) End() { a.end() }

func (a adopting) Close() error {
	time.AfterFunc(200*time.Millisecond, a.end)
	return a.Connector.Close()
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
		"New": func(t testing.TB) *sql.DB { return sql.OpenDB(pooldriver.New("sqlite:"+file(t), quietly)) },
		"Wrap": func(t testing.TB) *sql.DB {
			db := bare(t)
			defer db.Close()
			return sql.OpenDB(pooldriver.Wrap(named{db.Driver(), "file:" + file(t)}, quietly))
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
