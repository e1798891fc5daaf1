package pooldriver_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The bounds of the packages that make up the driver: docs/adr/0015. They are of names whose types
// were checked, so that methods and fields count, too.
const (
	mostFiles = 2 // that write one field, or have methods of one type
	mostLocks = 17
)

// crossing is how many functions and methods of one package another one may call, and reaching how many
// methods a type may reach, through what it embeds. No moving of text changes these. They are to fall.
var (
	crossing = map[[2]string]int{
		{"/internal/virtual", "/internal/binding"}: 58,
		{"/internal/virtual", "/internal/session"}: 52,
		{"/internal/binding", "/internal/session"}: 78,
	}
	reaching = map[string]int{"/internal/connpool": 60, "/internal/binding": 66, "/internal/virtual": 38}
)

// objects are the types that are their package's one object. Their methods may be anywhere.
var objects = map[string]string{
	"":                  "Config",
	"/internal/virtual": "operation", "/internal/binding": "Binding", "/internal/connpool": "Pool",
	"/internal/report": "", "/internal/pinning": "",
}

func TestFilesOfThePackagesDoNotGrowTogether(t *testing.T) {
	t.Parallel()
	const module = "github.com/pooldriver/pooldriver"
	patterns := []string{"list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles"}
	for p := range objects {
		patterns = append(patterns, module+p)
	}
	out, err := exec.Command("go", patterns...).Output()
	require.NoError(t, err)
	packages := listed(t, out)
	locks := 0
	for pkg, object := range objects {
		s := structureOf(t, packages, module+pkg)
		require.NotEmpty(t, s.methods, "%s is read", pkg)
		for wall, most := range crossing {
			if wall[0] == pkg {
				calls := s.calls[module+wall[1]]
				require.NotEmpty(t, calls)
				require.LessOrEqual(t, len(calls), most, "functions of %s that %s calls", wall[1], pkg)
			}
		}
		if most := reaching[pkg]; most > 0 {
			for name, n := range s.reach {
				require.LessOrEqual(t, n, most, "methods that %s of %s reaches", name, pkg)
			}
		}
		for name, files := range s.methods {
			if name != object && name != "Config" {
				require.LessOrEqual(t, len(files), mostFiles, "%s: methods of %s are in %v", pkg, name, slices.Collect(maps.Keys(files)))
			}
		}
		for field, files := range s.writers {
			require.LessOrEqual(t, len(files), mostFiles, "%s: %s is written in %v", pkg, field, slices.Collect(maps.Keys(files)))
		}
		if pkg == "/internal/binding" {
			locks = s.locks
			continue
		}
		require.Zero(t, s.locks, "%s locks seats, which is internal/binding's work", pkg)
	}
	require.NotZero(t, locks)
	require.LessOrEqual(t, locks, mostLocks, "places that lock a seat")
}

// goPackage is what "go list" says of a package.
type goPackage struct {
	ImportPath, Export, Dir string
	GoFiles                 []string
}

func listed(t *testing.T, out []byte) map[string]goPackage {
	t.Helper()
	all := make(map[string]goPackage)
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		err := d.Decode(&p)
		if err == io.EOF {
			return all
		}
		require.NoError(t, err)
		all[p.ImportPath] = p
	}
}

// structure is what the files of a package have to do with each other.
type structure struct {
	calls   map[string]map[string]bool // package -> its functions and methods that are called
	reach   map[string]int             // type -> methods that it reaches
	methods map[string]map[string]bool // type -> files that have its methods
	writers map[string]map[string]bool // field -> files that write it
	locks   int                        // places that lock a seat
}

func structureOf(t *testing.T, packages map[string]goPackage, path string) *structure {
	t.Helper()
	set := token.NewFileSet()
	lookup := func(path string) (io.ReadCloser, error) {
		p, ok := packages[path]
		if !ok || p.Export == "" {
			return nil, errors.New("no export data of " + path)
		}
		return os.Open(p.Export)
	}
	var files []*ast.File
	for _, name := range packages[path].GoFiles {
		f, err := parser.ParseFile(set, filepath.Join(packages[path].Dir, name), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, f)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(set, "gc", lookup)}
	pkg, err := config.Check(path, set, files, info)
	require.NoError(t, err)
	s := &structure{calls: map[string]map[string]bool{}, reach: reachOf(pkg.Scope()), methods: map[string]map[string]bool{}, writers: map[string]map[string]bool{}}
	nameOf := func(pos token.Pos) string { return filepath.Base(set.Position(pos).Filename) }
	fields := fieldsOf(pkg.Scope())
	for _, f := range files {
		name := nameOf(f.Package)
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				add(s.methods, receiverOf(fn), name)
			}
		}
		written := writtenIn(f)
		ast.Inspect(f, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			o := info.Uses[id]
			if locksSeat(o) {
				s.locks++
			}
			if fn, ok := o.(*types.Func); ok && fn.Pkg() != nil && fn.Pkg() != pkg {
				add(s.calls, fn.Pkg().Path(), fn.FullName())
			}
			if field := fields[o]; field != "" && written[id] {
				add(s.writers, field, name)
			}
			return true
		})
	}
	return s
}

// reachOf is how many methods each type of a package reaches.
func reachOf(scope *types.Scope) map[string]int {
	reach := map[string]int{}
	for _, name := range scope.Names() {
		if t, ok := scope.Lookup(name).(*types.TypeName); ok && !types.IsInterface(t.Type()) {
			reach[name] = types.NewMethodSet(types.NewPointer(t.Type())).Len()
		}
	}
	return reach
}

func add(to map[string]map[string]bool, key, file string) {
	if to[key] == nil {
		to[key] = map[string]bool{}
	}
	to[key][file] = true
}

// locksSeat reports whether o is a method that locks a seat.
func locksSeat(o types.Object) bool {
	fn, ok := o.(*types.Func)
	if !ok || fn.Pkg() == nil || fn.Name() != "Lock" && fn.Name() != "TryLock" {
		return false
	}
	return strings.HasSuffix(fn.Pkg().Path(), "/internal/fairlock")
}

// fieldsOf are the names of the fields of the structs of a package.
func fieldsOf(scope *types.Scope) map[types.Object]string {
	names := map[types.Object]string{}
	for _, name := range scope.Names() {
		if st, ok := scope.Lookup(name).Type().Underlying().(*types.Struct); ok {
			for field := range st.Fields() {
				names[field] = name + "." + field.Name()
			}
		}
	}
	return names
}

func receiverOf(fn *ast.FuncDecl) string {
	switch t := fn.Recv.List[0].Type.(type) {
	case *ast.StarExpr:
		return types.ExprString(t.X)
	default:
		return types.ExprString(t)
	}
}

// writtenIn are the names that f assigns to, counts up, takes the address of, or sets as an
// atomic. A composite literal makes a new value, and does not count.
func writtenIn(f *ast.File) map[*ast.Ident]bool {
	written := map[*ast.Ident]bool{}
	mark := func(e ast.Expr) {
		for {
			switch x := e.(type) {
			case *ast.ParenExpr:
				e = x.X
			case *ast.IndexExpr:
				e = x.X
			case *ast.StarExpr:
				e = x.X
			case *ast.SelectorExpr:
				written[x.Sel] = true
				return
			default:
				return
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				mark(left)
			}
		case *ast.IncDecStmt:
			mark(n.X)
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				mark(n.X)
			}
		case *ast.CallExpr:
			if call, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Store", "Add", "Swap", "CompareAndSwap"}, call.Sel.Name) {
				mark(call.X)
			}
		}
		return true
	})
	return written
}
