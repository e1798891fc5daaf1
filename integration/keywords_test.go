package integration

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// callingTexts are texts in which ~ is called, if the server takes it for a function there.
// t has one row, whose columns are a and b.
var callingTexts = strings.Split(`SELECT ~(1)
SELECT a, ~(1) FROM t
SELECT DISTINCT ~(1) FROM t
SELECT ALL ~(1) FROM t
SELECT DISTINCT a, ~(1) FROM t
SELECT -~(1)
SELECT NOT ~(1)
SELECT 1 + ~(1), 2
SELECT (~(1))
SELECT abs(~(1))
SELECT 1 WHERE ~(1) > 0
SELECT 1 FROM t WHERE a = 1 AND ~(1) > 0
SELECT 1 FROM t WHERE a = 2 OR ~(1) > 0
SELECT 1 FROM t WHERE a IN (2, ~(1))
SELECT 1 FROM t WHERE a BETWEEN ~(1) AND 3
SELECT 1 FROM t WHERE a BETWEEN 1 AND ~(1)
SELECT 1 FROM t WHERE b LIKE ~('x')
SELECT 1 FROM t WHERE b LIKE 'x' ESCAPE ~('x')
SELECT 1 FROM t WHERE ~(1) IS NULL
SELECT 1 FROM t GROUP BY ~(1)
SELECT a FROM t GROUP BY a, ~(1)
SELECT 1 FROM t HAVING ~(1) > 0
SELECT 1 FROM t ORDER BY ~(1)
SELECT 1 FROM t LIMIT ~(1)
SELECT 1 FROM t LIMIT 1 OFFSET ~(1)
SELECT 1 FROM t x JOIN t y ON ~(1) = x.a
SELECT CASE WHEN ~(1) = 1 THEN 1 END
SELECT CASE ~(1) WHEN 1 THEN 1 END
SELECT CASE WHEN a = 1 THEN ~(1) ELSE 2 END FROM t
SELECT CASE WHEN a = 2 THEN 1 ELSE ~(1) END FROM t
SELECT CAST(~(1) AS CHAR(3))
SELECT EXISTS (SELECT ~(1))
SELECT 1 UNION ALL SELECT ~(1)
SELECT sum(a) OVER (PARTITION BY ~(1)) FROM t
SELECT sum(a) OVER (ORDER BY ~(1)) FROM t
SELECT coalesce(NULL, ~(1))
INSERT INTO t VALUES (~(1), 'b')
INSERT INTO t (a, b) VALUES (~(1), 'b')
INSERT INTO t SELECT ~(1), 'b'
UPDATE t SET a = ~(1)
UPDATE t SET a = 1 WHERE ~(1) > 0
DELETE FROM t WHERE ~(1) > 100
WITH x AS (SELECT ~(1)) SELECT * FROM x
DELETE FROM t WHERE a = 100 RETURNING ~(1)
INSERT INTO t VALUES (1, 'b') RETURNING ~(1)
VALUES (~(1))`, "\n")

