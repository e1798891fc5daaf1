// Package dsn tests with the dialects what internal/dsn makes of their DSNs.
package dsn

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/mysql"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	"github.com/pooldriver/pooldriver/internal/dsn"
)

// TestADialectReadsTheSameButTheDatabase: what the dialects read of a changed DSN.
func TestADialectReadsTheSameButTheDatabase(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"postgres://app:p%40ss@h:1,g:2/shop?sslmode=disable&pool_max_conns=3",
		"postgresql://app@/shop?host=%2Frun%2Fpostgresql",
		"host=h user=app password='a b' dbname=shop application_name='x y'",
		"mysql://app:p%2Fss@h:3307/shop?parseTime=true",
		"app:p@ss/w@tcp(h:3307)/shop?loc=Europe%2FParis",
		"mysql:app:pass@unix(/run/my.sock)/shop",
	} {
		changed := dsn.PostgresDatabase(text, "other")
		if strings.Contains(text, "my") || strings.Contains(text, "tcp") {
			var err error
			changed, err = dsn.MySQLDatabase(text, "other")
			require.NoError(t, err)
		}
		before, after := pooldriver.New(text), pooldriver.New(changed)
		require.NoError(t, before.Err(), text)
		require.NoError(t, after.Err(), text)
		require.Equal(t, strings.Replace(before.Target(), "/shop", "/other", 1), after.Target())
		require.Equal(t, before.Hosts(), after.Hosts())
		require.Equal(t, before.DriverParams(), after.DriverParams())
		require.Equal(t, before.Settings(), after.Settings())
	}
}
