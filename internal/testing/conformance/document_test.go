package conformance

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var quotedName = regexp.MustCompile("`([A-Z][A-Za-z0-9]+)`")

// page reads a page of docs.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/" + name)
	require.NoError(t, err)
	return string(text)
}

func names(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range quotedName.FindAllStringSubmatch(text, -1) {
		found[m[1]] = true
	}
	return found
}

func TestTransparencyListsEveryDifference(t *testing.T) {
	_, section, found := strings.Cut(page(t, "transparency.md"), "\n## Differences\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	_, table, found := strings.Cut(section, "\n|---|---|---|---|---|\n")
	require.True(t, found)
	inCode, inDocument := map[string]bool{}, map[string]bool{}
	for _, d := range Differences() {
		require.NotEmpty(t, d.Reason, d.Case)
		inCode[d.Case] = true
	}
	for row := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(row), "|"), "|")
		require.Len(t, cells, 5, row)
		for name := range names(cells[4]) {
			inDocument[name] = true
		}
	}
	require.Equal(t, inCode, inDocument)
}

func TestEveryDifferenceIsOfACase(t *testing.T) {
	known := map[string]bool{}
	for _, c := range Cases() {
		known[c.Name] = true
	}
	for _, d := range Differences() {
		require.True(t, known[d.Case], d.Case)
	}
}

func TestPagesNameOnlyWhatExists(t *testing.T) {
	known := map[string]bool{}
	for _, c := range Cases() {
		known[c.Name] = true
	}
	test := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir("../../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range test.FindAllStringSubmatch(string(text), -1) {
			known[m[1]] = true
		}
		return err
	})
	require.NoError(t, err)
	for _, file := range []string{"transparency.md", "internals/foreign-suites.md"} {
		found := names(page(t, file))
		require.NotEmpty(t, found)
		for name := range found {
			require.True(t, known[name], "%s: %s is neither a case nor a test", file, name)
		}
	}
}
