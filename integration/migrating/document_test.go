package migrating

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	// region is code of a test that the page shows.
	region = regexp.MustCompile(`(?ms)^[\t]*// page: (\w+)\n(.*?)^[\t]*// end\n`)
	// shown is code of the page, under the name of its region.
	shown = regexp.MustCompile("(?ms)^<!-- run: (\\w+) -->\n```go\n(.*?)^```$")
)

// pages is the text of the pages whose code the tests run.
func pages(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, name := range []string{"migrating.md", "recipes.md", "listen.md", "errors.md"} {
		text, err := os.ReadFile("../../docs/" + name)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}

// TestThePagesShowTheCodeThatTheTestsRun: each piece of code of the pages that is to be
// written instead of something else is a region of a test, and the other way around.
func TestThePagesShowTheCodeThatTheTestsRun(t *testing.T) {
	run := map[string]string{}
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	for _, file := range append(files, "../mattn/gorm_test.go") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range region.FindAllStringSubmatch(string(text), -1) {
			require.NotContains(t, run, m[1], "two regions of one name")
			run[m[1]] = packageNames.Replace(outdent(m[2]))
		}
	}
	text := pages(t)
	written := map[string]string{}
	for _, m := range shown.FindAllStringSubmatch(text, -1) {
		written[m[1]] = m[2]
	}
	require.NotEmpty(t, written)
	require.Equal(t, run, written)
	for after := range strings.SplitSeq(text, "\n**After**") {
		after = strings.TrimSpace(after)
		require.True(t, strings.HasPrefix(after, "# ") || strings.HasPrefix(after, "<!-- run: "), "an After without code that runs: %.80s", after)
	}
}

// packageNames undoes what the tests have to rename.
var packageNames = strings.NewReplacer("gormpostgres.", "postgres.", "gormmysql.", "mysql.")

// outdent takes the first line's indentation off each line.
func outdent(code string) string {
	indent := code[:len(code)-len(strings.TrimLeft(code, "\t"))]
	return strings.TrimPrefix(strings.ReplaceAll(code, "\n"+indent, "\n"), indent)
}
