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

// long: with empty caches, and with each Go that is supported, as "make release-check" runs it.
// Otherwise with the machine's caches and its Go.
func long() bool { return os.Getenv("POOLDRIVER_LONG") != "" }

func toolchains() []string {
	if long() {
		return []string{"go1.26.0", "go1.27.0"}
	}
	return []string{"local"}
}

// proxy is a module proxy in files. It serves what the tags of a bare repository hold.
type proxy struct {
	dir     string
	tree    string   // a clone, in which releases are made
	modules []string // what is released beside the root
	serial  int64
}

// newProxy makes a repository with the tree in one commit. It has no tag yet.
func newProxy(t *testing.T) *proxy {
	t.Helper()
	p := &proxy{dir: t.TempDir(), tree: treeOf(t), serial: time.Now().UnixNano()}
	bare := filepath.Join(t.TempDir(), "origin.git")
	p.git(t, "init", "-q", "--bare", "-b", "main", bare)
	p.git(t, "init", "-q", "-b", "main", ".")
	for _, setting := range []string{"user.name=test", "user.email=test@localhost", "commit.gpgSign=false", "tag.gpgSign=false"} {
		name, value, _ := strings.Cut(setting, "=")
		p.git(t, "config", name, value)
	}
	p.git(t, "add", "-A")
	p.git(t, "commit", "-q", "-m", "the tree")
	p.git(t, "remote", "add", "origin", bare)
	p.git(t, "push", "-q", "origin", "main")
	t.Cleanup(func() { p.forget(t) })
	return p
}

// release makes a release as RELEASING.md says, letter by letter but for the signatures, and serves it.
// Its version ends in -check: the machine's cache of modules must not have an older one of the same name.
func (p *proxy) release(t *testing.T, version string) string {
	t.Helper()
	if !long() {
		version += fmt.Sprintf("-check.%d", p.serial)
	}
	p.run(t, "integration/release/raise.sh", version)
	page, err := os.ReadFile(filepath.Join(p.tree, "RELEASING.md"))
	require.NoError(t, err)
	commands := regexp.MustCompile("(?ms)^   ```\n(.*?)^   ```$").FindAllStringSubmatch(string(page), -1)
	require.Len(t, commands, 1)
	require.Contains(t, commands[0][1], "git tag -s ")
	script := strings.NewReplacer("X.Y.Z", strings.TrimPrefix(version, "v"), "git tag -s ", "git tag ",
		"git commit -am", "git commit -q --allow-empty -am", "git push", "git push -q").Replace(commands[0][1])
	p.run(t, "sh", "-euc", script)

	p.modules = nil
	for tag := range strings.FieldsSeq(p.git(t, "ls-remote", "--tags", "--refs", "origin")) {
		name, isTag := strings.CutPrefix(tag, "refs/tags/")
		if name, ours := strings.CutSuffix(name, version); isTag && ours {
			name = strings.TrimSuffix(name, "/")
			p.add(t, name, version)
			if name != "" {
				p.modules = append(p.modules, name)
			}
		}
	}
	require.Len(t, p.modules, 11)
	return version
}

// next is the version on top of the changelog.
func (p *proxy) next(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.tree, "CHANGELOG.md"))
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)`).FindSubmatch(text)
	require.NotNil(t, found, "the changelog has no version")
	return "v" + string(found[1])
}

func (p *proxy) git(t *testing.T, args ...string) string { return p.run(t, "git", args...) }

func (p *proxy) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Dir = p.tree
	said, err := c.CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, said)
	return string(said)
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
		from := filepath.Join(top, name)
		info, err := os.Stat(from)
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		require.NoError(t, err)
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		to := filepath.Join(tree, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o700))
		require.NoError(t, os.WriteFile(to, text, info.Mode()))
	}
	return tree
}

// pathOf is the path of a module by its folder.
func pathOf(name string) string {
	if name == "" {
		return root
	}
	return root + "/" + name
}

// add serves a module as its tag holds it.
func (p *proxy) add(t *testing.T, name, version string) {
	t.Helper()
	at := filepath.Join(p.dir, pathOf(name), "@v")
	require.NoError(t, os.MkdirAll(at, 0o700))
	tag := strings.TrimPrefix(name+"/"+version, "/")
	mod := p.git(t, "show", tag+":"+strings.TrimPrefix(name+"/go.mod", "/"))
	info, err := json.Marshal(map[string]any{"Version": version, "Time": time.Now().UTC()})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(at, version+".mod"), []byte(mod), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(at, version+".info"), info, 0o600))
	list, err := os.OpenFile(filepath.Join(at, "list"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	fmt.Fprintln(list, version)
	require.NoError(t, list.Close())
	archive, err := os.Create(filepath.Join(at, version+".zip"))
	require.NoError(t, err)
	require.NoError(t, modzip.CreateFromVCS(archive, module.Version{Path: pathOf(name), Version: version}, p.tree, tag, name))
	require.NoError(t, archive.Close())
}

// forget takes what was served out of the machine's cache.
func (p *proxy) forget(t *testing.T) {
	t.Helper()
	if long() {
		return // each user has caches of its own
	}
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	require.NoError(t, err)
	dir := strings.TrimSpace(string(cache))
	version := fmt.Sprintf("v*-check.%d", p.serial)
	for _, name := range append([]string{""}, p.modules...) {
		copies, err := filepath.Glob(filepath.Join(dir, root, name) + "@" + version)
		require.NoError(t, err)
		for _, at := range copies {
			_ = filepath.WalkDir(at, func(path string, _ os.DirEntry, err error) error {
				if err == nil {
					_ = os.Chmod(path, 0o700)
				}
				return nil
			})
			require.NoError(t, os.RemoveAll(at))
		}
		files, err := filepath.Glob(filepath.Join(dir, "cache", "download", root, name, "@v", version+".*"))
		require.NoError(t, err)
		for _, file := range files {
			require.NoError(t, os.Remove(file))
		}
	}
}
