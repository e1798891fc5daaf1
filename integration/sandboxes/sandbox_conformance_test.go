package sandboxes

import (
	"crypto/sha256"
	"database/sql"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/conformance"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
	"github.com/pooldriver/pooldriver/sandbox"
)

// What a handle with one session cannot do as the bare driver does it: docs/testing.md.
const (
	oneSession  = "several connections at a time in one goroutine, where a test has one session"
	noIsolation = "isolation levels have no effect in a transaction that has begun before"
	noLimit     = "SetMaxOpenConns has no effect on the handle of a test"
	longOnly    = "the long form has it; sandboxes on SQLite have it always"
)

// TestSandboxBehavesAsTheBareDriver runs the definition of "transparent" in sandboxes.
func TestSandboxBehavesAsTheBareDriver(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	witness := account.Witness(t)
	// Each case has a schema of its own.
	schema := func(t testing.TB) string {
		name := fmt.Sprintf("%x", sha256.Sum256([]byte(t.Name())))[:16]
		mustExec(t, witness, "CREATE SCHEMA IF NOT EXISTS case_"+name+" AUTHORIZATION "+account.User)
		return "search_path=case_" + name
	}
	omitted := map[string]string{
		"CancelWhileWaitingForAConnection": noLimit,
		"ConnKeepsItsConnection":           oneSession,
		"IsolationLevelsReachTheServer":    noIsolation,
		"StatementsWorkOnEveryConnection":  oneSession,
		"StatsCountWhatIsInUse":            noLimit,
		"TransactionsKeepTheirConnection":  oneSession,
		"ValuersMayQueryTheSameDatabase":   "pgx calls a Valuer while the statement has the session; in production the query has another one",
		"WaitersGetWhatIsGivenBack":        noLimit,
	}
	if !randomtest.Long() {
		omitted["EmptyValuesOfEveryTypeComeBackAlike"] = longOnly
		omitted["EmptyValuesOfRowsReadLaterAreNotNull"] = longOnly
	}
	conformance.Run(t, conformance.Target{
		Name: "postgres", SQL: conformance.Postgres(), Parallel: true,
		Bare: func(t testing.TB) *sql.DB { return account.OpenBare(t, schema(t)) },
		Wrapped: func(t testing.TB) *sql.DB {
			c := pooldriver.New(account.URL(schema(t)), quietly)
			r := &recorder{TB: t, name: t.Name()}
			t.Cleanup(func() {
				require.Empty(t, r.end())
				require.NoError(t, c.Close())
			})
			return sandbox.DB(r, c)
		},
		Omit: omitted,
	})
}
