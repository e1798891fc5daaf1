package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// user is somebody who installs what the proxy serves.
type user struct{ env []string }

func (p *proxy) newUser(t *testing.T, toolchain string) *user {
	t.Helper()
	proxies, err := exec.Command("go", "env", "GOPROXY").Output()
	require.NoError(t, err)
	u := &user{env: append(os.Environ(),
		// Without -mod=mod a sum that "go get" has not written is an error, as for every user.
		"GOWORK=off", "GOFLAGS=", "GOTOOLCHAIN="+toolchain,
		"GOPROXY=file://"+p.dir+","+string(proxies[:len(proxies)-1]), "GONOSUMDB="+root+","+root+"/*",
	)}
	if long() {
		u.env = append(u.env, "GOFLAGS=-modcacherw", "GOMODCACHE="+t.TempDir(), "GOCACHE="+t.TempDir())
	}
	return u
}

// module makes a module in an empty folder.
func (u *user) module(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	u.run(t, dir, "go", "mod", "init", "example.com/shop")
	return dir
}

// run runs a command, and returns what it has printed.
func (u *user) run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Dir, c.Env = dir, u.env
	said, err := c.CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, said)
	return string(said)
}

// fail runs a command that has to fail, and returns what it has printed.
func (u *user) fail(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Dir, c.Env = dir, u.env
	said, err := c.CombinedOutput()
	require.Error(t, err, "%s %v: %s", name, args, said)
	return string(said)
}

// fence finds the blocks of code of a page.
var fence = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")

// followReadme does what the README says under its heading Start, block by block and letter by
// letter: it runs the commands in dir, and saves the program there. Only the program's DSN is
// another one. It returns what the last block has printed.
func (u *user) followReadme(t *testing.T, dir, dsn string) (said string) {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, intro, found := strings.Cut(string(readme), "\n## Start\n")
	require.True(t, found)
	intro, _, _ = strings.Cut(intro, "\n### ")
	for _, block := range fence.FindAllStringSubmatch(intro, -1) {
		switch language, text := block[1], block[2]; language {
		case "":
			said = u.run(t, dir, "sh", "-ec", text)
		case "go":
			program := regexp.MustCompile(`"postgres://[^"]*"`).ReplaceAllLiteralString(text, strconv.Quote(dsn))
			require.Equal(t, 1, strings.Count(program, dsn))
			save(t, dir, program)
		default:
			t.Fatalf("the README starts with a block of %s", language)
		}
	}
	return said
}

// save makes program the program in dir.
func save(t *testing.T, dir, program string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600))
}
