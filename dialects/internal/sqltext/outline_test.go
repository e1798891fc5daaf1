package sqltext

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOutlineShowsNoLiteral(t *testing.T) {
	pg := New(Language{Features: DollarQuotes | EscapeStrings | NestedComments | ReturnEndsComment | UnicodeNames, Readings: []Reading{{}}, QuotesNames: true}).Outline
	my := New(Language{Features: DashNeedsSpace | HashComments | Backticks | VersionedComments, Readings: []Reading{{SingleEscapes: true, DoubleEscapes: true}}}).Outline
	for _, tc := range []struct {
		outline     func(string) string
		query, want string
	}{
		{pg, "SELECT  a\n\tFROM t -- secret\n WHERE b = $1 AND c=$12", "SELECT a FROM t WHERE b = $1 AND c=$12"},
		{pg, `SELECT * FROM "Orders" WHERE x = 'secret''s' /* secret /* */ secret */ AND n > -1.5e10`, `SELECT * FROM "Orders" WHERE x = ? AND n > -?`},
		{pg, "SELECT 0x5ec1e7, 12secret, 1.5.2", "SELECT ?, ?, ?"},
		{pg, "SELECT a[1], b.c, d::int FROM f(7)", "SELECT a[?], b.c, d::int FROM f(?)"},
		{pg, "SELECT $$secret$$, $q$secret$q$, E'it\\'s secret', U&'secret', x'5ec1e7'", "SELECT ?, ?, E?, U&?, x?"},
		{pg, "SELECT 'a\\', secret, 'b'", "SELECT …"},
		{pg, "SELECT 'secret", "SELECT ? …"},
		{pg, "SELECT 1 /* secret", "SELECT ? …"},
		{pg, "SET app.token = secret; SELECT 1", "SET app.token …"},
		{pg, "SELECT 1; SET app.token TO secret", "SELECT ?; SET app.token …"},
		{pg, "ALTER ROLE bob PASSWORD 'secret'", "ALTER ROLE bob …"},
		{pg, "CREATE USER bob IDENTIFIED BY secret", "CREATE USER bob …"},
		{pg, "SELECT password FROM users WHERE key = 'secret'", "SELECT password FROM users WHERE key = ?"},
		{pg, "SET search_path = secret", "SET search_path …"},
		{pg, "set  search_path\n to secret", "set search_path …"},
		{pg, "SELECT set_config('app.token', 'secret', false)", "SELECT set_config(?, ?, false)"},
		{pg, "CREATE TEMPORARY TABLE t AS SELECT 'secret'", "CREATE TEMPORARY TABLE t AS SELECT ?"},
		{pg, "ALTER ROLE bob PASSWORD 'secret'; SET app.token = 'secret'", "ALTER ROLE bob …"},
		{pg, "/* secret", " …"},
		{pg, "'secret'", "?"},
		{my, "SET PASSWORD = 'secret'", "SET …"},
		{my, "SET PASSWORD FOR bob = 'secret'", "SET …"},
		{my, "/* secret */ -- secret\n ; SET @token := 'secret'", "; SET @token …"},
		{pg, "", ""},
		{my, "INSERT INTO `t` VALUES ('it\"s', \"secret\", 5)", "INSERT INTO `t` VALUES (?, ?, ?)"},
		{my, "SELECT 'it\\'s secret'", "SELECT …"},
		{my, `SELECT "it\"s secret"`, "SELECT …"},
		{my, "SELECT 1 # secret\n FROM t", "SELECT ? FROM t"},
		{my, "SET @a := secret", "SET @a …"},
		{my, "SELECT /*!40001 SQL_NO_CACHE */ 5", "SELECT SQL_NO_CACHE ?"},
	} {
		got := tc.outline(tc.query)
		require.Equal(t, tc.want, got, tc.query)
		require.NotContains(t, got, "secret")
	}
}

func TestAnOutlineIsBounded(t *testing.T) {
	outline := New(Language{Readings: []Reading{{}}}).Outline
	long := outline("SELECT " + strings.Repeat("é, ", 1000))
	require.LessOrEqual(t, len(long), mostOutline+len(" …"))
	require.True(t, strings.HasSuffix(long, " …"))
	word := outline(strings.Repeat("é", 1000))
	require.LessOrEqual(t, len(word), mostOutline+len(" …"))
	require.NotContains(t, word, "\ufffd")
}
