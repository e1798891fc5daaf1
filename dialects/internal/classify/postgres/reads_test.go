package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatOnlyReadsIsKnownByItsText(t *testing.T) {
	for _, q := range []string{
		"SELECT 1", "(select a from t)", "VALUES (1), (2)", "TABLE t", "WITH a AS (SELECT 1) SELECT * FROM a", "SHOW ALL",
		"select lower(a), count(*) from t where a in (1, 2) -- insert", "EXPLAIN SELECT 1", "SELECT 'insert', $1::int; SELECT 2;",
		`select "t"."a" from pg_class`, "SELECT (t).*, t.a, (ARRAY[1.5])[1] FROM t", "SELECT share, t.share, key AS share FROM share WHERE 'for share' = a",
	} {
		require.True(t, Texts{}.OnlyReads(q), q)
	}
	for _, q := range []string{
		"INSERT INTO t VALUES (1) RETURNING a", "WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a", "SELECT 1 INTO x",
		"UPDATE t SET a = 1 RETURNING a", "MERGE INTO t USING u ON true WHEN MATCHED THEN DELETE RETURNING *",
		"SELECT nextval('s')", `SELECT "nextval"('s')`, "SELECT pg_backend_pid()", "SELECT pg_catalog.pg_backend_pid()", "SELECT txid_current()",
		"SELECT unheard_of(1)", "SET a = 1", "FETCH 1 FROM c", "EXPLAIN ANALYZE INSERT INTO t VALUES (1)", "SELECT 1; INSERT INTO t VALUES (1)",
		`SELECT 'a\', 'b'`, "SELECT 'open", "EXECUTE p", "CALL p()",
		"SELECT * FROM t FOR UPDATE", "SELECT * FROM t FOR NO KEY UPDATE", "SELECT * FROM t FOR SHARE", "select * from t for key share of t nowait",
		"TABLE t FOR /* rows */ SHARE SKIP LOCKED", "WITH a AS (SELECT * FROM t FOR SHARE) SELECT * FROM a", "EXPLAIN ANALYZE SELECT * FROM t FOR SHARE",
		"SELECT (ROW($1)::t).touch", "SELECT (a).b FROM t", `SELECT (t)."touch" FROM t`, "SELECT (array_agg(t))[1].touch FROM t", "SELECT 1 FROM t WHERE (t . touch) AND (t) . touch",
		"EXPLAIN ANALYZE CREATE TABLE u AS SELECT 1", "EXPLAIN (ANALYZE) REFRESH MATERIALIZED VIEW v",
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
