package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	s := newStage(t, 4)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	task, end := pooldriver.NewTask(pooldriver.Label(ctx, "POST /orders"))
	t.Cleanup(end)
	pid := forgetTransaction(t, task, s.db)
	s.crowd(t, ctx, 3, "GET /report", "SELECT pg_sleep(30)")
	require.Eventually(t, func() bool { return s.connector.Stats().Pool.Lent == 4 }, 5*time.Second, 10*time.Millisecond)
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
	m.tmux(t, "-f", "/dev/null", "new-session", "-d", "-s", "top", "-x", "80", "-y", "24", fmt.Sprintf("%s top %s", program, s.url()))
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", m.socket, "kill-server").Run() })

	require.EventuallyWithT(t, func(c *assert.CollectT) {
		lines := m.screen(t)
		if !assert.Len(c, lines, 24) {
			return
		}
		assert.Contains(c, lines[1], "30 statements wait. 4 of 4 connections are in use")
		assert.Contains(c, lines[2], "in use 4 of 4   idle 0   waiting 30")
		assert.Contains(c, lines[3], "[###!]")
		assert.Regexp(c, `^POST /orders +\S+ +\S+ transaction +`+strconv.Itoa(pid)+` `, lines[6], "the server's number, in the first row")
		assert.Contains(c, lines[6], "stage_test.go:")
		assert.Contains(c, lines[23], "more lines")
		for _, line := range lines {
			assert.LessOrEqual(c, utf8.RuneCountInString(line), 80)
		}
	}, 10*time.Second, 100*time.Millisecond)
	if pictures := os.Getenv("POOLDRIVER_PICTURES"); pictures != "" {
		require.NoError(t, os.WriteFile(filepath.Join(pictures, "top.txt"), []byte(strings.Join(m.screen(t), "\n")+"\n"), 0o600))
	}
	m.tmux(t, "send-keys", "-t", "top", "C-c")
	require.Eventually(t, func() bool {
		return exec.Command("tmux", "-S", m.socket, "has-session", "-t", "top").Run() != nil
	}, 5*time.Second, 50*time.Millisecond, "it ends when it is told to")
}
