package pooldriver_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

var (
	// trueAsyncSection is the heading of a table with the number of its rows.
	trueAsyncSection = regexp.MustCompile(`(?m)^## (.+) \((\d+) tests\)$`)
	// trueAsyncCitation is how docs/internals/trueasync.md names a test of ours.
	trueAsyncCitation = regexp.MustCompile("`([^`\\s]+\\.go): (\\w+)`")
	// looksLikeATest finds what should have been a citation.
	looksLikeATest = regexp.MustCompile(`\b(Test|Example)[A-Z]\w*|_test\.go|cases_\w+`)
)

func trueAsync(t *testing.T) string { return page(t, "docs/internals/trueasync.md") }

// page returns the text of a page.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

// behind returns what a page has behind a mark.
func behind(t *testing.T, name, mark string) string {
	t.Helper()
	_, rest, found := strings.Cut(page(t, name), mark)
	require.True(t, found, "%s has no %q", name, mark)
	return rest
}

func TestTrueAsyncPageNamesOnlyTestsThatExist(t *testing.T) {
	page := trueAsync(t)
	files := map[string]string{}
	cited := trueAsyncCitation.FindAllStringSubmatch(page, -1)
	require.NotEmpty(t, cited)
	for _, c := range cited {
		path, name := c[1], c[2]
		if _, ok := files[path]; !ok {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			files[path] = string(text)
		}
		// A case of the conformance suite is a row of its table.
		definition := `(?m)^\t\{"` + name + `", `
		if strings.HasSuffix(path, "_test.go") {
			definition = `(?m)^func ` + name + `\(`
		}
		require.True(t, regexp.MustCompile(definition).MatchString(files[path]), "%s has no %s", path, name)
	}
}

func TestTrueAsyncPageHasARowWithAnAnswerForEveryTest(t *testing.T) {
	page := trueAsync(t)
	require.NotContains(t, page, "TASK:", "a behaviour that still has to be tested")
	headings := trueAsyncSection.FindAllStringSubmatchIndex(page, -1)
	require.NotEmpty(t, headings)
	require.Len(t, headings, strings.Count(page, "\n## "), "a heading without the number of its tests")
	for i, h := range headings {
		end := len(page)
		if i+1 < len(headings) {
			end = headings[i+1][0]
		}
		title := page[h[2]:h[3]]
		want, err := strconv.Atoi(page[h[4]:h[5]])
		require.NoError(t, err)
		_, table, found := strings.Cut(page[h[1]:end], "\n|---|---|---|\n")
		require.True(t, found, title)
		seen := map[string]bool{}
		for row := range strings.Lines(strings.TrimSpace(table)) {
			cells := strings.Split(strings.Trim(strings.TrimSpace(row), "|"), "|")
			require.Len(t, cells, 3, row)
			for _, cell := range cells {
				require.NotEmpty(t, strings.TrimSpace(cell), row)
			}
			require.False(t, seen[cells[0]], "%s: %s has two rows", title, cells[0])
			seen[cells[0]] = true
			require.NotRegexp(t, looksLikeATest, trueAsyncCitation.ReplaceAllString(cells[2], ""),
				"a test is named in another form than `path: Name`")
		}
		require.Len(t, seen, want, title)
	}
}

func TestTheProgramOfTheREADMECompiles(t *testing.T) {
	t.Parallel()
	program, _, _ := strings.Cut(behind(t, "README.md", "```go\n"), "```")
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(program), 0o600))
	out, err := exec.Command("go", slices.Concat([]string{"vet"}, asThisTest(), []string{file})...).CombinedOutput()
	require.NoError(t, err, string(out))
}

// asThisTest returns the flags with which packages are in the build cache already.
func asThisTest() []string {
	info, ok := debug.ReadBuildInfo()
	if ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return []string{"-race"}
	}
	return nil
}

// TestThePromisesHaveTests: testdata/promises.txt lists what README.md and pages of docs promise.
func TestThePromisesHaveTests(t *testing.T) {
	list, err := os.ReadFile("testdata/promises.txt")
	require.NoError(t, err)
	files := map[string]string{}
	read := func(path string) string {
		if _, ok := files[path]; !ok {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			files[path] = strings.Join(strings.Fields(string(text)), " ") // lines end anywhere in a sentence
		}
		return files[path]
	}
	for line := range strings.Lines(string(list)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		parts := strings.Split(line, " | ")
		require.Len(t, parts, 3, line)
		require.True(t, strings.Contains(read(parts[0]), parts[1]), "%s does not say %q", parts[0], parts[1])
		file, test, found := strings.Cut(parts[2], ": ")
		require.True(t, found, line)
		if strings.HasPrefix(test, "Test") || strings.HasPrefix(test, "Example") {
			test = "func " + test + "("
		}
		require.True(t, strings.Contains(read(file), test), "%s has no %s", file, test)
	}
}

