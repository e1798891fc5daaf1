package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatOnlyReadsIsKnownByItsText(t *testing.T) {
	for _, q := range []string{
		"SELECT 1", "(select a from t)", "VALUES (1), (2)", "TABLE t", "WITH a AS (SELECT 1) SELECT * FROM a", "SHOW ALL",
		"select lower(a), count(*) from t where a in (1, 2) -- insert", "EXPLAIN SELECT 1", "SELECT 'insert', $1::int; SELECT 2;",
		`select "t"."a" from pg_class`,
	} {
		require.True(t, Texts{}.OnlyReads(q), q)
	}
	for _, q := range []string{
		"INSERT INTO t VALUES (1) RETURNING a", "WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a", "SELECT 1 INTO x",
		"UPDATE t SET a = 1 RETURNING a", "MERGE INTO t USING u ON true WHEN MATCHED THEN DELETE RETURNING *",
		"SELECT nextval('s')", `SELECT "nextval"('s')`, "SELECT pg_backend_pid()", "SELECT pg_catalog.pg_backend_pid()", "SELECT txid_current()",
		"SELECT unheard_of(1)", "SET a = 1", "FETCH 1 FROM c", "EXPLAIN ANALYZE INSERT INTO t VALUES (1)", "SELECT 1; INSERT INTO t VALUES (1)",
		`SELECT 'a\', 'b'`, "SELECT 'open", "EXECUTE p", "CALL p()",
	} {
		require.False(t, Texts{}.OnlyReads(q), q)
	}
}

func TestWhatAsksBackIsKnownByItsText(t *testing.T) {
	for _, q := range []string{"SELECT lastval()", "insert into t values (currval('s'))", `SELECT pg_catalog."lastval" ()`} {
		require.True(t, Texts{}.AsksBack(q), q)
	}
	for _, q := range []string{"SELECT 1", "SELECT lastval FROM t", "SELECT 'lastval()'", "SELECT nextval('s')", ""} {
		require.False(t, Texts{}.AsksBack(q), q)
	}
}
