package pooldriver

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

// TestEveryReasonIsInStats: the exporters show the reasons that Stats has.
func TestEveryReasonIsInStats(t *testing.T) {
	t.Parallel()
	_, _, c := openStub(t, dialects.Traits{})
	s := c.Stats()
	closed, failed := []string{}, []string{}
	for why := range s.Closed {
		closed = append(closed, string(why))
	}
	for why := range s.AcquireFailures {
		failed = append(failed, string(why))
	}
	require.ElementsMatch(t, constants(t, "observer.go", "CloseReason"), closed)
	require.ElementsMatch(t, constants(t, "stats.go", "AcquireFailure"), failed)
}

// constants are the values of a file's constants of a type of texts.
func constants(t *testing.T, file, name string) (values []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		of, _ := spec.Type.(*ast.Ident)
		if value, ok := spec.Values[0].(*ast.BasicLit); ok && of != nil && of.Name == name {
			text, err := strconv.Unquote(value.Value)
			require.NoError(t, err)
			values = append(values, text)
		}
		return true
	})
	require.NotEmpty(t, values)
	return values
}