var postgresTexts = strings.Split(`SELECT * FROM ~(1)
SELECT * FROM t, ~(1)
SELECT * FROM t, LATERAL ~(1)
SELECT * FROM t JOIN ~(1) ON true
SELECT * FROM ROWS FROM (~(1))
SELECT DISTINCT ON (a) ~(1) FROM t
SELECT OPERATOR(pg_catalog.-) ~(1)
SELECT 1 OPERATOR(pg_catalog.+) ~(1)
SELECT '2020-01-01'::timestamp AT TIME ZONE ~('x')
SELECT substring('abc' FROM ~(1))
SELECT substring('abc' FROM 1 FOR ~(1))
SELECT overlay('abc' PLACING ~('x') FROM 1)
SELECT position(~('x') IN 'abc')
SELECT trim(LEADING ~('x') FROM 'abc')
SELECT 'a' ILIKE ~('x')
SELECT 'a' SIMILAR TO ~('x')
SELECT 1 IS DISTINCT FROM ~(1)
SELECT 1 BETWEEN SYMMETRIC ~(1) AND 2
SELECT ARRAY[~(1)]
SELECT (ARRAY[1])[~(1)]
SELECT ROW(~(1))
SELECT ~(1)::text
SELECT ~(1) FROM t FOR UPDATE
SELECT 1 FETCH FIRST ~(1) ROWS ONLY
SELECT 1 OFFSET ~(1)
SELECT sum(a) OVER (ORDER BY a ROWS ~(1) PRECEDING) FROM t
SELECT sum(a) OVER (ORDER BY a ROWS BETWEEN ~(1) PRECEDING AND ~(1) FOLLOWING) FROM t
SELECT sum(a) OVER (ORDER BY a RANGE ~(1) PRECEDING) FROM t
SELECT sum(a) OVER (ORDER BY a GROUPS ~(1) PRECEDING) FROM t
SELECT count(*) FILTER (WHERE ~(1) > 0) FROM t
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY ~(1)) FROM t
SELECT json_object('a' VALUE ~(1))
SELECT json_object('a' : ~(1))
SELECT json_value(jsonb '1', 'strict $.x' DEFAULT ~(1) ON EMPTY)
SELECT json_value(jsonb '1', '$ + $x' PASSING ~(1) AS x)
SELECT xmlparse(DOCUMENT ~('x'))
SELECT xmlparse(CONTENT ~('x'))
SELECT xmlelement(NAME x, ~('x'))
SELECT xmlroot(xml '<a/>', VERSION ~('x'))
SELECT xmlexists('a' PASSING BY REF ~('x'))
SELECT xmlforest(~(1) AS a)
SELECT concat(VARIADIC ARRAY[~('x')])
SELECT make_interval(days => ~(1))
SELECT make_interval(days := ~(1))
SELECT a FROM t GROUP BY ROLLUP (a, ~(1))
SELECT a FROM t GROUP BY GROUPING SETS ((a), (~(1)))
SELECT 1e1from ~(1)
MERGE INTO t USING t u ON t.a = ~(1) WHEN MATCHED THEN DO NOTHING
MERGE INTO t USING t u ON t.a = 9 WHEN NOT MATCHED AND ~(1) > 0 THEN DO NOTHING
MERGE INTO t USING t u ON t.a = 9 WHEN NOT MATCHED THEN INSERT VALUES (~(1), 'b')
MERGE INTO t USING t u ON t.a = u.a WHEN MATCHED THEN UPDATE SET a = CASE WHEN true THEN ~(1) END
UPDATE t SET (a, b) = (~(1), 'b')
UPDATE t SET (a, b) = ROW(~(1), 'b')
INSERT INTO t VALUES (1, 'b') ON CONFLICT DO NOTHING RETURNING ~(1)
INSERT INTO t SELECT 1, 'b' FROM t x JOIN t y ON ~(1) = 1
INSERT INTO t SELECT 1, 'b' FROM t x JOIN t y ON ~(1) > 0 WHERE x.a = 1 ON CONFLICT DO NOTHING
CREATE TABLE u AS SELECT ~(1)
CREATE MATERIALIZED VIEW u AS SELECT ~(1)
CREATE TABLE u PARTITION OF parted FOR VALUES IN (~(1))
ALTER TABLE t ADD COLUMN c int DEFAULT ~(1)
ALTER TABLE t ALTER COLUMN a TYPE int USING ~(1)
ALTER TABLE t ADD CHECK (~(a) > 0)
COPY (SELECT ~(1)) TO '/dev/null'
EXPLAIN ANALYZE SELECT ~(1)
SELECT 1 INTO u WHERE ~(1) > 0`, "\n")

// overloads are the keywords that are also names of the server's own functions, which programs
// use. An overload of such a function looks clean, as an overload of any other of the server's
// functions does: docs/transparency.md.
var overloads = strings.Fields("family format left name overlay path replace right strip substring text xml")

// TestPostgresAFunctionWithTheNameOfAKeywordIsSeen has a function for each keyword, which
// sets state. In whatever text the server calls it, the classifier must not call the text
// clean.
func TestPostgresAFunctionWithTheNameOfAKeywordIsSeen(t *testing.T) {
	t.Parallel()
	conn := onlyConn(t, testbed.Shared(t, testbed.Postgres).NewAccount(t).Witness(t))
	dialect, err := dialects.Find("postgres://h/d")
	require.NoError(t, err)
	mustExec(t, conn, "CREATE TABLE t (a int, b text)")
	mustExec(t, conn, "INSERT INTO t VALUES (1, 'b')")
	mustExec(t, conn, "CREATE TABLE parted (a int) PARTITION BY LIST (a)")
	words := someWords(t, conn, "SELECT word FROM pg_get_keywords()")
	called, texts := 0, slices.Concat(callingTexts, postgresTexts)
	for _, word := range words {
		if slices.Contains(overloads, word) {
			continue
		}
		for _, kind := range []string{"int", "text"} {
			mustExec(t, conn, fmt.Sprintf(`CREATE FUNCTION %q(%s) RETURNS %[2]s LANGUAGE plpgsql AS $$BEGIN PERFORM set_config('app.planted', 'yes', false); RETURN $1; END$$`, word, kind))
		}
		for i, text := range texts {
			for _, name := range []string{word, fmt.Sprintf("%q", word)} {
				if name != word && i >= len(callingTexts) {
					continue
				}
				text := strings.ReplaceAll(text, "~", name)
				called += missed(t, conn, dialect, text, "SET app.planted = 'no'; BEGIN", "SELECT count(*) FROM (SELECT) x WHERE current_setting('app.planted', true) = 'yes'")
			}
		}
	}
	t.Logf("%d texts called one of %d functions", called, len(words))
	require.Greater(t, called, 20*len(words))
}

