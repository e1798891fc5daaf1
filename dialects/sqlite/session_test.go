package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pooldriver/pooldriver/dialects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func parseDSN(t testing.TB, dsn string) dialects.Template {
	t.Helper()
	tmpl, err := dialect{}.Parse(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tmpl.Close()) })
	return tmpl
}

// dial opens a session that is closed before its template is.
func dial(t testing.TB, tmpl dialects.Template) dialects.Session {
	t.Helper()
	s, err := tmpl.Dial(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	return s
}

func exec(t testing.TB, s dialects.Session, query string) {
	t.Helper()
	require.NoError(t, tryExec(s, query), query)
}

func tryExec(s dialects.Session, query string) error {
	_, err := s.Conn().(driver.ExecerContext).ExecContext(context.Background(), query, nil)
	return err
}

// openRows starts a query and reads the first row.
func openRows(t testing.TB, s dialects.Session, q string) (driver.Rows, driver.Value) {
	t.Helper()
	rows, err := s.Conn().(driver.QueryerContext).QueryContext(context.Background(), q, nil)
	require.NoError(t, err)
	dest := make([]driver.Value, len(rows.Columns()))
	require.NoError(t, rows.Next(dest))
	return rows, dest[0]
}

func value(t testing.TB, s dialects.Session, q string) driver.Value {
	t.Helper()
	rows, v := openRows(t, s, q)
	require.NoError(t, rows.Close())
	return v
}

func TestADatabaseInMemoryIsOneForAllConnectionsAndOutlivesThem(t *testing.T) {
	for _, dsn := range []string{":memory:", "sqlite::memory:", "sqlite:", "file::memory:", "file:x?mode=memory", "file:y?mode=memory&cache=shared"} {
		t.Run(dsn, func(t *testing.T) {
			tmpl := parseDSN(t, dsn)
			first, err := tmpl.Dial(t.Context(), nil)
			require.NoError(t, err)
			exec(t, first, "create table t(a)")
			exec(t, dial(t, tmpl), "insert into t values (7)")
			require.EqualValues(t, 7, value(t, first, "select a from t"))
			require.NoError(t, first.Close(t.Context()))
		})
	}
	t.Run("after the last", func(t *testing.T) {
		tmpl := parseDSN(t, ":memory:")
		s, err := tmpl.Dial(t.Context(), nil)
		require.NoError(t, err)
		exec(t, s, "create table t(a); insert into t values (7)")
		require.NoError(t, s.Close(t.Context()))
		require.EqualValues(t, 7, value(t, dial(t, tmpl), "select a from t"))
	})
}

func TestDatabasesInMemoryOfTwoTemplatesMeetOnlyUnderASharedName(t *testing.T) {
	for dsn, shared := range map[string]bool{
		":memory:":                        false,
		"file:x?mode=memory":              false,
		"file:x?mode=memory&cache=shared": true,
		"file:/some/name?vfs=memdb":       true,
	} {
		exec(t, dial(t, parseDSN(t, dsn)), "create table t(a)")
		err := tryExec(dial(t, parseDSN(t, dsn)), "select * from t")
		require.Equal(t, shared, err == nil, "%s: %v", dsn, err)
	}
}

func TestCloseOfTheTemplateLetsADatabaseInMemoryGo(t *testing.T) {
	const dsn = "file:gone?mode=memory&cache=shared"
	tmpl := parseDSN(t, dsn)
	s, err := tmpl.Dial(t.Context(), nil)
	require.NoError(t, err)
	exec(t, s, "create table t(a)")
	require.NoError(t, s.Close(t.Context()))
	require.NoError(t, tmpl.Close())
	require.NoError(t, tmpl.Close(), "a second Close does nothing")
	require.ErrorContains(t, tryExec(dial(t, parseDSN(t, dsn)), "select * from t"), "no such table")
}

func TestConnectionsOfADatabaseInMemoryWriteAndReadAtOnce(t *testing.T) {
	tmpl := parseDSN(t, ":memory:")
	setup := dial(t, tmpl)
	exec(t, setup, "create table t(a)")

	const writers, readers, rounds = 3, 3, 50
	var wg sync.WaitGroup
	errs := make(chan error, writers+readers)
	for i := range writers + readers {
		s := dial(t, tmpl)
		wg.Go(func() {
			for range rounds {
				stmt := "begin immediate; insert into t values (1); insert into t values (2); commit"
				if i >= writers {
					stmt = "select sum(a) from t"
				}
				if err := tryExec(s, stmt); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.EqualValues(t, 2*writers*rounds, value(t, setup, "select count(*) from t"))
}

// The pool reads such rows into memory before the write: Traits.RowsBlockWrites.
func TestAWriteUnderAnotherConnectionsOpenRowsWaitsAsLongAsItsContext(t *testing.T) {
	tmpl := parseDSN(t, ":memory:")
	require.True(t, tmpl.Traits().RowsBlockWrites)
	reader, writer := dial(t, tmpl), dial(t, tmpl)
	exec(t, reader, "create table t(a); insert into t values (1), (2); create table other(a)")
	rows, _ := openRows(t, reader, "select a from t")
	exec(t, writer, "insert into other values (3)")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := writer.Conn().(driver.ExecerContext).ExecContext(ctx, "insert into t values (3)", nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, rows.Close())
	exec(t, writer, "insert into t values (3)")
}

func TestTheStatusIsSQLitesOwn(t *testing.T) {
	for _, dsn := range []string{":memory:", filepath.Join(t.TempDir(), "x.db"), "sqlite:" + filepath.Join(t.TempDir(), "x.db") + "?_pragma=journal_mode(wal)"} {
		s := dial(t, parseDSN(t, dsn))
		exec(t, s, "create table t(a unique)")
		for _, step := range []struct {
			query string
			want  dialects.TxStatus
			fails bool
		}{
			{"select 1", dialects.TxNone, false},
			{"begin", dialects.TxOpen, false},
			{"insert into t values (1)", dialects.TxOpen, false},
			{"insert into t values (1)", dialects.TxOpen, true},
			{"commit", dialects.TxNone, false},
			{"savepoint a", dialects.TxOpen, false},
			{"release a", dialects.TxNone, false},
			{"/* hidden */ begin; select 1", dialects.TxOpen, false},
			{"insert or rollback into t values (1)", dialects.TxNone, true},
		} {
			err := tryExec(s, step.query)
			require.Equal(t, step.fails, err != nil, "%s: %v", step.query, err)
			require.Equal(t, step.want, s.TxStatus(), step.query)
		}
	}
}

func TestAskingForTheStatusDisturbsNothing(t *testing.T) {
	s := dial(t, parseDSN(t, ":memory:"))
	exec(t, s, "create table t(a)")
	for _, begin := range []struct {
		query string
		want  dialects.TxStatus
	}{{"select 1", dialects.TxNone}, {"begin", dialects.TxOpen}} {
		exec(t, s, begin.query)
		exec(t, s, "delete from t")
		exec(t, s, "insert into t values (1), (2), (3)")
		require.Equal(t, begin.want, s.TxStatus())
		require.EqualValues(t, 3, value(t, s, "select changes()"))
		require.EqualValues(t, 3, value(t, s, "select last_insert_rowid()"))

		for _, q := range []string{"select a from t", "update t set a = a returning a"} {
			rows, first := openRows(t, s, q)
			require.EqualValues(t, 1, first)
			require.Equal(t, begin.want, s.TxStatus(), q)
			dest := make([]driver.Value, 1)
			require.NoError(t, rows.Next(dest))
			require.NoError(t, rows.Next(dest))
			require.EqualValues(t, 3, dest[0])
			require.ErrorIs(t, rows.Next(dest), io.EOF)
			require.NoError(t, rows.Close())
		}
	}
	exec(t, s, "commit")
	require.EqualValues(t, 3, value(t, s, "select count(*) from t"))
}

func TestRollbackEndsWhatIsOpenAndDoesNoHarmOtherwise(t *testing.T) {
	s := dial(t, parseDSN(t, ":memory:"))
	exec(t, s, "create table t(a)")
	require.NoError(t, s.Rollback(t.Context()))
	for _, begin := range []string{"begin", "savepoint a", "begin immediate"} {
		exec(t, s, begin)
		exec(t, s, "insert into t values (1)")
		require.NoError(t, s.Rollback(t.Context()))
		require.Equal(t, dialects.TxNone, s.TxStatus())
		require.EqualValues(t, 0, value(t, s, "select count(*) from t"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Rollback(ctx), context.Canceled)
}

func TestOnlyACleanSessionIsCleanedInPlace(t *testing.T) {
	s := dial(t, parseDSN(t, ":memory:"))
	kept, err := s.Clean(t.Context(), dialects.TxControl)
	require.NoError(t, err)
	require.True(t, kept)
	for _, effect := range []dialects.Effect{dialects.Suspect, dialects.Stateful} {
		_, err = s.Clean(t.Context(), effect)
		require.ErrorIs(t, err, dialects.ErrCannotClean)
	}
}

func TestAClosedConnectionIsSeen(t *testing.T) {
	s, err := parseDSN(t, ":memory:").Dial(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, dialects.Alive, s.Peek())
	require.NoError(t, s.Ping(t.Context()))
	require.Equal(t, dialects.TxNone, s.TxStatus())
	require.NoError(t, s.Close(t.Context()))
	require.Equal(t, dialects.Dead, s.Peek())
	require.Equal(t, dialects.TxUnknown, s.TxStatus())
}

func TestCloseLetsGoOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	s, err := parseDSN(t, "sqlite:"+path).Dial(t.Context(), nil)
	require.NoError(t, err)
	exec(t, s, "create table t(a)")
	require.Equal(t, dialects.TxNone, s.TxStatus())
	require.Equal(t, 1, descriptorsOf(t, path))
	require.NoError(t, s.Close(t.Context()))
	require.Zero(t, descriptorsOf(t, path))
}

func descriptorsOf(t *testing.T, path string) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	n := 0
	for _, fd := range fds {
		if target, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && target == path {
			n++
		}
	}
	return n
}

func TestDialSaysWhyAFileCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for dsn, want := range map[string]string{
		"sqlite:" + dir + "/none/x.db":              "there is no directory " + dir + "/none",
		"sqlite:" + dir:                             "it is a directory",
		"sqlite:" + file + "/x.db":                  "not a directory",
		"file:" + dir + "/none.db?mode=ro":          "cannot be opened or created",
		"sqlite:" + dir + "/none.db?mode=rw":        "cannot be opened or created",
		"sqlite:" + dir + "/x.db?_txlock=sometimes": "_txlock",
	} {
		s, err := parseDSN(t, dsn).Dial(t.Context(), nil)
		require.ErrorContains(t, err, want, dsn)
		require.True(t, s == nil, "a pointer that is nil would be a session that the pool closes")
	}
}

func TestSQLitesOwnParametersAreHeardUnderThePrefix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	exec(t, dial(t, parseDSN(t, "sqlite:"+path)), "create table t(a)")
	err := tryExec(dial(t, parseDSN(t, "sqlite:"+path+"?mode=ro")), "insert into t values (1)")
	require.ErrorContains(t, err, "readonly")
}

func TestDialRefusesACredentialAndACancelledContext(t *testing.T) {
	tmpl := parseDSN(t, ":memory:")
	require.False(t, tmpl.TakesCredential())
	_, err := tmpl.Dial(t.Context(), &dialects.Credential{User: "u", Password: "hunter2"})
	require.ErrorContains(t, err, "no users")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = tmpl.Dial(ctx, nil)
	require.ErrorIs(t, err, context.Canceled)
}

type connector struct{ driver driver.Driver }

func (c connector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(":memory:") }
func (c connector) Driver() driver.Driver                        { return c.driver }

type otherDriver struct{}

func (otherDriver) Open(string) (driver.Conn, error) { return nil, errors.New("no") }

func TestWrapKnowsTheDriver(t *testing.T) {
	_, err := dialect{}.Wrap(connector{struct{ otherDriver }{}})
	require.ErrorIs(t, err, dialects.ErrNotMine)

	tmpl, err := dialect{}.Wrap(connector{registeredDriver()})
	require.NoError(t, err)
	require.Equal(t, dialects.Traits{WritesAlone: true, PreparingActs: true, CloseWrites: true}, tmpl.Traits(), "what lies around the driver's rows may reuse their memory")
	s := dial(t, tmpl)
	require.Equal(t, dialects.TxNone, s.TxStatus())
	exec(t, s, "begin")
	require.Equal(t, dialects.TxOpen, s.TxStatus())
	require.NoError(t, s.Rollback(t.Context()))
}

// TestABusyDatabaseIsAConflict, at BEGIN, at a write after a read, and at COMMIT.
func TestABusyDatabaseIsAConflict(t *testing.T) {
	dsn := "sqlite:" + filepath.Join(t.TempDir(), "busy.db") + "?_busy_timeout=1"
	s, other := dial(t, parseDSN(t, dsn)), dial(t, parseDSN(t, dsn))
	exec(t, s, "create table t (a)")
	busy := func(query string) {
		t.Helper()
		require.Equal(t, dialects.Conflict, dialect{}.Diagnose(tryExec(s, query)), query)
	}
	exec(t, other, "begin immediate")
	busy("begin immediate")
	exec(t, s, "begin")
	exec(t, s, "select * from t")
	busy("insert into t values (1)")
	exec(t, s, "rollback")
	exec(t, other, "rollback")
	exec(t, other, "begin")
	exec(t, other, "select * from sqlite_schema")
	exec(t, s, "begin immediate")
	exec(t, s, "insert into t values (1)")
	busy("commit")
	require.Equal(t, dialects.TxOpen, s.TxStatus(), "nothing is committed")
	exec(t, s, "rollback")
	exec(t, other, "rollback")
}

func TestDiagnoseKnowsNothingOfOtherErrors(t *testing.T) {
	s := dial(t, parseDSN(t, ":memory:"))
	require.Zero(t, dialect{}.Diagnose(tryExec(s, "select none")))
	require.Equal(t, dialects.UnknownName, dialect{}.Diagnose(tryExec(s, "select * from nowhere")))
	require.Equal(t, dialects.UnknownName, dialect{}.Diagnose(tryExec(s, "create table a.t (n)")))
	require.Zero(t, dialect{}.Diagnose(errors.New("x")))
	require.Zero(t, dialect{}.Diagnose(nil))
}

func BenchmarkTxStatus(b *testing.B) {
	s := dial(b, parseDSN(b, ":memory:"))
	b.ReportAllocs()
	for b.Loop() {
		if s.TxStatus() != dialects.TxNone {
			b.Fatal("a transaction is open")
		}
	}
}

// TestAConnectionThatLacksAMethodIsRefused: Raw would lend it with another Deserialize.
func TestAConnectionThatLacksAMethodIsRefused(t *testing.T) {
	bare, err := registeredDriver().Open(":memory:")
	require.NoError(t, err)
	_, err = lentConn("x", struct{ driver.Conn }{bare})
	require.ErrorContains(t, err, "lacks a method")
	require.NoError(t, bare.Close())
}

// TestADeadlockInASharedCacheIsAConflict: SQLite ends the wait of the second.
func TestADeadlockInASharedCacheIsAConflict(t *testing.T) {
	tmpl := parseDSN(t, ":memory:")
	s, other := dial(t, tmpl), dial(t, tmpl)
	exec(t, s, "create table t (a)")
	for _, s := range []dialects.Session{s, other} {
		exec(t, s, "begin")
		exec(t, s, "select * from t")
	}
	first := make(chan error, 1)
	go func() {
		err := tryExec(s, "insert into t values (1)")
		if err != nil {
			_ = tryExec(s, "rollback")
		}
		first <- err
	}()
	second := tryExec(other, "insert into t values (1)")
	if second != nil {
		exec(t, other, "rollback")
	}
	err := errors.Join(<-first, second)
	require.Error(t, err)
	require.Equal(t, dialects.Conflict, dialect{}.Diagnose(err), "%v", err)
}
