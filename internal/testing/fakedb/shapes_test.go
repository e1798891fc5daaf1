package fakedb

import (
	"database/sql/driver"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/driverconn"
)

// found returns the features that the objects of a variant have by type
// assertion, which is how database/sql finds them.
func found(t *testing.T, v Variant) Features {
	t.Helper()
	server := NewServer()
	connector := server.Connector(v)
	c, err := connector.Connect(t.Context())
	require.NoError(t, err)
	s, err := c.Prepare("SELECT 1")
	require.NoError(t, err)
	r, err := s.Query(nil) //nolint:staticcheck // Every statement has it.
	require.NoError(t, err)

	var f Features
	has := func(feature Features, ok bool) {
		if ok {
			f |= feature
		}
	}
	is := func(feature Features, object any, assert func(any) bool) { has(feature, assert(object)) }
	is(Pinger, c, implements[driver.Pinger])
	is(Execer, c, implements[driver.Execer]) //nolint:staticcheck // Deprecated, and drivers with it exist.
	is(ExecerContext, c, implements[driver.ExecerContext])
	is(Queryer, c, implements[driver.Queryer]) //nolint:staticcheck // Deprecated, and drivers with it exist.
	is(QueryerContext, c, implements[driver.QueryerContext])
	is(ConnPrepareContext, c, implements[driver.ConnPrepareContext])
	is(ConnBeginTx, c, implements[driver.ConnBeginTx])
	is(SessionResetter, c, implements[driver.SessionResetter])
	is(Validator, c, implements[driver.Validator])
	is(ConnNamedValueChecker, c, implements[driver.NamedValueChecker])
	is(StmtExecContext, s, implements[driver.StmtExecContext])
	is(StmtQueryContext, s, implements[driver.StmtQueryContext])
	is(StmtNamedValueChecker, s, implements[driver.NamedValueChecker])
	is(ColumnConverter, s, implements[driver.ColumnConverter]) //nolint:staticcheck // Deprecated, and drivers with it exist.
	is(RowsNextResultSet, r, implements[driver.RowsNextResultSet])
	is(ColumnTypeScanType, r, implements[driver.RowsColumnTypeScanType])
	is(ColumnTypeDatabaseTypeName, r, implements[driver.RowsColumnTypeDatabaseTypeName])
	is(ColumnTypeLength, r, implements[driver.RowsColumnTypeLength])
	is(ColumnTypeNullable, r, implements[driver.RowsColumnTypeNullable])
	is(ColumnTypePrecisionScale, r, implements[driver.RowsColumnTypePrecisionScale])
	is(RowsColumnScanner, r, implements[driverconn.ColumnScanner])
	is(DriverContext, connector.Driver(), implements[driver.DriverContext])
	is(ConnectorCloser, connector, implements[interface{ Close() error }])

	require.NoError(t, r.Close())
	require.NoError(t, s.Close())
	require.NoError(t, c.Close())
	require.Empty(t, server.Violations())
	require.Zero(t, server.State().Open())
	return f
}

func implements[I any](v any) bool {
	_, ok := v.(I)
	return ok
}

func TestEveryVariantHasExactlyTheInterfacesOfItsFeatures(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range Variants() {
		require.False(t, seen[v.Name], "two variants are called %q", v.Name)
		seen[v.Name] = true
		require.Equal(t, v.Features.String(), found(t, v).String(), v.Name)
	}
}

func TestFeatureNamesAreComplete(t *testing.T) {
	require.Equal(t, Features(1)<<len(featureNames), lastFeature)
	require.Equal(t, All, ConnFeatures|StmtFeatures|RowsFeatures|DriverContext|ConnectorCloser)
	require.Equal(t, "all", All.String())
	require.Equal(t, "none", None.String())
	require.Equal(t, "Pinger+Validator", (Pinger | Validator).String())
}
