package integration

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	mysqldialect "github.com/pooldriver/pooldriver/dialects/mysql"
	postgresdialect "github.com/pooldriver/pooldriver/dialects/postgres"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

var fronts = []front{bare, wrapped, around}

var wrapped = front{
	name: "pooldriver",
	open: func(t testing.TB, account testbed.Account, max int) *sql.DB {
		return openPool(t, account, fmt.Sprintf("pool_max_conns=%d", max))
	},
}

// around is pooldriver over a connector of the program's own making.
var around = front{
	name: "pooldriver.Wrap",
	open: func(t testing.TB, account testbed.Account, max int) *sql.DB {
		db := sql.OpenDB(pooldriver.Wrap(connectorOf(t, account), quiet, func(c *pooldriver.Config) { c.MaxConns = max }))
		t.Cleanup(func() { _ = db.Close() })
		return db
	},
}

// connectorOf returns a connector of the bare driver; parameters are "name=value".
func connectorOf(t testing.TB, account testbed.Account, parameters ...string) driver.Connector {
	t.Helper()
	if account.Server.Engine == testbed.Postgres {
		return stdlib.GetConnector(*pgxConfig(t, account, parameters...))
	}
	connector, err := mysql.NewConnector(mysqlConfig(t, account, parameters...))
	require.NoError(t, err)
	return connector
}

// configured returns a connector that pooldriver dials by the driver's configuration.
func configured(t testing.TB, account testbed.Account, parameters ...string) driver.Connector {
	t.Helper()
	if account.Server.Engine == testbed.Postgres {
		return postgresdialect.FromConfig(pgxConfig(t, account, parameters...))
	}
	return mysqldialect.FromConfig(mysqlConfig(t, account, parameters...))
}

func pgxConfig(t testing.TB, account testbed.Account, parameters ...string) *pgx.ConnConfig {
	t.Helper()
	config, err := pgx.ParseConfig(account.URL(parameters...))
	require.NoError(t, err)
	return config
}

func mysqlConfig(t testing.TB, account testbed.Account, parameters ...string) *mysql.Config {
	t.Helper()
	config, err := mysql.ParseDSN("/?" + strings.Join(parameters, "&"))
	require.NoError(t, err)
	config.User, config.Passwd = account.User, account.Password
	config.Net, config.Addr, config.DBName = "tcp", account.Addr, account.Database
	config.Logger = &mysql.NopLogger{}
	return config
}

func openPool(t testing.TB, account testbed.Account, parameters ...string) *sql.DB {
	t.Helper()
	db := sql.OpenDB(pooldriver.New(account.URL(parameters...), quiet))
	t.Cleanup(func() { _ = db.Close() })
	return db
}
