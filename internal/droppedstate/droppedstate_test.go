package droppedstate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEachStatementIsToldOnceAndMostOfThem(t *testing.T) {
	t.Parallel()
	var told Told
	for i := range Most {
		require.True(t, told.First(fmt.Sprint(i)))
		require.False(t, told.First(fmt.Sprint(i)))
	}
	require.False(t, told.First("one more"))
}

func TestAWarningOfLostStateShowsNoValue(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"SET search_path = secret":                               "SET search_path …",
		"set  search_path\n to secret":                           "set search_path …",
		"SET app.token TO secret":                                "SET app.token …",
		"SET PASSWORD = 'secret'":                                "SET PASSWORD …",
		"SET PASSWORD FOR bob = 'secret'":                        "SET PASSWORD FOR bob …",
		"SET time_zone = '+00:00'":                               "SET time_zone …",
		"SELECT set_config('app.token', 'secret', false)":        "SELECT set_config …",
		"SELECT pg_try_advisory_lock(1)":                         "SELECT pg_try_advisory_lock …",
		"/* secret */ -- secret\n ; SET @secretless := 'secret'": "SET @secretless …",
		"/* secret": "(not shown)",
		"'secret'":  "(not shown)",
		"":          "(not shown)",
		"CREATE TEMPORARY TABLE t AS SELECT 'secret'":                "CREATE TEMPORARY TABLE t …",
		"SET " + strings.Repeat("x", 1000):                           "SET …",
		"ALTER ROLE bob PASSWORD 'secret'; SET app.token = 'secret'": "ALTER ROLE bob PASSWORD …",
	} {
		require.Equal(t, want, Opening(query), query)
	}
}
