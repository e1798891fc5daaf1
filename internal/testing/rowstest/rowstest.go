// Package rowstest finds out what a driver does with the memory of its rows.
package rowstest

import (
	"bytes"
	"database/sql/driver"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// Changed reads rows to their end, keeps the byte slices of each row, and closes the rows. Then it
// calls after, which uses the connection. Changed returns the number of slices, and how many of
// them have changed.
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
