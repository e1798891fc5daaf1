package conformance

import (
	"database/sql/driver"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

func unwrapped(c driver.Connector) driver.Connector { return c }

// The root package runs every variant, as the bare driver and through the wrapper. Of those
// that differ by one interface a part is enough here to see that a case does not depend on
// scheduling.
func TestEveryFakeDriverConformsToItself(t *testing.T) {
	step := randomtest.Rounds(6, 1)
	for i, v := range fakedb.Variants() {
		if one := strings.HasPrefix(v.Name, "only ") || strings.HasPrefix(v.Name, "without "); one && i%step != 0 {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			Run(t, Fake(v, unwrapped))
		})
	}
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
