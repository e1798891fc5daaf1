package pooldriver_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheErrorsPageHasEachErrorThatIsExported, and no other.
func TestTheErrorsPageHasEachErrorThatIsExported(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/errors.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "\n| `pooldriver.` |")
	require.True(t, found)
	table, rest, found := strings.Cut(table, "\nErrors without a name:\n")
	require.True(t, found)
	onPage := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z]\\w+)` \\|").FindAllStringSubmatch(table, -1) {
		onPage[row[1]] = true
	}
	root := exportedErrors(t, ".")
	require.Equal(t, root, onPage)
	for name := range exportedErrors(t, "pool") {
		require.True(t, root[name] || strings.Contains(rest, "`pool."+name+"`"), "pool.%s", name)
	}
}

// exportedErrors are the errors and the types of errors that a package exports.
func exportedErrors(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	found := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range tree.Decls {
			declared, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range declared.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range s.Names {
						if regexp.MustCompile(`^Err[A-Z]`).MatchString(name.Name) {
							found[name.Name] = true
						}
					}
				case *ast.TypeSpec:
					if s.Name.IsExported() && strings.HasSuffix(s.Name.Name, "Error") {
						found[s.Name.Name] = true
					}
				}
			}
		}
	}
	require.NotEmpty(t, found, dir)
	return found
}

// TestTheErrorsPageHasEachLogLine: each row is the beginning of a line, and each line has one.
func TestTheErrorsPageHasEachLogLine(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/errors.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "\n## Log lines\n")
	require.True(t, found)
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(table, -1)
	used := make([]bool, len(rows))
	for _, line := range logLines(t) {
		has := false
		for i, row := range rows {
			if strings.HasPrefix(line, row[1]) {
				used[i], has = true, true
			}
		}
		require.True(t, has, "docs/errors.md lacks the log line %q", line)
	}
	for i, row := range rows {
		require.True(t, used[i], "no log line begins with %q", row[1])
	}
}

// logLines are the messages that the library writes to a log, as far as they are written in the code.
func logLines(t *testing.T) (lines []string) {
	t.Helper()
	out, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.go").Output()
	require.NoError(t, err)
	for file := range strings.FieldsSeq(string(out)) {
		first, _, _ := strings.Cut(file, "/")
		if strings.HasSuffix(file, "_test.go") || strings.Contains(" bench cmd examples integration tests ", " "+first+" ") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			of, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, _ := of.X.(*ast.Ident)
			inReport := strings.HasPrefix(file, "internal/report/")
			var messages []ast.Expr
			switch {
			case x != nil && x.Name == "slog" && strings.Contains(" Debug Info Warn Error ", " "+strings.TrimSuffix(of.Sel.Name, "Context")+" "):
				messages = call.Args[:1]
				if strings.HasSuffix(of.Sel.Name, "Context") {
					messages = call.Args[1:2]
				}
			case inReport && (of.Sel.Name == "write" || of.Sel.Name == "nowAndThen"):
				messages = call.Args[1:2]
			case inReport && of.Sel.Name == "tellOutage":
				messages = call.Args[2:4]
			}
			for _, m := range messages {
				if text := written(m); text != "" {
					lines = append(lines, text)
				}
			}
			return true
		})
	}
	require.Greater(t, len(lines), 30)
	return lines
}

// written is what is written in the code of a message, without the prefix of each line.
func written(message ast.Expr) string {
	if sum, ok := message.(*ast.BinaryExpr); ok {
		message = sum.X
	}
	lit, ok := message.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "" // a variable: its caller has the text
	}
	text, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(text, "pooldriver: ")
}
