package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSettingsOfADatabaseAreKept(t *testing.T) {
	for query, keeps := range map[string]bool{
		"PRAGMA foreign_keys = OFF":                             true,
		" /* a */ pragma a(1); ;PRAGMA b;":                      true,
		"ATTACH 'x' AS y":                                       true,
		"detach y":                                              true,
		"CREATE TEMP TABLE t (a)":                               false,
		"PRAGMA foreign_keys = OFF; CREATE TEMP TABLE t (a)":    false,
		"CREATE TEMP TABLE t (a); PRAGMA foreign_keys = OFF":    false,
		"PRAGMA a = ';'; CREATE TEMP TABLE t (b) -- PRAGMA x=1": false,
		"": false,
	} {
		require.Equal(t, keeps, dialect{}.KeepsState(query), query)
	}
}
