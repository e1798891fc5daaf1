package release

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestModulesOfTwoReleasesDoNotCompile: a module of this release beside the root of the next one, as a
// tool leaves them that raises modules one by one. The error says what to do, and that repairs it.
func TestModulesOfTwoReleasesDoNotCompile(t *testing.T) {
	p := newProxy(t)
	this, next := p.release(t, p.next(t)), p.release(t, "v0.99.0")
	user := p.newUser(t, toolchains()[0])
	name := strings.NewReplacer(".", "_", "-", "_").Replace(this)
	for _, module := range p.modules {
		t.Run(module, func(t *testing.T) {
			dir := user.module(t)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o600))
			user.run(t, dir, "go", "get", pathOf(module)+"@"+this)
			user.run(t, dir, "go", "get", root+"@"+next)
			said := user.fail(t, dir, "go", "build", "-o", os.DevNull, pathOf(module)+"/...")
			require.Contains(t, said, "undefined: onerelease.GoGet_all_modules_of_pooldriver_at_one_version_this_one_is_"+name)
			require.Contains(t, said, "@"+this+"/release.go", "the place of the error names a module that has to be raised")

			user.run(t, dir, "sh", "-ec", lineOf(t, filepath.Join(p.tree, "dialects/postgres/release.go")))
			require.Contains(t, user.run(t, dir, "go", "list", "-m", pathOf(module)), next)
			user.run(t, dir, "go", "build", "-o", os.DevNull, pathOf(module)+"/...")
		})
	}
	t.Run("a module of the next release brings its root", func(t *testing.T) {
		dir := user.module(t)
		save(t, dir, pgxProgram)
		user.run(t, dir, "go", "get", root+"/pgxpooldriver@"+this)
		user.run(t, dir, "go", "get", root+"/pgxpooldriver@"+next)
		user.run(t, dir, "go", "mod", "tidy")
		user.run(t, dir, "go", "vet", ".")
	})
}

// lineOf is the command in the comment of a file.
func lineOf(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^//\t(go get .*)$`).FindSubmatch(text)
	require.NotNil(t, line)
	return string(line[1])
}
