//go:build go1.27

package integration

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

func TestPgxScansArraysThroughUs(t *testing.T) {
	t.Parallel()
	db := openPool(t, testbed.Shared(t, testbed.Postgres).NewAccount(t))
	var texts []string
	var numbers [][]int
	var isTrue string
	require.NoError(t, db.QueryRow("SELECT ARRAY['a','b'], ARRAY[[1,2],[3,4]], true").Scan(&texts, &numbers, &isTrue))
	require.Equal(t, []string{"a", "b"}, texts)
	require.Equal(t, [][]int{{1, 2}, {3, 4}}, numbers)
	require.Equal(t, "true", isTrue)
}
