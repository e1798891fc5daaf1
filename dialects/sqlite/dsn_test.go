package sqlite

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

func TestAParameterThatIsGivenTwiceIsRefused(t *testing.T) {
	for dsn, name := range map[string]string{"sqlite:x.db?_txlock=immediate&_txlock=deferred": "_txlock", "file:x.db?pool_max_conns=1&pool_max_conns=2": "pool_max_conns"} {
		_, err := parse(dsn)
		require.ErrorContains(t, err, "the parameter "+name+" twice", dsn)
	}
	_, err := parse("sqlite:x.db?_pragma=foreign_keys(1)&_pragma=busy_timeout(1000)")
	require.NoError(t, err)
}

func TestClaimKnowsItsFormsAndLeavesOthersAlone(t *testing.T) {
	for dsn, want := range map[string]dialects.Claim{
		"sqlite:x.db":                   dialects.Surely,
		"SQLite:///x":                   dialects.Surely,
		"file:x.db?mode=ro":             dialects.Surely,
		":memory:":                      dialects.Surely,
		":memory:?pool_max_conns=4":     dialects.Surely,
		"x.db":                          dialects.Perhaps,
		"./data/x.sqlite3?_txlock=x":    dialects.Perhaps,
		"x":                             dialects.NotMine,
		"sqlite3:x.db":                  dialects.NotMine,
		"postgres://h/x.db":             dialects.NotMine,
		"user:pw@tcp(h)/x.db":           dialects.NotMine,
		"host=h dbname=x.db":            dialects.NotMine,
		"Driver=SQLite3;Database=/x.db": dialects.NotMine,
		"":                              dialects.NotMine,
	} {
		require.Equal(t, want, claim(dsn), dsn)
	}
}

func TestParseSaysWhatTheDriverIsGiven(t *testing.T) {
	for _, c := range []struct{ dsn, name, path string }{
		{"sqlite:x.db", "x.db?_busy_timeout=5000", "x.db"},
		{"sqlite:/a/x.db", "/a/x.db?_busy_timeout=5000", "/a/x.db"},
		{"sqlite:///a/x.db", "/a/x.db?_busy_timeout=5000", "/a/x.db"},
		{"sqlite://x.db", "x.db?_busy_timeout=5000", "x.db"},
		{"sqlite:x.db?_timeout=9", "x.db?_timeout=9", "x.db"},
		{"x.db?_pragma=foreign_keys(1)", "x.db?_pragma=foreign_keys(1)", "x.db"},
		{"sqlite:x.db?_txlock=immediate&pool_max_conns=4&_pragma=a%20b", "x.db?_busy_timeout=5000&_txlock=immediate&_pragma=a%20b", "x.db"},
		{"x.db?pool_max_conns=4", "x.db", "x.db"},
		// SQLite's own parameters are heard in a URI only.
		{"sqlite:x.db?mode=ro", "file:x.db?_busy_timeout=5000&mode=ro", "x.db"},
		{"sqlite:a%#.db?mode=ro", "file:a%25%23.db?_busy_timeout=5000&mode=ro", "a%#.db"},
		{"x.db?mode=ro", "x.db?mode=ro", "x.db"},
		{"sqlite:/year=2026/a&b.db", "/year=2026/a&b.db?_busy_timeout=5000", "/year=2026/a&b.db"},
		{"sqlite:me@home/x.db", "me@home/x.db?_busy_timeout=5000", "me@home/x.db"},
		{"file:a%20b.db?mode=ro", "file:a%20b.db?mode=ro", "a b.db"},
		{"FILE:///a/x.db", "file:///a/x.db", "/a/x.db"},
		{"sqlite:file://localhost/a/x.db?pool_x=1", "file://localhost/a/x.db?_busy_timeout=5000", "/a/x.db"},
	} {
		src, err := parse(c.dsn)
		require.NoError(t, err, c.dsn)
		require.Equal(t, c.name, src.name, c.dsn)
		require.Equal(t, c.path, src.path, c.dsn)
		require.False(t, src.memory, c.dsn)
	}
}

func TestADatabaseInMemoryWithoutASharedNameGetsOne(t *testing.T) {
	const private, wait = "file:pooldriver-private-N?mode=memory&cache=shared", "&_busy_timeout=5000"
	for dsn, want := range map[string]string{
		":memory:":                            private,
		":memory:?cache=shared&mode=ro":       private, // not in a URI
		"sqlite::memory:":                     private + wait,
		"sqlite:":                             private + wait,
		"sqlite://":                           private + wait,
		"file::memory:":                       private,
		"file:":                               private,
		"file:?cache=shared":                  private,
		"file:x?mode=memory":                  private,
		"file:x?mode=memory&cache=private":    private,
		"sqlite:x?mode=memory":                private + wait,
		"file:x?vfs=memdb":                    private + "&vfs=memdb",
		"file:/x?vfs=memdb&mode=memory":       private + "&vfs=memdb",
		":memory:?_timeout=9&pool_x=1":        private + "&_timeout=9",
		"file:x?mode=memory&_pragma=a(1)":     private + "&_pragma=a(1)",
		"file:/x?vfs=memdb":                   "file:/x?vfs=memdb",
		"file::memory:?cache=shared&pool_x=1": "file::memory:?cache=shared",
		"sqlite::memory:?cache=shared":        "file::memory:?_busy_timeout=5000&cache=shared",
		"file:x?mode=memory&cache=shared":     "file:x?mode=memory&cache=shared",
		"file:a%3fb?cache=shared&mode=memory": "file:a%3fb?cache=shared&mode=memory",
		"file::memory:?mode=ro":               "file::memory:?mode=ro",
	} {
		src, err := parse(dsn)
		require.NoError(t, err, dsn)
		n := fmt.Sprint(privateNames.Load())
		require.Equal(t, want, strings.Replace(src.name, "private-"+n+"?", "private-N?", 1), dsn)
		require.True(t, src.memory, dsn)
	}
}

