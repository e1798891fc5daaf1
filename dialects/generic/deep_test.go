package generic

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNestedStatementsDoNotEndTheProcess by an overflow of the stack, however long the text.
func TestNestedStatementsDoNotEndTheProcess(t *testing.T) {
	defer debug.SetMaxStack(debug.SetMaxStack(1 << 20))
	for _, inside := range []string{"BEGIN EXPLAIN ", "BEGIN x ", "EXPLAIN ANALYZE ", "EXPLAIN (", "("} {
		effect := Classify(strings.Repeat(inside, 200_000))
		if strings.HasPrefix(inside, "BEGIN") {
			require.NotZero(t, effect, inside)
		}
	}
}
