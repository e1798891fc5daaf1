package pairs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// exempt are the options and functions that are in no axis and in no act, by the reason.
var exempt = map[string]string{
	"it bounds a time, and the limits of these runs are for busy machines": `MaxConnLifetime MaxConnLifetimeJitter MaxConnIdleTime
		HealthCheckPeriod TaskTimeout BreakerCooldown ReplicaWait ReplicaMaxLag ListenPing`,
	"it bounds a number, and decides nothing else": "MinConns MinIdleConns MaxWaiters StmtBudget NestedBuffer NestedBufferTotal BreakerFailures",
	"it only reports":                                                    "QueueDry SampleStacks LeakAfter LeakExempt SlowQuery",
	"it decides when nothing is there":                                   "ReplicaFallback",
	"it needs a proxy between, and is tested beside one":                 "ListenDSN Dial",
	"it sees each connection, and each dial here would be the same":      "AfterConnect",
	"it opens, closes or names a Connector":                              "pooldriver.Open Connector.Connect Connector.Driver Connector.Warm Connector.Ready Driver.Open Driver.OpenConnector Pool.Close Pool.Connector Pool.Ping Pool.Reset Conn.Ping Connector.Target Connector.Hosts Connector.DriverParams",
	"it only tells figures":                                              "pooldriver.HistogramBounds Connector.History Connector.LockWaits Connector.Statements Connector.CallSites Connector.Settings Connector.Waiters Pool.Stat Stat.*",
	"it prints":                                                          "*.String *.Format *.MarshalText *.LogValue *.DSN",
	"it panics":                                                          "Conn.Hijack",
	"it is AcquireFunc, Begin or QueryRow of what an act does":           "Pool.AcquireFunc Pool.Begin Conn.Begin Tx.Begin Pool.QueryRow Conn.QueryRow Tx.QueryRow",
	"large objects need a transaction of their own kind":                 "Tx.LargeObjects",
	"it is the life of a sandbox's place, and no feature of a statement": "sandbox.DB sandbox.Together",
	"it begins a task around a function, as WithTask does":               "pooldriver.Do",
	"it is a rule of the tasks that joins, warns or refuses":             "Ambient",
}

// TestEachOptionAndFunctionIsInAnAxisOrAnAct compares them with what the files of axes, acts and runs mention.
func TestEachOptionAndFunctionIsInAnAxisOrAnAct(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, file := range []string{"axes_test.go", "acts_test.go", "acting_test.go", "faces_test.go", "jobs_test.go", "run_test.go", "world_test.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				used[s.Sel.Name] = true
				if of, ok := s.X.(*ast.Ident); ok {
					used[of.Name+"."+s.Sel.Name] = true
				}
			}
			return true
		})
	}
	excused := map[string]bool{}
	excusing := map[string]bool{}
	for reason, names := range exempt {
		require.NotEmpty(t, reason)
		for name := range strings.FieldsSeq(names) {
			excused[name] = true
		}
	}
	check := func(name string, mentioned bool) {
		of, method, _ := strings.Cut(name, ".")
		for _, e := range []string{name, of + ".*", "*." + method} {
			if excused[e] {
				excusing[e] = true
				return
			}
		}
		if !mentioned {
			t.Errorf("%s is in no axis and in no act: give it one, or exempt it with a reason", name)
		}
	}
	for field := range fieldsOfConfig(t) {
		check(field, used["c."+field])
	}
	for pkg, dir := range map[string]string{"pooldriver": "../..", "pgxpooldriver": "../../pgxpooldriver", "sandbox": "../../sandbox"} {
		for _, f := range functionsOf(t, dir) {
			if name, method := f[0], f[1]; method != "" {
				check(name+"."+method, used[method])
			} else {
				check(pkg+"."+name, used[pkg+"."+name])
			}
		}
	}
	for name := range excused {
		require.True(t, excusing[name], "%s is exempt, and is no option and no function", name)
	}
}

// fieldsOfConfig are the options, also those that no DSN has.
func fieldsOfConfig(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[pooldriver.Config]()) {
		all[f.Name] = true
	}
	for _, s := range pooldriver.New("postgres://u@127.0.0.1:1/d").Settings() { // each is a field
		require.True(t, all[camel(s.Name)], s.Name)
	}
	return all
}

// camel is the name of an option's field: MaxConns of pool_max_conns.
func camel(name string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(strings.TrimPrefix(name, "pool_"), "_") {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}

// functionsOf are the exported functions of a package, and its exported types with their exported methods.
func functionsOf(t *testing.T, dir string) (all [][2]string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		require.NoError(t, err)
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() {
				continue
			}
			if f.Recv == nil {
				all = append(all, [2]string{f.Name.Name, ""})
				continue
			}
			of := f.Recv.List[0].Type
			if star, ok := of.(*ast.StarExpr); ok {
				of = star.X
			}
			if name, ok := of.(*ast.Ident); ok && name.IsExported() {
				all = append(all, [2]string{name.Name, f.Name.Name})
			}
		}
	}
	return all
}