func TestParseTakesThePoolParametersOutInTheirOrder(t *testing.T) {
	tmpl, err := dialect{}.Parse("sqlite:x.db?pool_b=1&a=2&pool_a=3%20m&%70ool_c")
	require.NoError(t, err)
	require.Equal(t, []dialects.Param{{Name: "pool_b", Value: "1"}, {Name: "pool_a", Value: "3 m"}, {Name: "pool_c", Value: ""}}, tmpl.PoolParams())
}

func TestParseErrorsSayWhatIsWrongAndRepeatNothing(t *testing.T) {
	for dsn, want := range map[string]string{
		"sqlite:x.db?hunter2%":                "NAME=VALUE",
		"sqlite:x.db?a=1;hunter2=2":           "NAME=VALUE",
		"sqlite:x.db?_pragma=hunter2%zz":      "_pragma",
		"sqlite:x.db?pool_max_conns=hunter2%": "pool_max_conns",
		"file://hunter2/x.db":                 "no host",
		"file:hunter2%zz":                     "hexadecimal",
		"sqlite:x.db&_pragma=key('hunter2')":  "the file's name",
		"sqlite:x.db;Password=hunter2":        "the file's name",
		"sqlite:/a/x.db,password=hunter2?a=b": "the file's name",
		"file:x.db&_pragma=key('hunter2')":    "the file's name",
		"file:x.db%26_pragma%3Dhunter2":       "the file's name",
		"file:///x.db&a=hunter2#b":            "the file's name",
		":memory:&_pragma=key('hunter2')":     "the file's name",
		"sqlite://app:hunter2@h/x.db":         "neither user nor host",
	} {
		_, err := dialect{}.Parse(dsn)
		require.ErrorContains(t, err, want, dsn)
		require.NotContains(t, err.Error(), "hunter2", dsn)
	}
}

func FuzzParse(f *testing.F) {
	for _, dsn := range []string{"sqlite:x.db?a=b", "file:x?mode=memory&cache=shared", ":memory:", "sqlite://x%20?pool_a=1&b=%",
		"sqlite:x.db&_pragma=key('s3cr3t')", "file:x%26a%3Ds3cr3t", "sqlite://app:s3cr3t@h/x.db"} {
		f.Add(dsn)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		src, err := parse(dsn)
		if err != nil {
			return
		}
		if i := strings.IndexByte(src.path, '&'); i >= 0 && strings.Contains(src.path[i:], "=") {
			t.Errorf("a parameter is shown as part of the file's name %q", src.path)
		}
		_, query, _ := strings.Cut(src.name, "?")
		for part := range strings.SplitSeq(query, "&") {
			if strings.HasPrefix(part, "pool_") {
				t.Errorf("a pool parameter reaches the driver in %q", src.name)
			}
		}
		if strings.HasPrefix(src.name, "file:pooldriver-private-") && !src.memory {
			t.Errorf("%q is not in memory, and opens %q", dsn, src.name)
		}
	})
}

// TestADatabaseInMemoryHearsWhatTheBareDriverHears: outside of a URI SQLite's own parameters
// mean nothing, and in one those that are about files.
func TestADatabaseInMemoryHearsWhatTheBareDriverHears(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		":memory:?mode=ro", ":memory:?mode=readonly", ":memory:?immutable=1", ":memory:?nolock=1&psow=0",
		"file::memory:?mode=ro", "file::memory:?immutable=1", "file::memory:?mode=readonly", "file:x?mode=memory&immutable=1",
	} {
		writes := func(db *sql.DB) bool {
			defer db.Close()
			db.SetMaxOpenConns(1)
			_, err := db.Exec("CREATE TABLE t (a)")
			return err == nil
		}
		bare, err := sql.Open("sqlite", dsn)
		require.NoError(t, err)
		tmpl, err := dialect{}.Parse(dsn)
		require.NoError(t, err)
		s, err := tmpl.Dial(t.Context(), nil)
		if !writes(bare) {
			if err == nil {
				_, err = s.Conn().(driver.ExecerContext).ExecContext(t.Context(), "CREATE TABLE t (a)", nil)
			}
			require.Error(t, err, dsn)
		} else {
			require.NoError(t, err, dsn)
			_, err = s.Conn().(driver.ExecerContext).ExecContext(t.Context(), "CREATE TABLE t (a)", nil)
			require.NoError(t, err, dsn)
		}
		if s != nil {
			require.NoError(t, s.Conn().Close())
		}
		require.NoError(t, tmpl.Close())
	}
}
