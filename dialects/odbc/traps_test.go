//go:build odbc && cgo

package odbc

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	odbcdriver "github.com/alexbrainman/odbc"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pooldriver/pooldriver/dialects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustTemplate(t testing.TB, dsn string) *template {
	t.Helper()
	tmpl, err := dialect{}.Parse(dsn)
	require.NoError(t, err)
	return tmpl.(*template)
}

func dialSQLite(t testing.TB) *session {
	t.Helper()
	s, err := mustTemplate(t, "odbc:Driver=SQLite3;Database="+filepath.Join(t.TempDir(), "x.db")).Dial(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	return s.(*session)
}

func (s *session) mustExec(t testing.TB, query string) {
	t.Helper()
	require.NoError(t, s.conn.execute(t.Context(), query), query)
}

func TestTheDatabaseBehindIsAskedFor(t *testing.T) {
	s := dialSQLite(t)
	require.Equal(t, "SQLite", s.database.name())
	require.True(t, s.Traits().WritesAlone)
	require.Equal(t, dialects.Stateful|dialects.Writes, s.how.template.Dialect().Effect("PRAGMA cache_size = 7"))

	for version, want := range map[string]string{
		"PostgreSQL 17.5 (Debian 17.5-1)":                           "PostgreSQL",
		"PostgreSQL 9.6.24":                                         "an unknown database",
		"PostgreSQL 8.0.2 on i686-pc-linux-gnu, Redshift 1.0.77467": "an unknown database",
		"PostgreSQL 11.2-YB-2.20.1.0-b0":                            "an unknown database",
		"CockroachDB CCL v24.1.0":                                   "an unknown database",
		"11.8.6-MariaDB-0+deb13u1":                                  "MariaDB",
		"8.4.3":                                                     "MySQL",
		"23.8.2.7":                                                  "an unknown database",
	} {
		require.Equal(t, want, byVersion(version).name(), version)
	}
}

func TestUntilItIsKnownAStatementHasTheEffectsOfAllDatabases(t *testing.T) {
	tmpl := mustTemplate(t, "odbc:DSN=x")
	d := tmpl.Dialect().(dialects.Detecting)
	require.False(t, d.Detected())
	require.True(t, d.Effect("PRAGMA cache_size = 7").Dirty())
	require.True(t, d.Effect("LISTEN x").Dirty())
	require.True(t, d.Effect("SET @a = 1").Dirty())
	require.Equal(t, dialects.Clean, d.Effect("SELECT a FROM t WHERE b = 1"))

	require.NoError(t, tmpl.dialect.decide(postgresql{}))
	require.True(t, d.Detected())
	require.NoError(t, tmpl.dialect.decide(postgresql{}))
	require.ErrorContains(t, tmpl.dialect.decide(mariadb{}), "PostgreSQL")
}

func TestTheDriverKeepsItsStatementWhereWeLookForIt(t *testing.T) {
	s := dialSQLite(t)
	si, err := s.Unwrap().Prepare("SELECT 1")
	require.NoError(t, err)
	require.IsType(t, &odbcdriver.Conn{}, s.Unwrap())
	require.NotNil(t, handleOf(si), "the memory of columns can no longer be kept")
	require.NoError(t, si.Close())
}

func TestRowsKnowThatThereIsNoOtherResultSet(t *testing.T) {
	s := dialSQLite(t)
	si, err := s.conn.Prepare("SELECT 1 UNION ALL SELECT 2")
	require.NoError(t, err)
	for range 2 { // the cursor's end does not spoil the next execution
		opened, err := si.Query(nil) //nolint:staticcheck // without a context
		require.NoError(t, err)
		answer, err := readText(opened)
		require.NoError(t, err)
		require.Equal(t, [][]string{{"1"}, {"2"}}, answer)
		require.False(t, opened.(driver.RowsNextResultSet).HasNextResultSet())
		require.NoError(t, opened.Close())
	}
	require.NoError(t, si.Close())
}

func TestAQueryThatGivesNoRowsIsExecutedOnceAndIsNoError(t *testing.T) {
	s := dialSQLite(t)
	s.mustExec(t, "CREATE TABLE t (a INTEGER)")
	answer, err := s.conn.ask(t.Context(), "INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	require.Empty(t, answer)
	n, err := s.askOne(t.Context(), "SELECT count(*) FROM t")
	require.NoError(t, err)
	require.Equal(t, "1", n)
}

func TestATextLongerThanItsColumnIsSaidToBeComesBackWhole(t *testing.T) {
	s := dialSQLite(t)
	long := strings.Repeat("0123456789äöü", 5000)
	s.mustExec(t, "CREATE TABLE t (a TEXT, b INTEGER, c VARCHAR(10), d BLOB)")
	si, err := s.conn.Prepare("INSERT INTO t VALUES (?, 7, ?, ?)")
	require.NoError(t, err)
	_, err = si.Exec([]driver.Value{long, long, []byte(long)}) //nolint:staticcheck // without a context
	require.NoError(t, err)
	require.NoError(t, si.Close())
	answer, err := s.conn.ask(t.Context(), "SELECT a, b, c, d FROM t")
	require.NoError(t, err)
	require.Equal(t, [][]string{{long, "7", long, long}}, answer)
}

func TestAKeptStatementGivesTheColumnsThatItsTableHasNow(t *testing.T) {
	s := dialSQLite(t)
	s.mustExec(t, "CREATE TABLE t (a INTEGER)")
	s.mustExec(t, "INSERT INTO t VALUES (1)")
	si, err := s.conn.Prepare("SELECT * FROM t")
	require.NoError(t, err)
	for _, want := range [][]string{{"1"}, {"1", ""}, {"1", "", "x"}} {
		opened, err := si.Query(nil) //nolint:staticcheck // without a context
		require.NoError(t, err)
		answer, err := readText(opened)
		require.NoError(t, err)
		require.Equal(t, [][]string{want}, answer)
		require.NoError(t, opened.Close())
		s.mustExec(t, map[int]string{1: "ALTER TABLE t ADD COLUMN b TEXT", 2: "ALTER TABLE t ADD COLUMN c TEXT DEFAULT 'x'", 3: "DROP TABLE IF EXISTS u"}[len(want)])
	}
	require.NoError(t, si.Close())
}

// sleep takes a second or more.
const sleep = "WITH RECURSIVE s (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < 2000000) SELECT count(*) FROM s"

// SQLite has no server that could end the connection.
func TestAStatementWhoseContextEndsIsLeftBehindAndItsConnectionEndsWithIt(t *testing.T) {
	tmpl := mustTemplate(t, "odbc:Driver=SQLite3;Database="+filepath.Join(t.TempDir(), "x.db"))
	for name, run := range map[string]func(ctx context.Context, si driver.Stmt) error{
		"exec": func(ctx context.Context, si driver.Stmt) error {
			_, err := si.(driver.StmtExecContext).ExecContext(ctx, nil)
			return err
		},
		"query": func(ctx context.Context, si driver.Stmt) error {
			_, err := si.(driver.StmtQueryContext).QueryContext(ctx, nil)
			return err
		},
	} {
		s, err := tmpl.Dial(t.Context(), nil)
		require.NoError(t, err)
		si, err := s.Conn().Prepare(sleep)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		began := time.Now()
		require.ErrorIs(t, run(ctx, si), context.DeadlineExceeded, name)
		cancel()
		require.Less(t, time.Since(began), 500*time.Millisecond, name)
		require.Equal(t, dialects.TxLost, s.TxStatus(), name)
		require.Equal(t, dialects.Dead, s.Peek(), name)
		_, err = s.Conn().Prepare("SELECT 1")
		require.ErrorIs(t, err, driver.ErrBadConn, name)
		require.NoError(t, si.Close())
		pending := s.(*session).conn.pending
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
		require.ErrorIs(t, s.Close(ctx), context.DeadlineExceeded, name)
		cancel()
		select {
		case <-pending:
		case <-time.After(time.Minute):
			require.Fail(t, "it does not end")
		}
	}
}

// failing is a driver's connection whose transactions cannot begin, and that
// then takes itself to be in one, as the driver's does.
type failing struct {
	driver.Conn
	begins int
}

var errBegin = errors.New("no")

func (c *failing) Begin() (driver.Tx, error) { c.begins++; return nil, errBegin }

func TestAConnectionOnWhichBeginFailedIsOfNoMoreUse(t *testing.T) {
	s := dialSQLite(t)
	c := newConn(&failing{Conn: s.Unwrap()})
	_, err := c.BeginTx(t.Context(), driver.TxOptions{})
	require.ErrorIs(t, err, driver.ErrBadConn, "nothing was executed: it may be tried elsewhere")
	require.ErrorIs(t, err, errBegin)
	require.False(t, c.IsValid())
	_, err = c.Prepare("SELECT 1")
	require.ErrorIs(t, err, driver.ErrBadConn)
}

func TestOptionsThatADatabaseHasNoStatementForAreErrors(t *testing.T) {
	s := dialSQLite(t)
	_, err := s.conn.BeginTx(t.Context(), driver.TxOptions{ReadOnly: true})
	require.EqualError(t, err, "sql: driver does not support read-only transactions")
	_, err = s.conn.BeginTx(t.Context(), driver.TxOptions{Isolation: driver.IsolationLevel(sql.LevelSerializable)})
	require.EqualError(t, err, "sql: driver does not support non-default isolation level")
	require.Equal(t, dialects.TxNone, s.TxStatus())

	before, inside, err := postgresql{}.begin(driver.TxOptions{Isolation: driver.IsolationLevel(sql.LevelSnapshot), ReadOnly: true})
	require.NoError(t, err)
	require.Empty(t, before)
	require.Equal(t, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY", inside)
	_, _, err = mariadb{}.begin(driver.TxOptions{Isolation: driver.IsolationLevel(sql.LevelLinearizable)})
	require.Error(t, err)
}

func TestTheStateOfASessionIsSeenAndEnded(t *testing.T) {
	s := dialSQLite(t)
	s.mustExec(t, "CREATE TABLE t (a INTEGER)")
	require.Equal(t, dialects.TxNone, s.TxStatus())
	s.mustExec(t, "BEGIN")
	s.mustExec(t, "INSERT INTO t VALUES (1)")
	require.Equal(t, dialects.TxOpen, s.TxStatus())
	require.NoError(t, s.Rollback(t.Context()))
	require.Equal(t, dialects.TxNone, s.TxStatus())
	tx, err := s.conn.Begin()
	require.NoError(t, err)
	s.mustExec(t, "INSERT INTO t VALUES (1)")
	require.Equal(t, dialects.TxOpen, s.TxStatus())
	require.NoError(t, tx.Rollback())
	n, err := s.askOne(t.Context(), "SELECT count(*) FROM t")
	require.NoError(t, err)
	require.Equal(t, "0", n)
	_, err = s.Clean(t.Context(), dialects.Stateful)
	require.ErrorIs(t, err, dialects.ErrCannotClean)
	kept, err := s.Clean(t.Context(), dialects.Clean)
	require.NoError(t, err)
	require.True(t, kept)
}

func TestErrorsOfConnectingSayWhatToDoAndHoldNoSecret(t *testing.T) {
	for dsn, want := range map[string]string{
		"odbc:DSN=nowhere;UID=app;PWD={hunter2;}":   "odbc.ini",
		"odbc:Driver={hunter2};UID=app;PWD=hunter2": "odbcinst -q -d",
	} {
		tmpl := mustTemplate(t, dsn)
		_, err := tmpl.Dial(t.Context(), nil)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "hunter2")
	}
	hidden := scrub(&odbcdriver.Error{APIName: "SQLDriverConnect", Diag: []odbcdriver.DiagRecord{{State: "28000", NativeError: 1045, Message: "PWD={hunter2}"}}}, []string{"{hunter2}", "hunter2"})
	require.NotContains(t, hidden.Error(), "hunter2")
	require.Equal(t, dialects.AuthFailed, mariadb{}.diagnose(hidden))
}

func TestAConflictIsKnownOverODBC(t *testing.T) {
	for _, c := range []struct {
		database interface {
			diagnose(error) dialects.Diagnosis
		}
		record odbcdriver.DiagRecord
	}{
		{postgresql{}, odbcdriver.DiagRecord{State: "40001"}},
		{postgresql{}, odbcdriver.DiagRecord{State: "40P01"}},
		{mariadb{}, odbcdriver.DiagRecord{State: "40001", NativeError: 1213}},
		{mariadb{}, odbcdriver.DiagRecord{State: "HY000", NativeError: 1020}},
		{sqlite3{}, odbcdriver.DiagRecord{State: "HY000", NativeError: 5}},
	} {
		err := &odbcdriver.Error{APIName: "SQLExecute", Diag: []odbcdriver.DiagRecord{c.record}}
		require.NotZero(t, c.database.diagnose(err)&dialects.Conflict, "%T %v", c.database, c.record)
	}
}
