//go:build odbc && cgo

package integration

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

const (
	replaced = "a session of MariaDB cannot be cleaned through ODBC: it is replaced, and the test counts cleanings or wants the same one"
	counted  = "the test counts prepared statements on the server: psqlODBC has none there with UseServerSidePrepare=0, " +
		"and queries of MariaDB are prepared for each execution"
)

// notOverODBC are the tests of tasks that are not run over ODBC, or not on one
// database, with reasons.
var notOverODBC = map[string]string{
	"TestAnInsertKnowsItsOwnRowsID":                                        "the driver tells of no row's number",
	"TestNobodyLooksAtAConnectionThatAFunctionOfRawHas":                    "its function uses an ExecerContext, which the driver has not",
	"TestInATransactionAnAlteredTableIsTheDriversAffair":                   "over ODBC nobody is told: TestOverODBCInATransactionNobodyIsToldThatATableWasAltered",
	"TestContextsThatEndAtRandomDoNoHarm/odbc-sqlite":                      "libsqliteodbc takes the process with it: see docs/odbc.md",
	"TestTwoLibrariesShareOneTransaction/odbc-postgres":                    "gorm writes $1 for PostgreSQL, which is no placeholder of ODBC",
	"TestRowsAndStatementsThatATaskLeavesOpenEndOnTheServer":               "the ODBC drivers read all rows at once: no server has any open",
	"TestTasksOnOneConnectionShareAPreparedStatement":                      counted,
	"TestWithoutAStatementCacheEachPrepareReachesTheServerAndNothingStays": counted,
	"TestSessionStateIsTheTasksAndNobodyElses/odbc-mysql":                  "the test tells a locked table by the type of another driver's error",
	"TestSuspectStatementsDoNotPin/odbc-mysql":                             replaced,
	"TestATaskIsSparedWhenAnothersConnectionIsKilled/odbc-mysql":           replaced,
	"TestAPreparedSetIsStateOfItsTask/odbc-mysql":                          replaced,
	"TestTasksThatHoldSomethingAreOnConnectionsOfTheirOwn/odbc-mysql":      replaced,
	"TestWhatATaskSetsLastsUntilItsEnd/odbc-mysql":                         replaced,
}

// runOverODBC runs the test on one database, unless it is not to be.
func runOverODBC(t *testing.T, database string, test func(t *testing.T)) {
	t.Helper()
	name := "odbc-" + database
	if notOverODBC[t.Name()] == "" && notOverODBC[t.Name()+"/"+name] == "" {
		t.Run(name, test)
	}
}

// eachServerOverODBC runs the test once more per server, the pool's way leading
// through ODBC.
func eachServerOverODBC(t *testing.T, test func(t *testing.T, s stage)) {
	t.Helper()
	for _, engine := range testbed.Engines() {
		runOverODBC(t, engine.String(), func(t *testing.T) {
			s := serverStage(t, testbed.Shared(t, engine).NewAccount(t))
			s.odbc = true
			test(t, s)
		})
	}
}

func sqliteOverODBC(t *testing.T, test func(t *testing.T, s stage)) {
	t.Helper()
	runOverODBC(t, "sqlite", func(t *testing.T) { test(t, stage{name: "sqlite", odbc: true}.fresh(t)) })
}

// overODBC is the same stage, the pool's way to it leading through ODBC.
func (s stage) overODBC() []stage {
	s.odbc = true
	return []stage{s}
}

// odbcURL is the stage's DSN.
func (s stage) odbcURL(parameters ...string) string {
	return "odbc:" + s.odbcString(parameters...)
}

// odbcString is the stage's connection string. psqlODBC does by its defaults what
// takes savepoints and transactions by statement away: see docs/odbc.md.
func (s stage) odbcString(parameters ...string) string {
	switch s.name {
	case "sqlite":
		parameters = append(parameters, "JournalMode=WAL", "Timeout=5000")
		return "Driver=SQLite3;Database=" + s.file + ";" + strings.Join(parameters, ";")
	case "postgres":
		parameters = append(parameters, "Protocol=7.4-0", "UseServerSidePrepare=0")
	}
	return odbcString(s.account, parameters...)
}

// openBareODBC opens the bare driver under database/sql's own pool.
func (s stage) openBareODBC(t testing.TB, parameters ...string) *sql.DB {
	t.Helper()
	db, err := sql.Open("odbc", s.odbcString(parameters...))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}
