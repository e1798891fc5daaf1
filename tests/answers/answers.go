// Package answers compares what databases answer to texts. The tests of package sandbox on SQLite and
// on servers use it.
package answers

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
)

// To are what a *sql.Conn answers to texts, a line for each.
func To(t testing.TB, db *sql.DB, texts []string) (all []string) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	for _, text := range texts {
		answer := "done"
		if _, err := conn.ExecContext(context.Background(), text); err != nil {
			answer = err.Error()
		}
		all = append(all, text+": "+answer)
	}
	return all
}
