package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/inspect"
)

// start builds the command and runs it. It returns the service's address and a function
// that ends it and returns the spans.
func start(t *testing.T) (base string, end func() []byte) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "observed")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	command := exec.Command(binary, "-listen", "127.0.0.1:0", "-traces", "-")
	var spans, log bytes.Buffer
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	command.Stdout, command.Stderr = &spans, writer
	require.NoError(t, command.Start())
	require.NoError(t, writer.Close())
	ended := false
	end = func() []byte {
		ended = true
		require.NoError(t, command.Process.Signal(syscall.SIGTERM))
		_, _ = log.ReadFrom(reader)
		require.NoError(t, command.Wait(), "%s", &log)
		return spans.Bytes()
	}
	t.Cleanup(func() {
		if !ended {
			_ = command.Process.Kill()
			_ = command.Wait()
		}
		_ = reader.Close()
	})
	line := make([]byte, 200)
	n, err := reader.Read(line)
	require.NoError(t, err)
	base = regexp.MustCompile(`http://\S+`).FindString(string(line[:n]))
	require.NotEmpty(t, base, "%s", line[:n])
	return base, end
}

// ask returns the body of an answer with status.
func ask(t *testing.T, method, url string, status int) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, status, answer.StatusCode, "%s: %s", url, body)
	return string(body)
}

// until waits for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for begun := time.Now(); !holds(); <-again.C {
		require.Less(t, time.Since(begun), 30*time.Second, "never: %s", what)
	}
}

// One run of the command, and each of its addresses.
func TestTheServiceCanBeSeenInto(t *testing.T) {
	base, end := start(t)
	require.Equal(t, "1000000\n", ask(t, "GET", base+"/stock", http.StatusOK))
	ask(t, "POST", base+"/order", http.StatusCreated)
	require.Equal(t, "999999\n", ask(t, "GET", base+"/stock", http.StatusOK))

	ctx, cancel := context.WithCancel(t.Context())
	report := make(chan struct{})
	go func() {
		defer close(report)
		get(ctx, http.MethodGet, base+"/report?for=1m")
	}()
	var holders []pooldriver.Holder
	until(t, "the report holds a connection, and runs no statement", func() bool {
		var s inspect.Snapshot
		require.NoError(t, json.Unmarshal([]byte(ask(t, "GET", base+"/debug/pool?format=json", http.StatusOK)), &s))
		holders = s.Pools[0].Holders
		return len(holders) == 1 && holders[0].Idle > 20*time.Millisecond
	})
	require.Equal(t, "GET /report", holders[0].Label)
	require.NotEmpty(t, holders[0].TakenAt)
	require.Equal(t, "main.(*shop).report", holders[0].TakenAt[0].Func)
	require.Contains(t, ask(t, "GET", base+"/debug/pool", http.StatusOK), "GET /report")

	metrics := ask(t, "GET", base+"/metrics", http.StatusOK)
	require.Contains(t, metrics, `pooldriver_connections{pool="shop",state="used"} 1`)
	require.Regexp(t, `(?m)^pooldriver_longest_idle_hold_seconds\{pool="shop"\} (0\.\d|[1-9])`, metrics)
	require.Contains(t, metrics, `pooldriver_acquire_wait_seconds_bucket{pool="shop",le="0.001"}`)

	profile := ask(t, "GET", base+"/debug/pprof/pooldriver", http.StatusOK)
	require.True(t, strings.HasPrefix(profile, "\x1f\x8b"), "a profile is compressed by gzip")
	require.Contains(t, ask(t, "GET", base+"/debug/pprof/", http.StatusOK), "goroutine")
	cancel()
	<-report

	// Spans of otelsql: the statements of the routes, with their texts.
	spans := string(end())
	require.Contains(t, spans, `"Name":"sql.conn.query"`)
	require.Contains(t, spans, "UPDATE observed_stock")
}

func TestCustomersUseTheService(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reader, writer := io.Pipe()
	done := make(chan error)
	go func() {
		done <- run(ctx, io.Discard, writer, "", "127.0.0.1:0", 8)
		_ = writer.Close()
	}()
	line := make([]byte, 200)
	n, err := reader.Read(line)
	require.NoError(t, err)
	base := regexp.MustCompile(`http://\S+`).FindString(string(line[:n]))
	some := regexp.MustCompile(`pooldriver_waiters\{pool="shop"\} [1-9]`)
	until(t, "of eight customers on four connections some wait", func() bool {
		return some.MatchString(ask(t, "GET", base+"/metrics", http.StatusOK))
	})
	cancel()
	require.NoError(t, <-done)
}
