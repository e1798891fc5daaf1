package mysql

import (
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

func TestASandboxRefusesWhatCommits(t *testing.T) {
	for _, text := range []string{"CREATE TABLE t (id int)", "create or replace table t (id int)", "CREATE UNIQUE INDEX i ON t (a)", "DROP TABLE t", "ALTER TABLE t ADD a int",
		"TRUNCATE t", "RENAME TABLE a TO b", "LOCK TABLES t WRITE", "GRANT ALL ON t TO u", "SELECT 1; DROP TABLE t", "CREATE VIEW v AS SELECT 1", "ANALYZE TABLE t"} {
		require.NotEmpty(t, dialect{}.Refuses(text), text)
	}
	for _, text := range []string{"CREATE TEMPORARY TABLE t (id int)", "DROP TEMPORARY TABLE t", "INSERT INTO t VALUES (1)", "SELECT * FROM t FOR UPDATE", "SELECT truncate(1.5, 0)"} {
		require.Empty(t, dialect{}.Refuses(text), text)
	}
}

func TestAReadOnlyTransactionOfASandboxRefusesWrites(t *testing.T) {
	var refused *mysql.MySQLError
	require.ErrorAs(t, dialect{}.ReadsOnly(" insert into t values (1)"), &refused)
	require.Equal(t, uint16(1792), refused.Number)
	require.NoError(t, dialect{}.ReadsOnly("SELECT 1"))
}
