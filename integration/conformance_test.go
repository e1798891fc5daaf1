package integration

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/conformance"
)

// TestPooldriverBehavesAsTheBareDriver runs the definition of "transparent" on
// real servers.
func TestPooldriverBehavesAsTheBareDriver(t *testing.T) {
	t.Parallel()
	targets := map[testbed.Engine]conformance.Target{
		testbed.Postgres: postgresTarget(),
		testbed.MySQL:    {SQL: conformance.MySQL()},
	}
	parameters := map[testbed.Engine][]string{
		testbed.MySQL: {"parseTime=true", "multiStatements=true"},
	}
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		engine := account.Server.Engine
		target := targets[engine]
		target.Name = engine.String()
		target.Bare = func(t testing.TB) *sql.DB { return account.OpenBare(t, parameters[engine]...) }
		target.Wrapped = func(t testing.TB) *sql.DB { return openPool(t, account, parameters[engine]...) }
		t.Run("New", func(t *testing.T) { conformance.Run(t, target) })
		target.Rows = func(db *sql.DB) conformance.Rower { return pooldriver.DB{DB: db} }
		t.Run("DB", func(t *testing.T) { conformance.Run(t, target) })
		target.Rows = nil
		target.Wrapped = func(t testing.TB) *sql.DB {
			return sql.OpenDB(pooldriver.Wrap(connectorOf(t, account, parameters[engine]...), quiet))
		}
		t.Run("Wrap", func(t *testing.T) { conformance.Run(t, target) })
	})
}

func postgresTarget() conformance.Target {
	flavor := conformance.Postgres()
	flavor.Own = []conformance.OwnArgs{
		{Name: "simple protocol", Query: "SELECT $1::int", Args: []any{pgx.QueryExecModeSimpleProtocol, 5}},
		{Name: "exec mode", Query: "SELECT $1::int", Args: []any{pgx.QueryExecModeExec, 5}},
		{Name: "describe mode", Query: "SELECT $1::text", Args: []any{pgx.QueryExecModeDescribeExec, "x"}},
		{Name: "result formats", Query: "SELECT $1::int, 'x'", Args: []any{pgx.QueryResultFormats{1, 0}, 5}},
		{Name: "named arguments", Query: "SELECT @a::int", Args: []any{pgx.NamedArgs{"a": 5}}},
	}
	return conformance.Target{SQL: flavor, Differences: []conformance.Difference{{
		Case: "PingReachesTheServer", Label: "cancelled",
		Reason: "pgx takes a context that has ended for a bad connection; the connection is healthy and stays",
		Permits: func(_, wrapped string) bool {
			return strings.Contains(wrapped, "context canceled")
		},
	}}}
}
