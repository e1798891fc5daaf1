package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/conformance"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
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
		target.Wrapped = func(t testing.TB) *sql.DB {
			return sql.OpenDB(pooldriver.Wrap(connectorOf(t, account, parameters[engine]...), quiet))
		}
		t.Run("Wrap", func(t *testing.T) { conformance.Run(t, target) })
		target.Wrapped = func(t testing.TB) *sql.DB {
			return sql.OpenDB(pooldriver.Wrap(configured(t, account, parameters[engine]...), quiet))
		}
		t.Run("FromConfig", func(t *testing.T) { conformance.Run(t, target) })
	})
}

// TestPooldriverBehavesAsTheBareDriverInPipelines runs the cases in a crowd of reads, so that those of a case wait, and
// be pipelined when their texts are known: the Connector outlives the cases, which run several times. With one connection
// every read of a case waits behind the crowd.
func TestPooldriverBehavesAsTheBareDriverInPipelines(t *testing.T) {
	t.Parallel()
	const second = "it asks for a second connection while it has one"
	for conns, omit := range map[int]map[string]string{
		4: nil,
		1: {
			"ValuersMayQueryTheSameDatabase":  second,
			"StatementsWorkOnEveryConnection": second,
			"TransactionsKeepTheirConnection": second,
			"ConnKeepsItsConnection":          second,
			"PingReachesTheServer":            second,
			"StatsCountWhatIsInUse":           second,
		},
	} {
		t.Run(fmt.Sprintf("pool_max_conns=%d", conns), func(t *testing.T) {
			t.Parallel()
			target := postgresTarget()
			target.Omit = omit
			conformInPipelines(t, target, conns)
		})
	}
}

func conformInPipelines(t *testing.T, target conformance.Target, conns int) {
	t.Helper()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	target.Name = "pipelines"
	target.Differences = append(target.Differences, conformance.Difference{
		Case: "WrongNumbersOfArgumentsAreRefusedAlike", Label: "exec",
		Reason:  "pgx counts the arguments where the connection has prepared the text; with a crowd it is another connection",
		Permits: func(_, wrapped string) bool { return strings.Contains(wrapped, "42P02") },
	})
	target.Bare = func(t testing.TB) *sql.DB { return account.OpenBare(t) }
	c := pooldriver.New(account.URL(fmt.Sprintf("pool_max_conns=%d", conns), "pool_pipeline=16"), quiet)
	shared := sql.OpenDB(c)
	defer shared.Close()
	makeItems(t, shared)
	target.Wrapped = func(testing.TB) *sql.DB {
		c.Flush() // pgx keeps statements over tables that other cases have made
		return sql.OpenDB(lasting{c})
	}
	var crowd sync.WaitGroup
	var over atomic.Bool
	for range 24 {
		crowd.Go(func() {
			for !over.Load() {
				if err := readItem(context.Background(), shared); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	defer crowd.Wait()
	defer over.Store(true)
	for range randomtest.Rounds(1, 20) {
		conformance.Run(t, target)
	}
	require.Eventually(t, func() bool { return c.Stats().Pool.Pipelined > 0 }, slowMachine, time.Millisecond) // on a slow machine no text is short for long
}

// lasting is a connector that database/sql does not close.
type lasting struct{ driver.Connector }

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
