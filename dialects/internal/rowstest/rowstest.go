// Package rowstest finds out what a driver does with the memory of its rows.
package rowstest

import (
	"bytes"
	"database/sql/driver"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// Changed reads rows to their end and closes them, keeping the byte slices of
// each row; then it lets after use the connection. It returns how many slices
// there were, and how many of them no longer hold what they held.
func Changed(t testing.TB, rows driver.Rows, after func()) (slices, changed int) {
	t.Helper()
	var kept, copies [][]byte
	dest := make([]driver.Value, len(rows.Columns()))
	for {
		err := rows.Next(dest)
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		for _, v := range dest {
			if b, ok := v.([]byte); ok {
				kept, copies = append(kept, b), append(copies, bytes.Clone(b))
			}
		}
	}
	require.NoError(t, rows.Close())
	after()
	for i := range kept {
		if !bytes.Equal(kept[i], copies[i]) {
			changed++
		}
	}
	return len(kept), changed
}
