package mysql

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatOnlyReadsIsKnownByItsText(t *testing.T) {
	for _, q := range []string{
		"SELECT 1", "(select a from t)", "VALUES ROW(1)", "TABLE t", "WITH a AS (SELECT 1) SELECT * FROM a", "SHOW TABLES", "DESCRIBE t",
		"select replace(a, 'x', 'y'), insert('abc', 1, 1, 'd'), count(*) from t # update", "EXPLAIN SELECT 1", "SELECT @@version",
		"SELECT share, t.share FROM share WHERE a IN (1) AND 'for share' = a",
	} {
		require.True(t, Texts{}.OnlyReads(q), q)
	}
	for _, q := range []string{
		"INSERT INTO t VALUES (1) RETURNING a", "WITH a AS (SELECT 1) DELETE FROM t", "SELECT SQL_CALC_FOUND_ROWS * FROM t LIMIT 1", "SELECT IS_FREE_LOCK('a')", "SELECT IS_USED_LOCK('a')",
		"SELECT NEXT VALUE FOR s", "SELECT nextval(s)", "SELECT CONNECTION_ID()", "SELECT @@pseudo_thread_id", "SELECT LAST_INSERT_ID()",
		"SELECT unheard_of(1)", "SELECT 1 INTO @a", "SELECT @a := 1", "CHECK TABLE t", "CALL p()", "SET @a = 1", "DELETE FROM t RETURNING a",
		"SELECT 1 /*! INTO @a */", `SELECT 'a\', 'b'`,
		"SELECT * FROM t FOR UPDATE", "SELECT * FROM t FOR SHARE", "select * from t for share of t skip locked", "SELECT * FROM t LOCK IN SHARE MODE",
		"TABLE t FOR SHARE", "(SELECT * FROM t LOCK IN SHARE MODE) UNION SELECT 1", "SELECT * FROM t /*!80000 FOR SHARE */",
	} {
		require.False(t, Texts{}.OnlyReads(q), q)
	}
}

func TestWhatAsksBackIsKnownByItsText(t *testing.T) {
	for _, q := range []string{
		"SELECT LAST_INSERT_ID()", "insert into child values (last_insert_id ( ), 1)", "SELECT FOUND_ROWS()", "SELECT row_count()",
		"SELECT @@identity", "SELECT @@session.last_insert_id", "SELECT @@local.warning_count", "SHOW WARNINGS", "SHOW COUNT(*) ERRORS",
		"GET DIAGNOSTICS CONDITION 1 @a = MESSAGE_TEXT", "SELECT PREVIOUS VALUE FOR s", "SELECT LASTVAL(s)",
	} {
		require.True(t, Texts{}.AsksBack(q), q)
	}
	for _, q := range []string{
		"SELECT 1", "UPDATE s SET id = LAST_INSERT_ID(id + 1)", "SELECT identity, previous, warnings FROM t", "SELECT 'FOUND_ROWS()'",
		"SELECT @identity", "SHOW TABLES", "",
	} {
		require.False(t, Texts{}.AsksBack(q), q)
	}
}
