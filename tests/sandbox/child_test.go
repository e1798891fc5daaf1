package sandbox_test

import (
	"context"
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/sandbox"
)

// Some tests have to fail, in the hands of package testing itself. They run in a process of their own.

// childVariable asks for the part of a test that is to fail.
const childVariable = "POOLDRIVER_SANDBOX_CHILD"

// inChild runs the part of the test in another process, and returns what that has written. It has to fail.
// The parts are tests whose names begin with TestChild.
func inChild(t *testing.T, part string, env ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+part+"$")
	child.Env = append(append(os.Environ(), childVariable+"=1"), env...)
	out, err := child.CombinedOutput()
	require.Error(t, err, "%s", out)
	require.NoError(t, ctx.Err(), "%s", out)
	return string(out)
}

// onlyInChild begins such a part.
func onlyInChild(t *testing.T) {
	t.Helper()
	if os.Getenv(childVariable) == "" {
		t.Skip("a part of another test, which fails")
	}
}

// lineWith returns the line of an output that has the text.
func lineWith(t *testing.T, out, text string) string {
	t.Helper()
	for line := range strings.Lines(out) {
		if strings.Contains(line, text) {
			return line
		}
	}
	require.Fail(t, "no line with "+text, "%s", out)
	return ""
}

func TestChildPanics(t *testing.T) {
	onlyInChild(t)
	p := sandbox.Database(t, "sqlite:shop.db", sandbox.Migration{Version: "1", Run: func(ctx context.Context, db *sql.DB) error {
		_, err := db.ExecContext(ctx, "CREATE TABLE orders (name TEXT)")
		return err
	}})
	_, err := p.DB.Exec("INSERT INTO orders VALUES ('evidence')")
	require.NoError(t, err)
	db := sandbox.DB(t, pooldriver.New(p.DSN(), quietly))
	_, err = db.Begin()
	require.NoError(t, err)
	panic("the test is wrong")
}

func TestAPanickingTestKeepsItsDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := inChild(t, "TestChildPanics", "TMPDIR="+dir, "SANDBOX_KEEP=1")
	require.Contains(t, out, "panic: the test is wrong", "nobody has swallowed it")
	kept, err := filepath.Glob(filepath.Join(dir, "pooldriver-sandbox-*", "*", "kept", "TestChildPanics-*.db"))
	require.NoError(t, err)
	require.Len(t, kept, 1, "%s", out)
	said := lineWith(t, out, " is kept")
	require.Contains(t, said, "child_test.go:", "the line of the call")
	require.Equal(t, 1, strings.Count(said, ".db"), "one path: %s", said)
	require.Contains(t, said, kept[0])
	db, err := sql.Open("sqlite", kept[0])
	require.NoError(t, err)
	defer db.Close()
	var name string
	require.NoError(t, db.QueryRow("SELECT name FROM orders").Scan(&name))
	require.Equal(t, "evidence", name)
}

func TestChildIsParallelAfterDB(t *testing.T) {
	onlyInChild(t)
	c := onSQLite(t)
	db := sandbox.DB(t, c)
	t.Run("late", func(t *testing.T) {
		own := sandbox.DB(t, c)
		t.Parallel()
		_, err := own.Exec("INSERT INTO ledger VALUES (1, 'a')")
		t.Logf("inner: %v", err)
	})
	_, err := db.Exec("INSERT INTO ledger VALUES (1, 'a')")
	t.Logf("outer: %v", err)
}

func TestParallelAfterDBInASubtestIsSaid(t *testing.T) {
	t.Parallel()
	out := inChild(t, "TestChildIsParallelAfterDB")
	const said = "sandbox: the subtest TestChildIsParallelAfterDB/late has called t.Parallel after sandbox.DB"
	require.Contains(t, out, "outer: "+said)
	require.Contains(t, out, "inner: "+said)
	require.Equal(t, 3, strings.Count(out, said), "the end of the subtest fails it: %s", out)
	require.NotContains(t, out, "DATA RACE")
}

func TestChildKeepsItsTurn(t *testing.T) {
	onlyInChild(t)
	c := onSQLite(t)
	for _, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) {
			sandbox.DB(t, c)
			t.Parallel()
		})
	}
}

func TestParallelAfterDBThatKeepsOthersWaitingIsSaid(t *testing.T) {
	t.Parallel()
	out := inChild(t, "TestChildKeepsItsTurn")
	require.Contains(t, lineWith(t, out, "t.Parallel"), "TestChildKeepsItsTurn/first has called t.Parallel after sandbox.DB")
	require.Contains(t, out, "--- FAIL: TestChildKeepsItsTurn/second")
}
