//go:build go1.27

package sandboxes

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/sandbox"
)

// TestSandboxRowsScanTheirColumns: since Go 1.27 pgx scans arrays itself, also when the rows were
// read into memory for a nested statement.
func TestSandboxRowsScanTheirColumns(t *testing.T) {
	t.Parallel()
	db := sandbox.DB(t, onServer(t, testbed.Postgres).connector)
	rows, err := db.Query("SELECT ARRAY['a', n::text] FROM generate_series(1, 3) n")
	require.NoError(t, err)
	defer rows.Close()
	n := 0
	for rows.Next() {
		n++
		var names []string
		require.NoError(t, rows.Scan(&names))
		require.Equal(t, []string{"a", string(rune('0' + n))}, names)
		require.Zero(t, count(t, db, "SELECT count(*) FROM ledger"))
	}
	require.NoError(t, rows.Err())
	require.Equal(t, 3, n)
}
