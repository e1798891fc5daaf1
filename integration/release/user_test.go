package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
		"GOWORK=off", "GOFLAGS=-mod=mod", "GOTOOLCHAIN="+toolchain,
		"GOPROXY=file://"+p.dir+","+string(proxies[:len(proxies)-1]), "GONOSUMDB="+root+","+root+"/*",
	)}
	if long() {
		u.env = append(u.env, "GOFLAGS=-mod=mod -modcacherw", "GOMODCACHE="+t.TempDir(), "GOCACHE="+t.TempDir())
	}
	return u
}

// module makes a module with one program in an empty folder.
func (u *user) module(t *testing.T, program string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600))
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

// readmeProgram is the first program of the README, with this DSN.
func readmeProgram(t *testing.T, dsn string) string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)```go\n(package main.*?)```").FindSubmatch(text)
	require.NotNil(t, found, "the README has no program")
	program := regexp.MustCompile(`"postgres://[^"]*"`).ReplaceAll(found[1], []byte(`"`+dsn+`"`))
	require.Contains(t, string(program), dsn)
	return string(program)
}
