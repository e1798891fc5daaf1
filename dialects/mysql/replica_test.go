package mysql

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects/internal/hosts"
)

func TestAReplicaHasTheDSNOfItsPrimaryButForTheHost(t *testing.T) {
	for _, dsn := range []string{
		"mysql://app:pass%40word@db1:3307,db2/shop?target_session_attrs=primary&parseTime=true",
		"app:pass@word@tcp(db1:3307,db2)/shop?target_session_attrs=primary&parseTime=true",
	} {
		primary, err := parse(dsn)
		require.NoError(t, err)
		for given, want := range map[string]string{"db3:3344": "db3:3344", "db3": "db3:3306", "[::1]:3344": "[::1]:3344"} {
			found, err := primary.Replica(given)
			require.NoError(t, err)
			r := found.(*template)
			require.Equal(t, []string{want}, r.Hosts())
			require.Equal(t, hosts.Standby, r.role)
			c := r.servers[0].config
			require.Equal(t, [...]string{"app", "pass@word", "shop"}, [...]string{c.User, c.Passwd, c.DBName})
			require.True(t, c.ParseTime)
		}
		standbys, err := primary.Standbys()
		require.NoError(t, err)
		require.Equal(t, []string{"db1:3307", "db2:3306"}, standbys)
	}
}

func TestAReplicaThatIsNoHostIsRefusedWithoutItsText(t *testing.T) {
	primary, err := parse("mysql://app@db1/shop")
	require.NoError(t, err)
	for _, given := range []string{"", ":3306", "s3cret@db2", "mysql://s3cret", "db2?s3cret", "db2:s3cret", "unix(/s3cret)"} {
		_, err := primary.Replica(given)
		require.Error(t, err, given)
		require.NotContains(t, err.Error(), "s3cret")
	}
	_, err = primary.Standbys()
	require.ErrorContains(t, err, "target_session_attrs=read-write or primary")
}
