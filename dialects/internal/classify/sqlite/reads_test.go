package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatOnlyReadsAndWhatAsksBackIsKnownByItsText(t *testing.T) {
	for _, q := range []string{"SELECT replace(a, 'b', 'c') FROM t", "WITH a AS (SELECT 1) SELECT * FROM a", "PRAGMA table_info(t)", "VALUES (1)", "SELECT own(1)"} {
		require.True(t, Texts{}.OnlyReads(q), q)
		require.False(t, Texts{}.AsksBack(q), q)
	}
	for _, q := range []string{"INSERT INTO t VALUES (1) RETURNING a", "WITH a AS (SELECT 1) DELETE FROM t RETURNING a", "PRAGMA foreign_keys = on", "BEGIN"} {
		require.False(t, Texts{}.OnlyReads(q), q)
		require.False(t, Texts{}.AsksBack(q), q)
	}
	for _, q := range []string{"SELECT last_insert_rowid()", "select changes (), total_changes()"} {
		require.False(t, Texts{}.OnlyReads(q), q)
		require.True(t, Texts{}.AsksBack(q), q)
	}
}