var mysqlTexts = strings.Split(`DO ~(1)
DO 1, ~(1)
SELECT SQL_NO_CACHE ~(1)
SELECT SQL_CACHE ~(1)
SELECT HIGH_PRIORITY ~(1)
SELECT STRAIGHT_JOIN ~(1)
SELECT SQL_SMALL_RESULT ~(1)
SELECT SQL_BIG_RESULT ~(1)
SELECT SQL_BUFFER_RESULT ~(1)
SELECT SQL_CALC_FOUND_ROWS ~(1)
SELECT DISTINCTROW ~(1) FROM t
SELECT BINARY ~(1)
SELECT ! ~(1)
SELECT 1 DIV ~(1)
SELECT 1 MOD ~(1)
SELECT 1 XOR ~(1)
SELECT 1 && ~(1)
SELECT 1 RLIKE ~(1)
SELECT 1 REGEXP ~(1)
SELECT 1 SOUNDS LIKE ~(1)
SELECT 1 COLLATE utf8mb4_bin = ~(1)
SELECT NOW() + INTERVAL ~(1) DAY
SELECT INTERVAL ~(1) DAY + NOW()
SELECT DATE_ADD(NOW(), INTERVAL ~(1) DAY)
SELECT EXTRACT(DAY FROM ~(1))
SELECT CONVERT(~(1), CHAR)
SELECT CONVERT(~(1) USING utf8mb4)
SELECT CAST(~(1) AS SIGNED)
SELECT TRIM(LEADING ~(1) FROM 'abc')
SELECT TRIM(~(1) FROM 'abc')
SELECT POSITION(~(1) IN 'a')
SELECT SUBSTRING('abc' FROM ~(1) FOR 1)
SELECT SUBSTRING('abc' FROM 1 FOR ~(1))
SELECT GROUP_CONCAT(DISTINCT ~(1) ORDER BY ~(1) SEPARATOR 'x') FROM t
SELECT 1 FROM t GROUP BY ~(1) WITH ROLLUP
SELECT * FROM JSON_TABLE(~(1), '$' COLUMNS (a INT PATH '$')) x
SELECT 1 MEMBER OF (~(1))
SELECT ~(1) MEMBER OF ('[1]')
SELECT a FROM t WHERE (a, b) = (~(1), 'b')
SELECT 1 = ANY (SELECT ~(1))
SELECT IF(~(1), 1, 2)
SELECT ROW(~(1), 1) = ROW(1, 1)
SELECT a AS x, ~(1) y FROM t
SELECT t.a x, ~(1) FROM t FORCE INDEX () ORDER BY 1
SELECT * FROM t PARTITION (p) WHERE ~(1)
SELECT * FROM k USE INDEX (PRIMARY) WHERE ~(1)
SELECT * FROM t FOR SYSTEM_TIME AS OF ~(1)
SELECT * FROM v FOR SYSTEM_TIME AS OF TIMESTAMP ~(1)
SELECT * FROM v FOR SYSTEM_TIME BETWEEN ~(1) AND NOW()
SELECT * FROM v FOR SYSTEM_TIME FROM ~(1) TO ~(1)
SELECT sum(a) OVER (ORDER BY a ROWS ~(1) PRECEDING) FROM t
SELECT ~(1) FROM DUAL
SELECT 1 FROM t PROCEDURE ANALYSE(~(1))
SELECT DEFAULT(a), ~(1) FROM t
REPLACE INTO t VALUES (~(1), 'b')
REPLACE t VALUES (~(1), 'b')
INSERT INTO t SET a = ~(1)
INSERT t VALUES (~(1), 'b')
INSERT t VALUE (~(1), 'b')
INSERT IGNORE INTO t VALUES (~(1), 'b')
INSERT INTO k VALUES (1) ON DUPLICATE KEY UPDATE a = ~(1)
INSERT INTO k VALUES (1) AS n ON DUPLICATE KEY UPDATE a = ~(1)
UPDATE t SET a = ~(1), b = 'c'
UPDATE t SET b = 'c', a = ~(1)
UPDATE t SET a = 1 ORDER BY ~(1) LIMIT 1
UPDATE IGNORE t SET a = ~(1)
DELETE FROM t WHERE a = 2 ORDER BY ~(1) LIMIT 1
VALUES ROW(~(1), 1)
TABLE t ORDER BY ~(1)
SHOW TABLES WHERE ~(1)
SHOW VARIABLES WHERE ~(1) > 0
SHOW STATUS LIKE ~(1)
EXPLAIN ANALYZE SELECT ~(1)
EXPLAIN FORMAT=TREE SELECT ~(1)
ANALYZE SELECT ~(1)
ANALYZE FORMAT=JSON SELECT ~(1)
CREATE TABLE u AS SELECT ~(1) AS x
CREATE TABLE u SELECT ~(1) AS x
CREATE TABLE u (a INT DEFAULT (~(1)))
WITH RECURSIVE x AS (SELECT ~(1) AS n UNION ALL SELECT n + 1 FROM x WHERE n < 2) SELECT * FROM x
SET STATEMENT max_statement_time = 1 FOR SELECT ~(1)
SELECT 1e1from ~(1)
SELECT 1 LIMIT 1 INTO @x, ~(1)
SELECT _utf8mb4'x' = ~(1)
SELECT DATE'2020-01-01' = ~(1)
SELECT b'1' = ~(1)`, "\n")

