package pooldriver_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const errorsPage = "docs/errors.md"

// TestTheErrorsPageHasEachErrorThatIsExported, and no other.
func TestTheErrorsPageHasEachErrorThatIsExported(t *testing.T) {
	t.Parallel()
	table, rest, found := strings.Cut(behind(t, errorsPage, "\n| `pooldriver.` |"), "\nErrors without a name:\n")
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
		for _, d := range parsed(t, file).Decls {
			declared, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range declared.Specs {
				for _, name := range errorsOf(spec) {
					found[name] = true
				}
			}
		}
	}
	require.NotEmpty(t, found, dir)
	return found
}

var errorName = regexp.MustCompile(`^Err[A-Z]`)

// errorsOf are the exported errors, or the exported type of errors, that a declaration declares.
func errorsOf(spec ast.Spec) (names []string) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			if errorName.MatchString(name.Name) {
				names = append(names, name.Name)
			}
		}
	case *ast.TypeSpec:
		if s.Name.IsExported() && strings.HasSuffix(s.Name.Name, "Error") {
			names = append(names, s.Name.Name)
		}
	}
	return names
}

func parsed(t *testing.T, file string) *ast.File {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	return tree
}

// TestTheErrorsPageHasEachLogLine: each row is the beginning of a line, and each line has one.
func TestTheErrorsPageHasEachLogLine(t *testing.T) {
	t.Parallel()
	table := behind(t, errorsPage, "\n## Log lines\n")
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
	for _, file := range filesOf(t, "*.go") {
		first, _, _ := strings.Cut(file, "/")
		if strings.HasSuffix(file, "_test.go") || strings.Contains(" bench cmd examples integration tests ", " "+first+" ") {
			continue
		}
		ast.Inspect(parsed(t, file), func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				for _, m := range messagesOf(call, strings.HasPrefix(file, "internal/observe/report/")) {
					if text := written(m); text != "" {
						lines = append(lines, text)
					}
				}
			}
			return true
		})
	}
	require.Greater(t, len(lines), 30)
	return lines
}

// messagesOf are the arguments of a call that are messages for a log.
func messagesOf(call *ast.CallExpr, inReport bool) []ast.Expr {
	of, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	x, _ := of.X.(*ast.Ident)
	level, withContext := strings.CutSuffix(of.Sel.Name, "Context")
	switch {
	case x != nil && x.Name == "slog" && strings.Contains(" Debug Info Warn Error ", " "+level+" "):
		if withContext {
			return call.Args[1:2]
		}
		return call.Args[:1]
	case inReport && (of.Sel.Name == "write" || of.Sel.Name == "nowAndThen"):
		return call.Args[1:2]
	case inReport && of.Sel.Name == "tellOutage":
		return call.Args[2:4]
	}
	return nil
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
