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

// TestThePageShowsTheCodeThatTheTestsRun: each piece of the page's code that is to be
// written instead of something else is a region of a test, and the other way around.
func TestThePageShowsTheCodeThatTheTestsRun(t *testing.T) {
	run := map[string]string{}
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range region.FindAllStringSubmatch(string(text), -1) {
			require.NotContains(t, run, m[1], "two regions of one name")
			run[m[1]] = outdent(m[2])
		}
	}
	page, err := os.ReadFile("../../docs/migrating.md")
	require.NoError(t, err)
	written := map[string]string{}
	for _, m := range shown.FindAllStringSubmatch(string(page), -1) {
		written[m[1]] = m[2]
	}
	require.NotEmpty(t, written)
	require.Equal(t, run, written)
	require.Equal(t, strings.Count(string(page), "\n**After**"), len(written), "an After without code that runs")
}

// outdent takes the first line's indentation off each line.
func outdent(code string) string {
	indent := code[:len(code)-len(strings.TrimLeft(code, "\t"))]
	return strings.TrimPrefix(strings.ReplaceAll(code, "\n"+indent, "\n"), indent)
}
