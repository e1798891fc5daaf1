package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects/internal/hosts"
)

func TestAReplicaHasTheDSNOfItsPrimaryButForTheHost(t *testing.T) {
	for _, dsn := range []string{
		"postgres://app:pass%40word@db1:5433,db2/shop?sslmode=disable&target_session_attrs=primary&pool_max_conns=3",
		"postgres://app:pass%40word@/shop?host=db1,db2&port=5433,5432&sslmode=disable&target_session_attrs=primary",
		"postgres:host=db1,db2 port=5433,5432 user=app password='pass@word' dbname=shop sslmode = disable target_session_attrs=primary",
	} {
		primary, err := parse(dsn)
		require.NoError(t, err)
		for given, want := range map[string]string{"db3:5444": "db3:5444", "db3": "db3:5432", "[::1]:5444": "[::1]:5444"} {
			found, err := primary.Replica(given)
			require.NoError(t, err)
			r := found.(*template)
			require.Equal(t, []string{want}, r.addresses)
			require.Equal(t, hosts.Standby, r.role)
			require.Equal(t, [...]string{"app", "pass@word", "shop"}, [...]string{r.config.User, r.config.Password, r.config.Database})
			require.Nil(t, r.config.TLSConfig)
			require.NotContains(t, r.config.RuntimeParams, "pool_max_conns")
		}
		standbys, err := primary.Standbys()
		require.NoError(t, err)
		require.Equal(t, []string{"db1:5433", "db2:5432"}, standbys)
	}
	encrypted, err := parse("postgres://app@db1/shop?sslmode=verify-full")
	require.NoError(t, err)
	found, err := encrypted.Replica("db2")
	require.NoError(t, err)
	require.Equal(t, "db2", found.(*template).config.TLSConfig.ServerName)
}

func TestAReplicaThatIsNoHostIsRefusedWithoutItsText(t *testing.T) {
	primary, err := parse("postgres://app@db1/shop")
	require.NoError(t, err)
	for _, given := range []string{"", ":5432", "s3cret@db2", "postgres://s3cret", "db2?s3cret", "db2:s3cret"} {
		_, err := primary.Replica(given)
		require.Error(t, err, given)
		require.NotContains(t, err.Error(), "s3cret")
	}
	_, err = primary.Standbys()
	require.ErrorContains(t, err, "target_session_attrs=read-write or primary")
}
