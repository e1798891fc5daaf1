package integration

import (
	"database/sql"
	"fmt"
	"testing"

	_ "github.com/pooldriver/pooldriver/dialects/mysql"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

var fronts = []front{bare, wrapped}

var wrapped = front{
	name: "pooldriver",
	open: func(t testing.TB, account testbed.Account, max int) *sql.DB {
		return openPool(t, account, fmt.Sprintf("pool_max_conns=%d", max))
	},
}

func openPool(t testing.TB, account testbed.Account, parameters ...string) *sql.DB {
	t.Helper()
	db := sql.OpenDB(pooldriver.New(account.URL(parameters...)))
	t.Cleanup(func() { _ = db.Close() })
	return db
}