// TestTheREADMEIsShort: it is read in two minutes, on a telephone, and in a terminal.
func TestTheREADMEIsShort(t *testing.T) {
	t.Parallel()
	readme := page(t, "README.md")
	require.LessOrEqual(t, len(strings.Fields(readme)), 900)
	for line := range strings.Lines(readme) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 100, line)
	}
}

// TestThePagesAreShort, without their code: who adds to one takes something away.
func TestThePagesAreShort(t *testing.T) {
	t.Parallel()
	word := regexp.MustCompile(`\S*[\p{L}\p{N}]\S*`)
	for pattern, most := range map[string]int{"CONTRIBUTING.md": 1800, "docs/*.md": 22_000} {
		pages, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, pages)
		words := 0
		for _, page := range pages {
			words += len(word.FindAllString(withoutCode(t, page), -1))
		}
		require.LessOrEqual(t, words, most, pattern)
	}
}

// TestPicturesAreForLightAndDark: a page that has one for dark ground has both files, and one of them alone will do.
func TestPicturesAreForLightAndDark(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	picture := regexp.MustCompile(`(?s)<picture>\s*<source media="\(prefers-color-scheme: dark\)"\s+srcset="([^"]+)">\s*<img [^>]*src="([^"]+)"\s+alt="[^"]+">\s*</picture>`)
	found := 0
	for _, page := range append(pages, "README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		all := picture.FindAllStringSubmatch(string(text), -1)
		require.Len(t, all, strings.Count(string(text), "<picture>"), page)
		found += len(all)
		for _, m := range all {
			for _, file := range m[1:] {
				_, err := os.Stat(filepath.Join(filepath.Dir(page), file))
				require.NoError(t, err, page)
			}
			require.Equal(t, m[1], strings.TrimSuffix(m[2], filepath.Ext(m[2]))+"-dark"+filepath.Ext(m[2]), page)
		}
	}
	require.NotZero(t, found)
}

// TestLinksLeadSomewhere: those to files of the repository, and to headings of its pages.
func TestLinksLeadSomewhere(t *testing.T) {
	headings := map[string][]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "bench/*/*.md"} {
		pages, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, pages, pattern)
		for _, page := range pages {
			headings[page] = anchors(t, page)
		}
	}
	link := regexp.MustCompile(`(?m)\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)$`)
	for page := range headings {
		for _, m := range link.FindAllStringSubmatch(withoutCode(t, page), -1) {
			to := m[1] + m[2]
			if strings.Contains(to, "://") {
				continue
			}
			path, anchor, _ := strings.Cut(to, "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			_, err := os.Stat(target)
			require.NoError(t, err, page)
			if anchor != "" {
				require.Contains(t, headings[target], anchor, "%s: %s", page, to)
			}
		}
	}
}

// withoutCode is the text of a page without its blocks of code.
func withoutCode(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	return regexp.MustCompile("(?ms)^ *```.*?^ *```$").ReplaceAllString(string(text), "")
}

// anchors are the names that GitHub gives to the headings of a page.
func anchors(t *testing.T, page string) []string {
	t.Helper()
	var found []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(withoutCode(t, page), -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(strings.ToLower(m[1]), "")
		found = append(found, strings.ReplaceAll(name, " ", "-"))
	}
	return found
}

// TestContributingNamesFilesThatExist: whoever looks for a place finds it. It has to name the places
// of the section "To read the source"; the others it may name.
func TestContributingNamesFilesThatExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("CONTRIBUTING.md")
	require.NoError(t, err)
	for _, place := range []string{"internal/session/session.go", "internal/binding/seat.go", "internal/pinning/pinning.go"} {
		require.Contains(t, string(text), "`"+place+"`")
	}
	out, err := exec.Command("git", "ls-files", "*.go").Output()
	require.NoError(t, err)
	files := "/" + strings.ReplaceAll(string(out), "\n", "\n/")
	for _, name := range regexp.MustCompile("`((?:[a-z0-9_]+/)*[a-z0-9_]+\\.go)`").FindAllStringSubmatch(string(text), -1) {
		require.Contains(t, files, "/"+name[1]+"\n")
	}
}

// TestNoReleaseIsDatedWithoutItsTag: a date says that programs can install it.
func TestNoReleaseIsDatedWithoutItsTag(t *testing.T) {
	t.Parallel()
	shallow, err := exec.Command("git", "rev-parse", "--is-shallow-repository").Output()
	require.NoError(t, err)
	if strings.TrimSpace(string(shallow)) == "true" {
		t.Skip("this clone has no tags")
	}
	tags, err := exec.Command("git", "tag", "--list").Output()
	require.NoError(t, err)
	for page, dated := range map[string]string{
		"CHANGELOG.md": `(?m)^## (\d+\.\d+\.\d+) .*\d{4}-\d\d-\d\d`,
		"README.md":    `(\d+\.\d+\.\d+)[^.]* \d{4}-\d\d-\d\d`,
	} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, release := range regexp.MustCompile(dated).FindAllStringSubmatch(string(text), -1) {
			require.Contains(t, "\n"+string(tags), "\nv"+release[1]+"\n", page)
		}
	}
}
