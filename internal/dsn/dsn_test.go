package dsn

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestADSNLeadsToAnotherDatabase(t *testing.T) {
	t.Parallel()
	mysql := func(dsn, name string) string {
		changed, err := MySQLDatabase(dsn, name)
		require.NoError(t, err)
		return changed
	}
	sqlite := func(dsn, name string) string {
		changed, err := SQLiteFile(dsn, name)
		require.NoError(t, err)
		return changed
	}
	for _, tc := range []struct {
		change    func(dsn, name string) string
		dsn, want string
	}{
		{PostgresDatabase, "postgres://u:p@h/shop?sslmode=disable", "postgres://u:p@h/x?sslmode=disable"},
		{PostgresDatabase, "postgres://u:p@h", "postgres://u:p@h/x"},
		{PostgresDatabase, "POSTGRESQL://u:p@h:1,g:2/", "POSTGRESQL://u:p@h:1,g:2/x"},
		{PostgresDatabase, "postgres:///shop?host=%2Frun&dbname=shop", "postgres:///x?host=%2Frun"},
		{PostgresDatabase, "host=h dbname=shop user=u", "host=h  user=u dbname=x"},
		{PostgresDatabase, "postgres:host=h password='a dbname=b' dbname = 'shop'", "postgres:host=h password='a dbname=b' dbname=x"},

		{mysql, "mysql://u:p@h:1/shop?tls=true", "mysql://u:p@h:1/x?tls=true"},
		{mysql, "mariadb://u:p@h", "mariadb://u:p@h/x"},
		{mysql, "u:p/w@tcp(h:1)/shop?loc=Europe%2FParis", "u:p/w@tcp(h:1)/x?loc=Europe%2FParis"},
		{mysql, "u:p?w@unix(/run/my.sock)/", "u:p?w@unix(/run/my.sock)/x"},

		{sqlite, "sqlite:shop.db?_pragma=foreign_keys(1)&mode=ro", "sqlite:x?_pragma=foreign_keys(1)"},
		{sqlite, ":memory:", "sqlite:x"},
		{sqlite, "file:shop.db?cache=shared", "sqlite:x"},
	} {
		require.Equal(t, tc.want, tc.change(tc.dsn, "x"), tc.dsn)
	}
}

func TestErrorsRepeatNoPartOfTheDSN(t *testing.T) {
	t.Parallel()
	_, err := MySQLDatabase("u:secret@tcp(h)", "x")
	require.ErrorContains(t, err, "no slash")
	require.NotContains(t, err.Error(), "secret")
	_, err = SQLiteFile("sqlite:shop.db", "/tmp/a?b")
	require.ErrorContains(t, err, "TMPDIR")
}

func TestFilesOfOneKindDifferInTheirDirectory(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"sqlite:/tmp/TestA12/001/shop.db?_pragma=foreign_keys(1)&mode=ro": "sqlite:shop.db?_pragma=foreign_keys(1)",
		"sqlite:shop.db":       "sqlite:shop.db",
		"file:a/shop.db":       "sqlite:shop.db",
		`C:\data\shop.db`:      "sqlite:shop.db",
		"other/audit.db":       "sqlite:audit.db",
		":memory:":             "sqlite::memory:",
		"sqlite::memory:?a=/b": "sqlite::memory:?a=/b",
	} {
		require.Equal(t, want, SQLiteKind(dsn), dsn)
	}
}
