package conformance

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// known are the interfaces of database/sql/driver: those that every driver has, those that
// are features of the fake driver, and those that are only for values.
var known = strings.Fields(`
	Driver Connector Conn Stmt Tx Rows Result
	DriverContext Pinger Execer ExecerContext Queryer QueryerContext ConnPrepareContext ConnBeginTx
	SessionResetter Validator NamedValueChecker StmtExecContext StmtQueryContext ColumnConverter
	RowsNextResultSet RowsColumnTypeScanType RowsColumnTypeDatabaseTypeName RowsColumnTypeLength
	RowsColumnTypeNullable RowsColumnTypePrecisionScale RowsColumnScanner
	Valuer ValueConverter decimal decimalDecompose decimalCompose`)

// TestGoHasNoInterfaceOfDriversThatTheSuiteDoesNotKnow fails when a release of Go adds one.
// It then needs a feature of the fake driver, cases, and a way through pooldriver.
func TestGoHasNoInterfaceOfDriversThatTheSuiteDoesNotKnow(t *testing.T) {
	found := driverInterfaces(t)
	require.Contains(t, found, "RowsNextResultSet")
	for _, name := range found {
		require.Contains(t, known, name, "an interface of database/sql/driver is new")
	}
}

// driverInterfaces reads the source of the Go that runs the test.
func driverInterfaces(t *testing.T) (names []string) {
	t.Helper()
	pkg, err := build.Default.Import("database/sql/driver", "", 0)
	require.NoError(t, err)
	require.NotEmpty(t, pkg.GoFiles)
	for _, file := range pkg.GoFiles {
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(pkg.Dir, file), nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if _, ok := spec.Type.(*ast.InterfaceType); ok {
				names = append(names, spec.Name.Name)
			}
			return false
		})
	}
	return names
}
