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
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The packages that make up the driver: docs/adr/0015. What is counted are names whose types were
// checked, so that methods count, too. The counts have a tenth of slack, so that a change of one
// thing is no change of a bound.
var (
	// crossing is how many functions and methods of one package another one may call.
	crossing = map[[2]string]int{
		{"/internal/virtual", "/internal/binding"}: 64,
		{"/internal/virtual", "/internal/session"}: 57,
		{"/internal/binding", "/internal/session"}: 86,
	}
	// reaching is how many methods a type may reach, through what it embeds.
	reaching = map[string]int{"/internal/connpool": 66, "/internal/binding": 73, "/internal/virtual": 42}
)

func TestOnlyBindingLocksSeatsAndWallsStayLow(t *testing.T) {
	t.Parallel()
	const module = "github.com/pooldriver/pooldriver"
	patterns := []string{"list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles"}
	own := []string{"", "/internal/virtual", "/internal/binding", "/internal/connpool", "/internal/session", "/internal/observe/report", "/internal/pinning"}
	for _, pkg := range own {
		patterns = append(patterns, module+pkg)
	}
	out, err := exec.Command("go", patterns...).Output()
	require.NoError(t, err)
	packages := listed(t, out)
	for _, pkg := range own {
		s := structureOf(t, packages, module+pkg)
		require.NotEmpty(t, s.reach, "%s is read", pkg)
		require.Equal(t, pkg == "/internal/binding", s.locks > 0, "%s locks seats, which is internal/binding's work", pkg)
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
	}
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

// structure is what a package has to do with others.
type structure struct {
	calls map[string]map[string]bool // package -> its functions and methods that are called
	reach map[string]int             // type -> methods that it reaches
	locks int                        // places that lock a seat
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
	s := &structure{calls: map[string]map[string]bool{}, reach: reachOf(pkg.Scope())}
	for _, o := range info.Uses {
		if locksSeat(o) {
			s.locks++
		}
		if fn, ok := o.(*types.Func); ok && fn.Pkg() != nil && fn.Pkg() != pkg {
			path := fn.Pkg().Path()
			if s.calls[path] == nil {
				s.calls[path] = map[string]bool{}
			}
			s.calls[path][fn.FullName()] = true
		}
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

// locksSeat reports whether o is a method that locks a seat.
func locksSeat(o types.Object) bool {
	fn, ok := o.(*types.Func)
	if !ok || fn.Pkg() == nil || fn.Name() != "Lock" && fn.Name() != "TryLock" {
		return false
	}
	return strings.HasSuffix(fn.Pkg().Path(), "/internal/fairlock")
}
