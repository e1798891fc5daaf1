package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// terminal is a real one, of 80 columns and 24 lines.
type terminal struct{ socket string }

func (m terminal) tmux(t *testing.T, arguments ...string) string {
	t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", m.socket}, arguments...)...).CombinedOutput()
	require.NoError(t, err, "tmux (Debian: tmux): %s", out)
	return string(out)
}

func (m terminal) screen(t *testing.T) []string {
	return strings.Split(strings.TrimRight(m.tmux(t, "capture-pane", "-p", "-t", "top"), "\n"), "\n")
}

// TestTopShowsTheSameTruthInATerminal: the command, built and run as people do.
func TestTopShowsTheSameTruthInATerminal(t *testing.T) {
	s := newStage(t, 4, patient)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	task, end := pooldriver.NewTask(pooldriver.Label(ctx, "POST /orders"))
	t.Cleanup(end)
	pid := forgetTransaction(t, task, s.db)
	s.crowd(t, ctx, 3, "GET /report", "SELECT pg_sleep(300)")
	require.Eventually(t, func() bool { return s.connector.Stats().Pool.Lent == 4 }, 30*time.Second, 10*time.Millisecond)
	s.crowd(t, ctx, 30, "GET /cart", "SELECT 1")

	program := filepath.Join(t.TempDir(), "pooldriver")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = "../../cmd/pooldriver"
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	dir, err := os.MkdirTemp("", "tmux") // a socket's path must be short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m := terminal{filepath.Join(dir, "s")}
	m.tmux(t, "-f", "/dev/null", "new-session", "-d", "-s", "top", "-x", "80", "-y", "24", fmt.Sprintf("%s top --every 5s %s", program, s.url()))
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", m.socket, "kill-server").Run() })

	require.EventuallyWithT(t, func(c *assert.CollectT) {
		lines := m.screen(t)
		if !assert.Len(c, lines, 24) {
			return
		}
		all := strings.Join(lines, " ")
		assert.Contains(c, all, "while a transaction by POST /orders at browser.forgetTransaction", "the whole advice, over several lines")
		assert.Contains(c, all, "it may hold the locks that they wait for; 30 statements wait.")
		assert.Contains(c, all, "in use 4 of 4   in the pool 0   waiting 30")
		assert.Contains(c, all, "failed dials 0")
		assert.Contains(c, all, "[###!]")
		first := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "HOLDS: LABEL") }) + 1
		assert.Regexp(c, `^POST /orders +\S+ +\S+ transaction +`+strconv.Itoa(pid)+` .*stage_test.go:`, lines[first], "the server's number, in the first row")
		assert.Regexp(c, `^lines 1 to 23 of \d+: the arrow keys`, lines[23])
		for _, line := range lines {
			assert.LessOrEqual(c, utf8.RuneCountInString(line), 80)
		}
	}, 30*time.Second, 100*time.Millisecond)
	if pictures := os.Getenv("POOLDRIVER_PICTURES"); pictures != "" {
		require.NoError(t, os.WriteFile(filepath.Join(pictures, "top.txt"), []byte(strings.Join(m.screen(t), "\n")+"\n"), 0o600))
	}
	for _, step := range []struct{ key, shows string }{
		{"j", `lines 2 to 24 of`}, {"Down", `lines 3 to 25 of`}, {"k", `lines 2 to 24 of`}, {"NPage", `lines 25 to 47 of`},
		{"PPage", `lines 2 to 24 of`}, {"Up", `lines 1 to 23 of`},
	} {
		m.tmux(t, "send-keys", "-t", "top", step.key)
		require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Contains(c, strings.Join(m.screen(t), "\n"), step.shows) }, 4500*time.Millisecond, 50*time.Millisecond, "before the next look, after %s", step.key)
	}
	time.Sleep(6 * time.Second) // it is drawn again
	m.tmux(t, "send-keys", "-t", "top", "NPage")
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Regexp(c, `GET /cart +\S+ +\S+`, m.screen(t)[22]) }, 30*time.Second, 50*time.Millisecond, "waiters")
	m.tmux(t, "send-keys", "-t", "top", "q")
	require.Eventually(t, func() bool {
		return exec.Command("tmux", "-S", m.socket, "has-session", "-t", "top").Run() != nil
	}, 30*time.Second, 50*time.Millisecond, "it ends when it is told to")
}
