package pooldriver_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mayImport has, for each package of the root module, the dialects, sandbox and examples, the packages that it may import beside the standard
// library. It is the only guard of the layers. A package stands below those that import it, so no
// import runs in a circle and none leads upwards: nothing below the root knows the root, and a dialect
// knows neither the root nor the pool. Each dialect links its own driver, and nothing else links one. What
// a program links of the root module imports the standard library alone.
var mayImport = []struct{ pkg, imports string }{
	{"examples/quickstart", ". dialects/mysql dialects/postgres dialects/sqlite pgx"},
	{"examples/service", ". dialects/mysql dialects/postgres dialects/sqlite"},
	{"tests/schedules", ". internal/testing/fakedb internal/testing/randomtest internal/testing/stubdialect sandbox testify"},
	{"httptask", ". internal/floor internal/task"},
	{"inspect", ". internal/judge internal/observe/metrics internal/pprofproto pool"},
	{"internal/observe/metrics", ". internal/judge pool"},
	{"sandbox", ". dialects internal/beneath internal/bubble internal/connpool internal/driverconn internal/goroutine internal/onerelease internal/redact internal/session internal/task sandbox/internal/clones"},
	{"sandbox/internal/clones", "internal/dsn"},
	{"internal/dsn", "dialects"},
	{"tests/answers", "testify"},
	{"tests/anysqlite", ""}, {"tests/behaviour", ""}, {"tests/conformance", ""}, {"tests/dsn", ""}, {"tests/examples", ""}, {"tests/httptask", ""}, {"tests/sandbox", ""}, // tests only

	{".", "dialects dialects/generic internal/beneath internal/binding internal/bubble internal/observe/callsite internal/connpool" +
		" internal/config internal/credential internal/ctxerr internal/ctxsettings internal/floor internal/observe/histogram internal/observe/history internal/judge internal/listen internal/optiontable internal/pause internal/pinning internal/redact" +
		" internal/repeated internal/replica internal/observe/report internal/session internal/task internal/unwrap internal/observe/usage internal/virtual internal/waitgraph pool"},
	{"internal/virtual", "dialects internal/beneath internal/binding internal/observe/callsite internal/config internal/connpool internal/ctxerr internal/ctxsettings internal/direct internal/driverconn" +
		" internal/floor internal/pinning internal/replica internal/observe/report internal/rowbuffer internal/session internal/stmtcache internal/task internal/textcache internal/unwrap"},
	{"internal/replica", "dialects internal/binding internal/config internal/connpool internal/ctxerr internal/floor internal/observe/histogram internal/observe/report internal/task internal/observe/usage pool"},
	{"internal/binding", "dialects internal/config internal/connpool internal/ctxerr internal/ctxsettings internal/fairlock internal/floor internal/mergedctx internal/pinning internal/relay internal/observe/report" +
		" internal/session internal/stmtcache internal/task internal/textcache internal/observe/usage internal/waitgraph pool"},
	{"internal/connpool", "dialects dialects/generic internal/observe/callsite internal/config internal/credential internal/ctxerr internal/dbsettings internal/mergedctx" +
		" internal/pinning internal/observe/report internal/session internal/stmtcache internal/observe/usage pool"},
	{"internal/session", "dialects internal/bytesize internal/config internal/ctxerr internal/direct internal/driverconn internal/floor internal/mergedctx internal/pinning" +
		" internal/rowbuffer internal/stmtcache"},
	{"internal/observe/history", "internal/bubble"},
	{"internal/observe/report", "internal/droppedstate internal/observe/histogram internal/repeated internal/observe/usage pool"},
	{"internal/observe/usage", "internal/bubble internal/observe/callsite internal/config internal/observe/histogram internal/pinning"},
	{"internal/beneath", "dialects internal/config internal/task"},
	{"internal/direct", "dialects"},
	{"internal/config", "dialects internal/pinning"},
	{"internal/credential", "dialects"},
	{"internal/ctxsettings", "dialects"},
	{"internal/dbsettings", "dialects"},
	{"internal/optiontable", "dialects internal/bytesize"},
	{"internal/pinning", "dialects"},
	{"internal/textcache", "dialects"},
	{"internal/floor", "dialects internal/task"},
	{"internal/task", "internal/ctxerr pool"},
	{"internal/rowbuffer", "internal/driverconn"},
	{"internal/stmtcache", "internal/driverconn"},
	{"internal/observe/callsite", ""},
	{"internal/droppedstate", ""},
	{"internal/observe/histogram", ""},
	{"internal/listen", "internal/pause"},
	{"internal/judge", ""},
	{"internal/mergedctx", ""},
	{"internal/pprofproto", ""},
	{"internal/relay", ""},
	{"internal/repeated", ""},
	{"internal/waitgraph", ""},
	{"internal/bytesize", ""},
	{"internal/ctxerr", ""},

	// For tests.
	{"internal/testing/conformance", "internal/testing/fakedb testify"},
	{"internal/testing/stubdialect", "dialects dialects/generic internal/testing/fakedb"},
	{"internal/testing/fakedb", "internal/driverconn"},
	{"internal/testing/randomtest", ""},

	{"dialects/mysql", "dialects dialects/internal/base dialects/internal/classify/mysql dialects/internal/hosts dialects/internal/myerror" +
		" dialects/internal/wire internal/driverfield internal/onerelease internal/pause internal/redact internal/unwrap go-sql-driver"},
	{"dialects/odbc", "dialects dialects/generic dialects/internal/base dialects/internal/classify/mysql dialects/internal/classify/postgres" +
		" dialects/internal/classify/sqlite dialects/internal/myerror internal/driverconn internal/driverfield internal/onerelease internal/pause internal/redact internal/unwrap odbc"},
	{"dialects/postgres", "dialects dialects/internal/base dialects/internal/classify/postgres dialects/internal/hosts dialects/internal/wire" +
		" dialects/postgres/internal/ahead internal/driverfield internal/onerelease internal/redact internal/unwrap pgx"},
	{"dialects/postgres/internal/ahead", "dialects dialects/internal/wire pgx"},
	{"dialects/sqlite", "dialects dialects/internal/anysqlite dialects/internal/base internal/onerelease modernc"},
	{"dialects/anysqlite", "dialects dialects/internal/anysqlite"},
	{"dialects/generic", "dialects dialects/internal/base dialects/internal/classify dialects/internal/sqltext"},
	{"dialects/internal/anysqlite", "dialects dialects/internal/base dialects/internal/classify/sqlite internal/driverconn internal/fairlock"},
	{"dialects/internal/base", "dialects internal/driverconn internal/redact internal/unwrap"},
	{"dialects/internal/classify/mysql", "dialects dialects/internal/sqltext"},
	{"dialects/internal/classify/postgres", "dialects dialects/internal/sqltext"},
	{"dialects/internal/classify/sqlite", "dialects dialects/internal/classify dialects/internal/sqltext"},
	{"dialects/internal/classify", ""},
	{"dialects/internal/hosts", "dialects internal/pause"},
	{"dialects/internal/myerror", "dialects"},
	{"internal/testing/dialtest", "dialects testify"},
	{"internal/testing/rowstest", "testify"},
	{"dialects/internal/sqltext/classifytest", "dialects dialects/internal/sqltext testify"},
	{"dialects/internal/sqltext", "dialects"},
	{"dialects/internal/wire", "internal/unwrap"},
	{"dialects", "internal/redact"},
	{"internal/fairlock", ""},
	{"internal/onerelease", ""},
	{"internal/pause", ""},
	{"internal/driverfield", ""},
	{"internal/unwrap", ""},
	{"internal/redact", ""},
	{"internal/driverconn", ""},
	{"pool", "internal/bubble"},
	{"internal/bubble", "internal/goroutine"},
	{"internal/goroutine", ""},
}

