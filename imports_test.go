package pooldriver_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRootAndPoolLinkNoDriver: a program links the drivers it imports the
// dialects of, and no other; our core depends on the standard library alone.
func TestRootAndPoolLinkNoDriver(t *testing.T) {
	t.Parallel()
	const module = "github.com/pooldriver/pooldriver"
	for _, tc := range []struct {
		pkg   string
		ours  []string // packages of this module that it may import, itself apart
		avoid string
	}{
		{pkg: module, ours: []string{"/pool", "/dialects", "/dialects/generic", "/dialects/internal/", "/internal/beneath", "/internal/binding", "/internal/bubble", "/internal/bytesize", "/internal/callsite", "/internal/connpool", "/internal/credential", "/internal/ctxerr", "/internal/ctxsettings", "/internal/dbsettings", "/internal/driverconn", "/internal/droppedstate", "/internal/fairlock", "/internal/histogram", "/internal/history", "/internal/mergedctx", "/internal/optiontable", "/internal/pinning", "/internal/redact", "/internal/relay", "/internal/repeated", "/internal/report", "/internal/rowbuffer", "/internal/session", "/internal/stmtcache", "/internal/task", "/internal/textcache", "/internal/unwrap", "/internal/usage", "/internal/virtual", "/internal/waitgraph"}},
		{pkg: module + "/sandbox", ours: []string{"", "/pool", "/sandbox/internal/", "/dialects", "/dialects/generic", "/dialects/internal/", "/internal/beneath", "/internal/binding", "/internal/bubble", "/internal/bytesize", "/internal/callsite", "/internal/connpool", "/internal/credential", "/internal/ctxerr", "/internal/ctxsettings", "/internal/dbsettings", "/internal/driverconn", "/internal/droppedstate", "/internal/fairlock", "/internal/histogram", "/internal/history", "/internal/mergedctx", "/internal/optiontable", "/internal/pinning", "/internal/redact", "/internal/relay", "/internal/repeated", "/internal/report", "/internal/rowbuffer", "/internal/session", "/internal/stmtcache", "/internal/task", "/internal/textcache", "/internal/unwrap", "/internal/usage", "/internal/virtual", "/internal/waitgraph"}},
		{pkg: module + "/pool", ours: []string{"/internal/bubble"}, avoid: "database/sql"},
		{pkg: module + "/dialects", ours: []string{"/internal/redact"}},
		{pkg: module + "/internal/credential", ours: []string{"/dialects", "/internal/redact"}},
		{pkg: module + "/internal/binding", ours: []string{"/dialects", "/dialects/generic", "/dialects/internal/", "/internal/bubble", "/internal/bytesize", "/internal/callsite", "/internal/connpool", "/internal/credential", "/internal/ctxerr", "/internal/dbsettings", "/internal/driverconn", "/internal/droppedstate", "/internal/fairlock", "/internal/histogram", "/internal/mergedctx", "/internal/pinning", "/internal/redact", "/internal/relay", "/internal/repeated", "/internal/report", "/internal/rowbuffer", "/internal/session", "/internal/stmtcache", "/internal/task", "/internal/unwrap", "/internal/usage", "/internal/waitgraph", "/pool"}},
		{pkg: module + "/internal/bubble"},
		{pkg: module + "/internal/connpool", ours: []string{"/dialects", "/dialects/generic", "/dialects/internal/", "/internal/bubble", "/internal/bytesize", "/internal/callsite", "/internal/credential", "/internal/ctxerr", "/internal/dbsettings", "/internal/driverconn", "/internal/droppedstate", "/internal/fairlock", "/internal/histogram", "/internal/mergedctx", "/internal/pinning", "/internal/redact", "/internal/repeated", "/internal/report", "/internal/rowbuffer", "/internal/session", "/internal/stmtcache", "/internal/unwrap", "/internal/usage", "/pool"}},
		{pkg: module + "/internal/beneath", ours: []string{"/dialects", "/internal/redact"}},
		{pkg: module + "/internal/ctxerr"},
		{pkg: module + "/internal/ctxsettings", ours: []string{"/dialects", "/internal/redact"}},
		{pkg: module + "/internal/dbsettings", ours: []string{"/dialects", "/internal/redact"}},
		{pkg: module + "/internal/driverconn"},
		{pkg: module + "/internal/droppedstate"},
		{pkg: module + "/internal/fairlock"},
		{pkg: module + "/internal/callsite"},
		{pkg: module + "/internal/histogram"},
		{pkg: module + "/internal/history", ours: []string{"/dialects", "/internal/bubble", "/internal/callsite", "/internal/droppedstate", "/internal/histogram", "/internal/pinning", "/internal/redact", "/internal/repeated", "/internal/report", "/internal/usage", "/pool"}},
		{pkg: module + "/internal/usage", ours: []string{"/dialects", "/internal/bubble", "/internal/callsite", "/internal/histogram", "/internal/pinning", "/internal/redact"}},
		{pkg: module + "/internal/mergedctx"},
		{pkg: module + "/internal/optiontable", ours: []string{"/dialects", "/internal/bytesize", "/internal/redact"}},
		{pkg: module + "/internal/pinning", ours: []string{"/dialects", "/internal/redact"}},
		{pkg: module + "/internal/redact"},
		{pkg: module + "/internal/relay"},
		{pkg: module + "/internal/repeated"},
		{pkg: module + "/internal/report", ours: []string{"/dialects", "/internal/bubble", "/internal/callsite", "/internal/droppedstate", "/internal/histogram", "/internal/pinning", "/internal/redact", "/internal/repeated", "/internal/usage", "/pool"}},
		{pkg: module + "/internal/unwrap"},
		{pkg: module + "/internal/virtual", ours: []string{"/dialects", "/dialects/generic", "/dialects/internal/", "/internal/binding", "/internal/bubble", "/internal/bytesize", "/internal/callsite", "/internal/connpool", "/internal/credential", "/internal/ctxerr", "/internal/ctxsettings", "/internal/dbsettings", "/internal/driverconn", "/internal/droppedstate", "/internal/fairlock", "/internal/histogram", "/internal/mergedctx", "/internal/pinning", "/internal/redact", "/internal/relay", "/internal/repeated", "/internal/report", "/internal/rowbuffer", "/internal/session", "/internal/stmtcache", "/internal/task", "/internal/textcache", "/internal/unwrap", "/internal/usage", "/internal/waitgraph", "/pool"}},
		{pkg: module + "/internal/waitgraph"},
		{pkg: module + "/internal/bytesize"},
		{pkg: module + "/sandbox/internal/clones", ours: []string{"/dialects", "/internal/redact", "/sandbox/internal/dsn"}},
		{pkg: module + "/sandbox/internal/dsn", ours: []string{"/dialects", "/internal/redact"}},
		{pkg: module + "/internal/session", ours: []string{"/dialects", "/internal/bytesize", "/internal/ctxerr", "/internal/driverconn", "/internal/fairlock", "/internal/mergedctx", "/internal/pinning", "/internal/redact", "/internal/rowbuffer", "/internal/stmtcache"}},
		{pkg: module + "/internal/rowbuffer", ours: []string{"/internal/driverconn"}},
		{pkg: module + "/internal/stmtcache", ours: []string{"/internal/driverconn"}},
		{pkg: module + "/internal/task", ours: []string{"/internal/ctxerr"}},
		{pkg: module + "/internal/textcache", ours: []string{"/dialects", "/internal/redact"}},
	} {
		out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{else}}std {{.ImportPath}}{{end}}", tc.pkg).Output()
		require.NoError(t, err)
		allowed := func(dep string) bool {
			return dep == tc.pkg || slices.ContainsFunc(tc.ours, func(p string) bool {
				return dep == module+p || strings.HasSuffix(p, "/") && strings.HasPrefix(dep, module+p)
			})
		}
		for _, dep := range strings.Fields(strings.ReplaceAll(string(out), "std ", "std:")) {
			if std, ok := strings.CutPrefix(dep, "std:"); ok {
				require.False(t, tc.avoid != "" && strings.HasPrefix(std, tc.avoid), "%s imports %s", tc.pkg, std)
				continue
			}
			require.True(t, allowed(dep), "%s imports %s", tc.pkg, dep)
		}
	}
}

// TestNoDialectImportsRoot: the layers know each other in one direction.
func TestNoDialectImportsRoot(t *testing.T) {
	const module = "github.com/pooldriver/pooldriver"
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./dialects/...").Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		for _, dep := range words[1:] {
			require.NotEqual(t, module, dep, words[0])
			require.NotEqual(t, module+"/pool", dep, words[0])
		}
	}
}
