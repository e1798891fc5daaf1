package pooldriver

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Without it, QueryRowContext of a DB is that of the *sql.DB.
func TestARowHasItsRows(t *testing.T) {
	require.NotNil(t, rowsField, "this release of Go keeps the rows of a *sql.Row in another way: see rowsOf")
}