// others are the modules of others, by the names that mayImport has for them.
var others = map[string]string{
	"pgx": "github.com/jackc/pgx/v5", "go-sql-driver": "github.com/go-sql-driver/mysql", "modernc": "modernc.org/sqlite",
	"odbc": "github.com/alexbrainman/odbc", "testify": "github.com/stretchr/testify",
}

func TestImportsLeadDownwardsAndDriversAreLinkedByTheirDialects(t *testing.T) {
	t.Parallel()
	const module = "github.com/pooldriver/pooldriver"
	imports := map[string][]string{}
	patterns := []string{"./..."}
	for _, m := range []string{"dialects/mysql", "dialects/odbc", "dialects/postgres", "dialects/sqlite", "examples", "sandbox", "tests"} {
		patterns = append(patterns, "./"+m+"/...") // modules of their own
	}
	for _, tags := range []string{"", "odbc"} { // dialects/odbc is empty without its tag
		out, err := exec.Command("go", append([]string{"list", "-tags", tags, "-f", `{{.ImportPath}} {{join .Imports " "}}`}, patterns...)...).Output()
		require.NoError(t, err)
		for line := range strings.Lines(string(out)) {
			words := strings.Fields(line)
			imports[words[0]] = words[1:]
		}
	}
	path := func(name string) string {
		if name == "." {
			return module
		}
		return module + "/" + name
	}
	for i, p := range mayImport {
		below := func(name string) bool {
			return slices.ContainsFunc(mayImport[i+1:], func(q struct{ pkg, imports string }) bool { return q.pkg == name })
		}
		var allowed []string
		for _, name := range strings.Fields(p.imports) {
			if other := others[name]; other != "" {
				allowed = append(allowed, other)
				continue
			}
			require.True(t, below(name), "%s imports %s, which has to stand below it in mayImport", p.pkg, name)
			allowed = append(allowed, path(name))
		}
		for _, imported := range imports[path(p.pkg)] {
			if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
				require.False(t, p.pkg == "pool" && strings.HasPrefix(imported, "database/sql"), "the generic pool knows no databases")
				continue // the standard library
			}
			require.True(t, slices.ContainsFunc(allowed, func(a string) bool {
				return imported == a || !strings.HasPrefix(a, module) && strings.HasPrefix(imported, a+"/")
			}), "%s imports %s: if it should, say so in mayImport", p.pkg, imported)
		}
		delete(imports, path(p.pkg))
	}
	require.Empty(t, imports, "packages that are not in mayImport")
}
