package pooldriver_test

import (
	"context"
	"database/sql/driver"
	"strings"
	"testing"
	"time"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/conformance"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// The conformance suite is the definition of transparent. It runs here over
// every shape of driver; in tests/conformance over SQLite, in integration over servers.

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
