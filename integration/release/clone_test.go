package release

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAProgramCanUseAClone by the lines of the README: its program beside a clone, without a release.
func TestAProgramCanUseAClone(t *testing.T) {
	p := newProxy(t)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(readme), "\n### From a clone\n")
	require.True(t, found)
	commands := fence.FindStringSubmatch(section)[2]
	require.Contains(t, commands, "git clone https://"+root+" ")

	user := p.newUser(t, toolchains()[0])
	dir := filepath.Join(t.TempDir(), "shop")
	require.NoError(t, os.Mkdir(dir, 0o700))
	user.run(t, dir, "go", "mod", "init", "example.com/shop")
	for _, block := range fence.FindAllStringSubmatch(string(readme), -1) {
		if block[1] == "go" {
			save(t, dir, block[2])
			break
		}
	}
	origin := strings.TrimSpace(p.git(t, "remote", "get-url", "origin"))
	user.run(t, dir, "sh", "-ec", strings.Replace(commands, "https://"+root, origin, 1))
	user.run(t, dir, "go", "vet", ".")
}
