package driverconn

import (
	"database/sql/driver"
	"io"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// plainRows have what driver.Rows demands.
type plainRows struct{}

func (plainRows) Columns() []string         { return []string{"a"} }
func (plainRows) Close() error              { return nil }
func (plainRows) Next([]driver.Value) error { return io.EOF }

// richRows tell everything of their columns.
type richRows struct{ plainRows }

func (richRows) ColumnTypeScanType(int) reflect.Type   { return reflect.TypeFor[string]() }
func (richRows) ColumnTypeDatabaseTypeName(int) string { return "VARCHAR" }
func (richRows) ColumnTypeLength(i int) (int64, bool)  { return int64(10 * i), true }
func (richRows) ColumnTypeNullable(int) (bool, bool)   { return true, true }
func (richRows) HasNextResultSet() bool                { return true }
func (richRows) NextResultSet() error                  { return nil }
func (richRows) ColumnTypePrecisionScale(int) (int64, int64, bool) {
	return 5, 2, true
}

func TestADriverIsAskedForWhatItKnowsOfAColumn(t *testing.T) {
	require.Equal(t, ColumnType{
		ScanType: reflect.TypeFor[string](), DatabaseTypeName: "VARCHAR",
		Length: 30, HasLength: true, Nullable: true, HasNullable: true, Precision: 5, Scale: 2, HasDecimal: true,
	}, ColumnTypeOf(richRows{}, 3))
	require.Equal(t, ColumnType{ScanType: reflect.TypeFor[any]()}, ColumnTypeOf(plainRows{}, 3), "database/sql's answer")
	require.True(t, HasNextResultSet(richRows{}))
	require.False(t, HasNextResultSet(plainRows{}))
}
