package release

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
)

// root is the path of the module in the tree's root.
const root = "github.com/pooldriver/pooldriver"

// satellites are the other modules that users install, each after those that it requires.
var satellites = []string{"otelpooldriver", "pgxpooldriver", "prompooldriver", "riverpooldriver", "credentials/rds", "cmd/pooldriver"}

// long: with empty caches, and with each Go that is supported, as "make release-check" runs it.
// Otherwise with the machine's caches and its Go.
func long() bool { return os.Getenv("POOLDRIVER_LONG") != "" }

func toolchains() []string {
	if long() {
		return []string{"go1.26.0", "go1.27.0"}
	}
	return []string{"local"}
}

// proxy is a module proxy in files.
type proxy struct {
	dir     string
	version string
}

// publish serves a copy of the tree. In the copy the satellites require the version that is
// served, and have the sums of it: what RELEASING.md does before a tag.
func publish(t *testing.T) *proxy {
	t.Helper()
	tree := treeOf(t)
	p := &proxy{dir: t.TempDir(), version: nextVersion(t, tree)}
	if !long() {
		// The machine's cache of modules must not have an older one of the same name.
		p.version += fmt.Sprintf("-check.%d", time.Now().UnixNano())
		t.Cleanup(func() { p.forget(t) })
	}
	p.add(t, root, tree)
	author := p.newUser(t, "local")
	for _, name := range satellites {
		dir := filepath.Join(tree, name)
		for _, required := range append([]string{root}, requiredBy(t, dir)...) {
			author.run(t, dir, "go", "mod", "edit", "-require="+required+"@"+p.version)
		}
		author.run(t, dir, "go", "mod", "tidy")
		p.add(t, root+"/"+name, dir)
	}
	return p
}

// requiredBy are the satellites that the module in dir requires.
func requiredBy(t *testing.T, dir string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	require.NotContains(t, string(text), "replace", "who installs a module does not have its neighbours")
	for _, name := range satellites {
		if strings.Contains(string(text), root+"/"+name+" v") {
			all = append(all, root+"/"+name)
		}
	}
	return all
}

// treeOf copies the files that git knows, as they are now.
func treeOf(t *testing.T) string {
	t.Helper()
	top, err := filepath.Abs("../..")
	require.NoError(t, err)
	list := exec.Command("git", "ls-files", "-z")
	list.Dir = top
	names, err := list.Output()
	require.NoError(t, err)
	tree := t.TempDir()
	for _, name := range strings.Split(strings.TrimRight(string(names), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(top, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		require.NoError(t, err)
		to := filepath.Join(tree, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o700))
		require.NoError(t, os.WriteFile(to, text, 0o600))
	}
	require.NoError(t, os.Remove(filepath.Join(tree, "go.work"))) // it is not for users
	return tree
}

// nextVersion is the version on top of the changelog.
func nextVersion(t *testing.T, tree string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(tree, "CHANGELOG.md"))
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)`).FindSubmatch(text)
	require.NotNil(t, found, "the changelog has no version")
	return "v" + string(found[1])
}

// add serves the module in dir, without the modules below it.
func (p *proxy) add(t *testing.T, path, dir string) {
	t.Helper()
	at := filepath.Join(p.dir, path, "@v")
	require.NoError(t, os.MkdirAll(at, 0o700))
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	require.NoError(t, err)
	info, err := json.Marshal(map[string]any{"Version": p.version, "Time": time.Now().UTC()})
	require.NoError(t, err)
	for name, content := range map[string][]byte{p.version + ".mod": mod, p.version + ".info": info, "list": []byte(p.version + "\n")} {
		require.NoError(t, os.WriteFile(filepath.Join(at, name), content, 0o600))
	}
	archive, err := os.Create(filepath.Join(at, p.version+".zip"))
	require.NoError(t, err)
	require.NoError(t, modzip.CreateFromDir(archive, module.Version{Path: path, Version: p.version}, dir))
	require.NoError(t, archive.Close())
}

// forget takes what was served out of the machine's cache.
func (p *proxy) forget(t *testing.T) {
	t.Helper()
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	require.NoError(t, err)
	dir := strings.TrimSpace(string(cache))
	for _, name := range append([]string{""}, satellites...) {
		at := filepath.Join(dir, root, name) + "@" + p.version
		_ = filepath.WalkDir(at, func(path string, _ os.DirEntry, err error) error {
			if err == nil {
				_ = os.Chmod(path, 0o700)
			}
			return nil
		})
		require.NoError(t, os.RemoveAll(at))
		files, err := filepath.Glob(filepath.Join(dir, "cache", "download", root, name, "@v", p.version+".*"))
		require.NoError(t, err)
		for _, file := range files {
			require.NoError(t, os.Remove(file))
		}
	}
}
