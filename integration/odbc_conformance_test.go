//go:build odbc && cgo

package integration

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/odbc"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/conformance"
)

// odbcString is the account's ODBC connection string. Each parameter is
// "KEYWORD=value".
func odbcString(account testbed.Account, parameters ...string) string {
	host, port, _ := strings.Cut(account.Addr, ":")
	driver := "PostgreSQL Unicode"
	if account.Server.Engine == testbed.MySQL {
		driver = "MariaDB Unicode"
	}
	s := fmt.Sprintf("Driver={%s};Server=%s;Port=%s;Database=%s;UID=%s;PWD={%s}",
		driver, host, port, account.Database, account.User, strings.ReplaceAll(account.Password, "}", "}}"))
	return strings.Join(append([]string{s}, parameters...), ";")
}

// openBareODBC opens the bare driver under database/sql's own pool.
func openBareODBC(t testing.TB, account testbed.Account, parameters ...string) *sql.DB {
	t.Helper()
	db, err := sql.Open("odbc", odbcString(account, parameters...))
	require.NoError(t, err)
	return db
}

func TestPooldriverOverODBCBehavesAsTheBareDriver(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		flavor, parameters := conformance.PostgresOverODBC(), []string(nil)
		if account.Server.Engine == testbed.MySQL {
			const multiStatements = "OPTION=67108864"
			flavor, parameters = conformance.MariaDBOverODBC(), []string{multiStatements}
		}
		target := conformance.OverODBC(flavor,
			func(t testing.TB) *sql.DB { return openBareODBC(t, account, parameters...) },
			func(t testing.TB) *sql.DB {
				return sql.OpenDB(pooldriver.New("odbc:"+odbcString(account, parameters...), quiet))
			})
		if account.Server.Engine == testbed.Postgres {
			target.Omit["EmptyStatementsAreTheDriversBusiness"] = "an empty query gives no rows, and is no error"
			target.Omit["SavepointsAreTheServersBusiness"] = "psqlODBC drops them by its defaults, with one error or another; here they are refused"
		} else {
			target.Omit["EmptyStatementsAreTheDriversBusiness"] = "the driver hangs in Exec after the error of an empty text"
		}
		conformance.Run(t, target)
	})
}
