package pooldriver

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// layers are the files of this package, the lowest first. A file uses names of its own
// layer and of those below it.
var layers = []struct{ name, files string }{
	{"what a program configures", "doc ambient config errors pinning observer options"},
	{"what decides", "core checkout binding claim outcome operation beginning transaction reading loan real " +
		"end starvation waitcycle ctxsettings dropped stats observing holding leak"},
	{"what translates database/sql's calls", "conn stmt rows tx task intx retry raw beneath withsettings scan"},
	{"what a program opens", "connector driver template"},
}

// TestFilesFormLayers: whoever decides knows nothing of the virtual objects that ask, and
// nothing of the Connector.
func TestFilesFormLayers(t *testing.T) {
	layerOf := make(map[string]int)
	for i, l := range layers {
		for _, name := range strings.Fields(l.files) {
			layerOf[name+".go"] = i
		}
	}
	files := parseFiles(t)
	declared := make(map[string]string) // name -> file
	for name, file := range files {
		require.Contains(t, layerOf, name, "a new file needs a layer")
		for _, d := range declaredBy(file) {
			declared[d] = name
		}
	}
	require.Len(t, layerOf, len(files), "a file of a layer is gone")
	require.Equal(t, "conn.go", declared["conn"], "the test finds declarations")
	for name, file := range files {
		for _, used := range file.Unresolved {
			if from, ok := declared[used.Name]; ok && layerOf[from] > layerOf[name] {
				t.Errorf("%s (%s) uses %s of %s (%s)", name, layers[layerOf[name]].name, used.Name, from, layers[layerOf[from]].name)
			}
		}
	}
}

func parseFiles(t *testing.T) map[string]*ast.File {
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	files := make(map[string]*ast.File)
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			require.NoError(t, err)
			files[name] = file
		}
	}
	return files
}

// declaredBy returns the names that a file declares for its package; not methods: those
// of a type can be called by whoever may use the type.
func declaredBy(file *ast.File) (names []string) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names = append(names, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					names = append(names, s.Name.Name)
				case *ast.ValueSpec:
					for _, n := range s.Names {
						names = append(names, n.Name)
					}
				}
			}
		}
	}
	return names
}
