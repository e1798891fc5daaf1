package postgres

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNestedStatementsDoNotEndTheProcess by an overflow of the stack, however long the text.
func TestNestedStatementsDoNotEndTheProcess(t *testing.T) {
	defer debug.SetMaxStack(debug.SetMaxStack(1 << 20))
	for _, inside := range []string{"EXPLAIN (", "EXPLAIN ((", "EXPLAIN ANALYZE ", "EXPLAIN FORMAT=JSON (", "SET STATEMENT a=1 FOR ", "BEGIN x ", "WITH a AS (", "(", "PREPARE a AS ", "DECLARE c CURSOR FOR ", "CREATE TABLE t AS "} {
		effect := Classify(strings.Repeat(inside, 200_000))
		if strings.HasPrefix(inside, "EXPLAIN ((") {
			require.NotZero(t, effect, inside)
		}
	}
}