// TestMySQLAFunctionWithTheNameOfAKeywordIsSeen is the same on MySQL or MariaDB. A native
// function is called before a stored one of its name.
func TestMySQLAFunctionWithTheNameOfAKeywordIsSeen(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	conn := onlyConn(t, account.Witness(t))
	dialect, err := dialects.Find("mysql:")
	require.NoError(t, err)
	mustExec(t, conn, "USE "+account.Database)
	mustExec(t, conn, "CREATE TABLE t (a INT, b VARCHAR(10))")
	mustExec(t, conn, "CREATE TABLE k (a INT PRIMARY KEY)")
	mustExec(t, conn, "INSERT INTO t VALUES (1, 'b')")
	mustExec(t, conn, "INSERT INTO k VALUES (1)")
	if account.Server.Engine == testbed.MariaDB {
		mustExec(t, conn, "CREATE TABLE v (a INT) WITH SYSTEM VERSIONING")
	}
	words := someWords(t, conn, "SELECT LOWER(WORD) FROM information_schema.KEYWORDS WHERE WORD REGEXP '^[A-Z]' AND WORD <> 'JSON_TABLE'")
	called, texts := 0, slices.Concat(callingTexts, mysqlTexts)
	for _, word := range append(words, "ordinary") {
		_, err := conn.ExecContext(t.Context(), fmt.Sprintf("CREATE FUNCTION `%s`(a TEXT) RETURNS INT BEGIN SET @planted = 1; RETURN 1; END", word))
		if err != nil {
			t.Logf("%s: %v", word, err)
			continue
		}
		for i, text := range texts {
			mustExec(t, conn, "SET @planted = 0")
			n := missed(t, conn, dialect, strings.ReplaceAll(text, "~", word), "START TRANSACTION", "SELECT @planted")
			if called += n; i == 0 && n == 0 {
				break // SELECT calls a native function, or none
			}
		}
		mustExec(t, conn, fmt.Sprintf("DROP FUNCTION `%s`", word))
		mustExec(t, conn, "DROP TABLE IF EXISTS u")
	}
	t.Logf("%d texts called one of %d functions", called, len(words))
	require.Greater(t, called, 50) // MySQL calls no function by a keyword, MariaDB does
}

// someWords are the keywords that a query returns; those of a seed, but in the long run all.
func someWords(t *testing.T, conn *sql.Conn, query string) []string {
	t.Helper()
	rows, err := conn.QueryContext(t.Context(), query)
	require.NoError(t, err)
	words, err := scanned[string](rows)
	require.NoError(t, err)
	require.Greater(t, len(words), 400)
	randomtest.Seeded(t).Shuffle(len(words), func(i, k int) { words[i], words[k] = words[k], words[i] })
	return words[:randomtest.Rounds(40, len(words))]
}

// missed executes clear, which begins a transaction, and then a text, and asks the server whether
// it has set state. If so it is 1, and the classifier must have seen it.
func missed(t *testing.T, conn *sql.Conn, dialect dialects.Dialect, text, clear, planted string) (n int) {
	t.Helper()
	mustExec(t, conn, clear)
	_, err := conn.ExecContext(t.Context(), text)
	if err == nil {
		require.NoError(t, conn.QueryRowContext(t.Context(), planted).Scan(&n))
	}
	_, err = conn.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err, text)
	if n > 0 && !dialect.Effect(text).Dirty() {
		t.Errorf("clean: %s", text)
	}
	return n
}

// onlyConn is one session of db.
func onlyConn(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
