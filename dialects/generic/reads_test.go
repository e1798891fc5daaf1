package generic

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatOnlyReadsAndWhatAsksBackIsKnownByItsText(t *testing.T) {
	d := Dialect{}
	for _, q := range []string{"SELECT a, count(*) FROM t WHERE a IN (1, 2) GROUP BY a", "SELECT coalesce(a, upper(b)) FROM t", "SHOW TABLES", "WITH a AS (SELECT 1) SELECT * FROM a", "SELECT share FROM t"} {
		require.True(t, d.OnlyReads(q), q)
		require.False(t, d.AsksBack(q), q)
	}
	for _, q := range []string{"SELECT own(1)", "INSERT INTO t VALUES (1)", "SELECT NEXT VALUE FOR s", "SELECT s.nextval FROM dual", "EXEC p", "SELECT @@spid"} {
		require.False(t, d.OnlyReads(q), q)
		require.False(t, d.AsksBack(q), q)
	}
	for _, q := range []string{
		"SELECT * FROM t FOR UPDATE", "SELECT * FROM t FOR SHARE", "SELECT * FROM t FOR KEY SHARE", "SELECT * FROM t LOCK IN SHARE MODE", "SELECT * FROM t WITH (UPDLOCK)",
		"SELECT * FROM t HOLDLOCK", "SELECT * FROM t WITH LOCK", "SELECT * FROM t WITH RS USE AND KEEP SHARE LOCKS", "EXPLAIN ANALYZE CREATE TABLE u AS SELECT 1",
	} {
		require.False(t, d.OnlyReads(q), q)
	}
	for _, q := range []string{"SELECT @@IDENTITY", "SELECT SCOPE_IDENTITY()", "SELECT @@rowcount", "SHOW WARNINGS", "SELECT last_insert_rowid()"} {
		require.True(t, d.AsksBack(q), q)
	}
}
