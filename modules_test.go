package pooldriver_test

import (
	"os"
	"os/exec"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/onerelease"
)

// release is the one that the tree becomes.
const release = onerelease.GoGet_all_modules_of_pooldriver_at_one_version_this_one_is_v0_2_0

// filesOf are the files of the tree that match a pattern of git's, also those that are not committed yet.
func filesOf(t *testing.T, pattern string) []string {
	t.Helper()
	out, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", pattern).Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

// ownModules are the folders of the modules beside the root, and whether users install them.
func ownModules(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, file := range filesOf(t, "*/go.mod") {
		first, _, _ := strings.Cut(file, "/")
		switch first {
		case "bench", "examples", "integration", "tests":
			all[path.Dir(file)] = false
		default:
			all[path.Dir(file)] = true
		}
	}
	require.Len(t, all, 20)
	return all
}

// TestTheRootRequiresNoDriver: whoever uses one database gets the modules of its driver alone.
func TestTheRootRequiresNoDriver(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		path, _, required := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, "require ")), " v")
		if required {
			require.Contains(t, []string{"github.com/stretchr/testify", "go.uber.org/goleak", "go.yaml.in/yaml/v3"}, path, "for tests")
		}
	}
}

// TestEachModuleIsOfOneRelease: the one on top of the changelog. integration/release/raise.sh writes it
// everywhere.
func TestEachModuleIsOfOneRelease(t *testing.T) {
	t.Parallel()
	changes, err := os.ReadFile("CHANGELOG.md")
	require.NoError(t, err)
	top := regexp.MustCompile(`(?m)^## (\S+)`).FindAllStringSubmatch(string(changes), 2)
	require.Equal(t, "Version", top[0][1])
	require.Equal(t, release, "v"+top[1][1])
	required := regexp.MustCompile(`(?m)^(?:require)?\s+(github\.com/pooldriver/pooldriver\S*) (v\S+)`)
	for module, installed := range ownModules(t) {
		mod, err := os.ReadFile(module + "/go.mod")
		require.NoError(t, err)
		for _, r := range required.FindAllStringSubmatch(string(mod), -1) {
			if installed || !strings.HasPrefix(r[2], "v0.0.0") { // modules that nobody installs have no releases
				require.Equal(t, release, r[2], "%s requires %s", module, r[1])
			}
		}
		if !installed {
			continue
		}
		text, err := os.ReadFile(module + "/release.go")
		require.NoError(t, err)
		name := "this_one_is_" + strings.NewReplacer(".", "_", "-", "_", "+", "_").Replace(release)
		require.Contains(t, string(text), "const _ = onerelease.GoGet_all_modules_of_pooldriver_at_one_version_"+name+"\n")
		require.Equal(t, module != "cmd/pooldriver", strings.Contains(string(mod), "\nreplace "),
			"%s: who builds it in a clone needs replacements; of a module that has some \"go install\" accepts no command", module)
	}
}
