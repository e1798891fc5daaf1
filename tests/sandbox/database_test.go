package sandbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/sandbox"
)

// inTemp gives the test a directory for temporary files of its own, and so a sandbox that no other
// process has used.
func inTemp(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Cleanup(func() {
		runs, err := filepath.Glob(filepath.Join(dir, "pooldriver-sandbox-*", "*", "run-*"))
		require.NoError(t, err)
		require.Empty(t, runs, "clones and their locks")
	})
}

// fakeTest is a testing.TB whose Fatalf and Failed are a test's expectations.
type fakeTest struct {
	testing.TB
	failed   bool
	message  string
	logged   string
	cleanups []func()
}

func (t *fakeTest) Fatalf(format string, args ...any) {
	t.failed, t.message = true, fmt.Sprintf(format, args...)
	panic(t)
}
func (t *fakeTest) Errorf(format string, args ...any) {
	t.failed, t.message = true, fmt.Sprintf(format, args...)
}
func (t *fakeTest) Logf(format string, args ...any) { t.logged += fmt.Sprintf(format, args...) }
func (t *fakeTest) Failed() bool                    { return t.failed }
func (t *fakeTest) Cleanup(f func())                { t.cleanups = append(t.cleanups, f) }

// run calls f as a test, and then its cleanups.
func (t *fakeTest) run(f func(t testing.TB)) {
	defer func() {
		for i := len(t.cleanups) - 1; i >= 0; i-- {
			t.cleanups[i]()
		}
		if r := recover(); r != nil && r != any(t) {
			panic(r)
		}
	}()
	f(t)
}

func table(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, "CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT)")
	return err
}

func TestATestHasADatabaseOfItsOwn(t *testing.T) {
	inTemp(t)
	var runs atomic.Int32
	m := sandbox.Migration{Version: t.Name(), Run: func(ctx context.Context, db *sql.DB) error {
		runs.Add(1)
		return table(ctx, db)
	}}
	t.Run("tests", func(t *testing.T) {
		for range 20 {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				p := sandbox.Database(t, "sqlite:shop.db?_pragma=foreign_keys(1)", m)
				_, err := p.DB.Exec("INSERT INTO orders VALUES (1, 'mine')")
				require.NoError(t, err)
				var n, foreign int
				require.NoError(t, p.DB.QueryRow("SELECT count(*) FROM orders").Scan(&n))
				require.NoError(t, p.DB.QueryRow("PRAGMA foreign_keys").Scan(&foreign))
				require.Equal(t, 1, n)
				require.Equal(t, 1, foreign, "the parameters of the DSN")
				require.Contains(t, p.DSN(), p.Name)
			})
		}
	})
	require.EqualValues(t, 1, runs.Load())
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "pooldriver-sandbox-*", "*", "run-*", "*.db"))
	require.NoError(t, err)
	require.Zero(t, len(left))
}

func TestABrokenMigrationRunsOnce(t *testing.T) {
	inTemp(t)
	for name, run := range map[string]func(context.Context, *sql.DB) error{
		"error": func(ctx context.Context, db *sql.DB) error { return fmt.Errorf("no such column: %w", os.ErrInvalid) },
		"panic": func(ctx context.Context, db *sql.DB) error { panic("no such column") },
	} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			m := sandbox.Migration{Version: t.Name(), Run: func(ctx context.Context, db *sql.DB) error {
				runs++
				return run(ctx, db)
			}}
			first := &fakeTest{TB: t}
			take := func(t testing.TB) { sandbox.Database(t, ":memory:", m) }
			if name == "panic" {
				require.PanicsWithValue(t, "no such column", func() { first.run(take) })
			} else {
				first.run(take)
				require.Contains(t, first.message, "the migrations failed: no such column")
			}
			for range 3 {
				later := &fakeTest{TB: t}
				later.run(take)
				require.Contains(t, later.message, "the migrations have failed before: see the error of "+t.Name())
				require.NotContains(t, later.message, "column")
			}
			require.Equal(t, 1, runs)
		})
	}
}

func TestAFailedTestKeepsItsDatabase(t *testing.T) {
	inTemp(t)
	t.Setenv("SANDBOX_KEEP", "1")
	test := &fakeTest{TB: t}
	test.run(func(t testing.TB) {
		p := sandbox.Database(t, "sqlite:shop.db", sandbox.Migration{Version: t.Name(), Run: table})
		_, err := p.DB.Exec("INSERT INTO orders VALUES (1, 'evidence')")
		require.NoError(t, err)
		t.Errorf("it fails")
	})
	kept, err := filepath.Glob(filepath.Join(os.TempDir(), "pooldriver-sandbox-*", "*", "kept", "*.db"))
	require.NoError(t, err)
	require.Len(t, kept, 1)
	require.Contains(t, test.logged, kept[0])
	db, err := sql.Open("sqlite", kept[0])
	require.NoError(t, err)
	defer db.Close()
	var name string
	require.NoError(t, db.QueryRow("SELECT name FROM orders").Scan(&name))
	require.Equal(t, "evidence", name)
}

// TestATemplateServesEveryDirectory: a DSN may have another one in each test and in each run.
func TestATemplateServesEveryDirectory(t *testing.T) {
	inTemp(t)
	runs := 0
	m := sandbox.Migration{Version: t.TempDir(), Run: func(ctx context.Context, db *sql.DB) error {
		runs++
		return table(ctx, db)
	}}
	for _, dsn := range []string{"sqlite:" + t.TempDir() + "/shop.db", "sqlite:" + t.TempDir() + "/shop.db", "shop.db"} {
		t.Run("", func(t *testing.T) {
			p := sandbox.Database(t, dsn, m)
			_, err := p.DB.Exec("INSERT INTO orders VALUES (1, 'mine')")
			require.NoError(t, err)
		})
	}
	require.Equal(t, 1, runs)
	t.Run("audit", func(t *testing.T) { sandbox.Database(t, "audit.db", m) })
	require.Equal(t, 2, runs, "a file of another name is another database")
	templates, err := filepath.Glob(filepath.Join(os.TempDir(), "pooldriver-sandbox-*", "*", "??????????.db"))
	require.NoError(t, err)
	require.Len(t, templates, 2)
}

func TestMistakesOfTheProgramAreExplained(t *testing.T) {
	inTemp(t)
	good := sandbox.Migration{Run: table, Version: "1"}
	for _, tc := range []struct {
		name, want string
		call       func(t testing.TB)
	}{
		{"no function", "exactly one of", func(t testing.TB) { sandbox.Database(t, ":memory:", sandbox.Migration{}) }},
		{"both functions", "exactly one of", func(t testing.TB) {
			sandbox.Database(t, ":memory:", sandbox.Migration{Run: table, RunDSN: func(context.Context, string) error { return nil }})
		}},
		{"no dialect", "postgres", func(t testing.TB) { sandbox.Database(t, "postgres://app:secret@h/shop", good) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			test := &fakeTest{TB: t}
			test.run(tc.call)
			require.Contains(t, test.message, tc.want)
			require.NotContains(t, test.message, "secret")
		})
	}
	synctest.Test(t, func(t *testing.T) {
		test := &fakeTest{TB: t}
		test.run(func(t testing.TB) { sandbox.Database(t, ":memory:", good) })
		require.Contains(t, test.message, "synctest")
	})
}
