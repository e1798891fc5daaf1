package promtest

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
	"github.com/pooldriver/pooldriver/prompooldriver"
)

// service is a program with a pool that has something to do: four goroutines run
// transactions over two connections.
func service(t *testing.T) (*httptest.Server, *prometheus.Registry) {
	t.Helper()
	c := pooldriver.Wrap(stubdialect.Connector(stubdialect.New(dialects.Traits{})), func(c *pooldriver.Config) { c.MaxConns = 2 })
	db := sql.OpenDB(c)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(prompooldriver.NewCollector(c, "shop"))
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	failures := make(chan error, 4)
	for range 4 {
		running.Go(func() {
			for ctx.Err() == nil {
				if err := transaction(ctx, db); err != nil && ctx.Err() == nil {
					failures <- err
					return
				}
			}
		})
	}
	t.Cleanup(func() {
		stop()
		running.Wait()
		server.Close()
		require.NoError(t, db.Close())
		require.Empty(t, failures)
	})
	return server, registry
}

// transaction holds a connection for 5 ms, so that others wait.
func transaction(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT ?", 1).Scan(&n); err != nil {
		return err
	}
	select {
	case <-time.After(5 * time.Millisecond):
	case <-ctx.Done():
	}
	return nil
}

// program is the path of a program of Prometheus. Without it the test is skipped.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("NOT RUN: it needs the program %s, which is in Debian's package prometheus", name)
	}
	return path
}

// server is a Prometheus.
type server struct{ address string }

// scrape starts a Prometheus that scrapes target, and ends it with the test.
func scrape(t *testing.T, target *httptest.Server) server {
	t.Helper()
	binary := program(t, "prometheus")
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(config, []byte(fmt.Sprintf(`
global:
  scrape_interval: 200ms
scrape_configs:
  - job_name: test
    metrics_path: /
    static_configs:
      - targets: [%q]
`, target.Listener.Addr())), 0o600))
	s := server{freeAddress(t)}
	var log bytes.Buffer
	command := exec.Command(binary, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+s.address, "--log.level=warn")
	command.Stdout, command.Stderr = &log, &log
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
		if t.Failed() {
			t.Logf("prometheus: %s", &log)
		}
	})
	require.Eventually(t, func() bool {
		answer, err := http.Get("http://" + s.address + "/-/ready")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}, 30*time.Second, 100*time.Millisecond, "prometheus is not ready")
	return s
}

// freeAddress is an address of this machine on which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// sample is one series of an answer.
type sample struct {
	Metric map[string]string
	Value  [2]any
}

func (s sample) number() float64 {
	text, _ := s.Value[1].(string)
	n, _ := strconv.ParseFloat(text, 64)
	return n
}

// query asks for an expression.
func (s server) query(expression string) ([]sample, error) {
	answer, err := http.Get("http://" + s.address + "/api/v1/query?query=" + url.QueryEscape(expression))
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var a struct {
		Status, Error string
		Data          struct{ Result []sample }
	}
	if err := json.NewDecoder(answer.Body).Decode(&a); err != nil {
		return nil, err
	}
	if a.Status != "success" {
		return nil, fmt.Errorf("%s: %s", expression, a.Error)
	}
	return a.Data.Result, nil
}

// await asks until the answer has a value above 0.
func (s server) await(t *testing.T, expression string) (value float64) {
	t.Helper()
	require.Eventually(t, func() bool {
		samples, err := s.query(expression)
		if err != nil || len(samples) == 0 {
			return false
		}
		value = samples[0].number()
		return value > 0
	}, 30*time.Second, 200*time.Millisecond, expression)
	return value
}

func TestAPrometheusScrapesAndAnswers(t *testing.T) {
	target, _ := service(t)
	s := scrape(t, target)
	// Four goroutines hold one of two connections for 5 ms each, in turn: who waits,
	// waits for about 5 ms.
	p99 := s.await(t, `histogram_quantile(0.99, sum by (pool, le) (rate(pooldriver_acquire_wait_seconds_bucket{pool="shop"}[5s])))`)
	require.Greater(t, p99, 0.001)
	require.Less(t, p99, 5.0)
	require.EqualValues(t, 2, s.await(t, `pooldriver_connections_max{pool="shop", job="test"}`))
	require.EqualValues(t, 1, s.await(t, `up{job="test"}`))
}
