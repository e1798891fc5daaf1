package sqlite_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/generic"
)

// TestADriverOfSQLiteHasSQLitesDialect: here modernc's. integration/sqlites has other drivers.
func TestADriverOfSQLiteHasSQLitesDialect(t *testing.T) {
	c, err := sqlite.NewConnector(":memory:")
	require.NoError(t, err)
	_, tmpl, err := dialects.Wrap(c, generic.Dialect{})
	require.NoError(t, err)
	require.Equal(t, "sqlite", tmpl.(dialects.OwnDialect).Dialect().Name())
	_, err = tmpl.(dialects.OwnDialect).Dialect().Parse(":memory:")
	require.Error(t, err)
	s, err := tmpl.Dial(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, s.(dialects.Irreplaceable).Irreplaceable())
	require.NoError(t, s.Close(t.Context()))
	require.NoError(t, tmpl.Close())
}
