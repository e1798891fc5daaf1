package testbed

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver
	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"
)

// Vitess is a vtgate in front of two shards, all in one process, over one MySQL.
type Vitess struct {
	Addr     string // of the vtgate
	Keyspace string
}

const (
	vitessPort     = "33577"
	vitessKeyspace = "shop"
	vitessTopology = `keyspaces: <name: "shop" shards: <name: "-80"> shards: <name: "80-">> cells: "test"`
	vitessSchema   = `{"sharded": true, "vindexes": {"hash": {"type": "hash"}},
		"tables": {"ledger": {"column_vindexes": [{"column": "id", "name": "hash"}]}}}`
)

// vitessScript starts a MySQL without a password behind its socket, and vtcombo, which must
// not run as root.
const vitessScript = `set -e
docker-entrypoint.sh mysqld > /tmp/mysqld.log 2>&1 &
until (exec 3<> /dev/tcp/127.0.0.1/3306) 2> /dev/null; do sleep 0.2; done # while it is set up it has no port
mysql --no-defaults --user=root --socket=/run/mysqld/mysqld.sock -e 'CREATE DATABASE ` + "`vt_shop_-80`; CREATE DATABASE `vt_shop_80-`" + `'
mkdir -p /schema/shop /tmp/vt/tmp && cp /vschema.json /schema/shop/vschema.json && chown -R mysql /tmp/vt
exec env VTDATAROOT=/tmp/vt setpriv --reuid=mysql --regid=mysql --init-groups /vtcombo \
	--port 33574 --grpc-port 33575 --bind-address 127.0.0.1 \
	--mysql-server-port ` + vitessPort + ` --mysql-server-bind-address 0.0.0.0 --mysql-auth-server-impl none \
	--proto-topo '` + vitessTopology + `' --schema-dir /schema \
	--db-charset utf8mb4 --db-app-user root --db-dba-user root --db-allprivs-user root --db-socket /run/mysqld/mysqld.sock \
	--mycnf-server-id 1 --mycnf-socket-file /run/mysqld/mysqld.sock \
	--normalize-queries --dbddl-plugin vttest --log_dir /tmp/vt/tmp
`

// StartVitess starts the vtcombo that was built as binary. It ends with the test.
func StartVitess(t *testing.T, binary string) *Vitess {
	t.Helper()
	b := boxed{
		title: "Vitess", image: image(OracleMySQL.image()), port: vitessPort, tmpfs: map[string]string{},
		env:        map[string]string{"MYSQL_ALLOW_EMPTY_ROOT_PASSWORD": "1", "MYSQL_ROOT_HOST": "localhost"},
		entrypoint: []string{"/bin/bash", "-c"},
		command:    []string{vitessScript},
		files: []testcontainers.ContainerFile{
			{HostFilePath: binary, ContainerFilePath: "/vtcombo", FileMode: 0o755},
			{Reader: strings.NewReader(vitessSchema), ContainerFilePath: "/vschema.json", FileMode: 0o644},
		},
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, addr, err := b.run(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Terminate(context.Background())) })
	v := &Vitess{Addr: addr, Keyspace: vitessKeyspace}
	db := v.OpenBare(t)
	for err = db.PingContext(ctx); err != nil; err = db.PingContext(ctx) {
		require.NoError(t, ctx.Err(), "%v", err)
		time.Sleep(200 * time.Millisecond)
	}
	return v
}

// OpenBare opens a handle of the bare driver.
func (v *Vitess) OpenBare(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", fmt.Sprintf("app@tcp(%s)/%s", v.Addr, v.Keyspace))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// URL is the DSN with parameters "name=value".
func (v *Vitess) URL(parameters ...string) string {
	return fmt.Sprintf("mysql://app@%s/%s?%s", v.Addr, v.Keyspace, strings.Join(parameters, "&"))
}
