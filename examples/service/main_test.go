package main

import (
	"bufio"
	"context"
	"database/sql"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// asService is the environment variable with which this test is the service itself.
const asService = "POOLDRIVER_TEST_AS_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(asService) != "" {
		main()
		return
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // One test finds no database.
	goleak.VerifyTestMain(m)
}

// start runs the service on a free port.
func start(t *testing.T, dsn string) (service *exec.Cmd, url string, printed *strings.Builder) {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	service = exec.Command(program, "-listen", "127.0.0.1:0", "-notice", "1500ms", dsn)
	service.Env = append(os.Environ(), asService+"=1")
	printed = new(strings.Builder)
	service.Stderr = printed
	stdout, err := service.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, service.Start())
	t.Cleanup(func() { _ = service.Process.Kill() }) // after a failure
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	return service, "http://" + strings.TrimSpace(strings.TrimPrefix(line, "listening on ")), printed
}

// clients send requests for as long as the service is ready, as a load balancer does.
type clients struct {
	url      string
	http     *http.Client
	away     atomic.Bool // the service is not ready
	taken    atomic.Int64
	requests atomic.Int64
}

func (c *clients) send(t *testing.T, method, path string) (status int) {
	request, err := http.NewRequestWithContext(context.Background(), method, c.url+path, nil)
	if err != nil {
		t.Error(err)
		return 0
	}
	response, err := c.http.Do(request)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// order sends an order whose payment takes so long.
func (c *clients) order(t *testing.T, payment time.Duration) {
	c.requests.Add(1)
	if status := c.send(t, http.MethodPost, "/orders?payment="+payment.String()); status == http.StatusCreated {
		c.taken.Add(1)
	} else {
		t.Errorf("POST /orders: %d", status)
	}
}

// use sends requests until the service is not ready.
func (c *clients) use(t *testing.T) {
	for !c.away.Load() {
		c.order(t, 0)
		c.requests.Add(1)
		if status := c.send(t, http.MethodGet, "/orders"); status != http.StatusOK {
			t.Errorf("GET /orders: %d", status)
		}
	}
}

// probe asks whether the service is ready, until it is not.
func (c *clients) probe(t *testing.T) {
	for c.send(t, http.MethodGet, "/readyz") == http.StatusOK {
		time.Sleep(10 * time.Millisecond)
	}
	c.away.Store(true)
}

func TestTheServiceEndsUnderLoadWithoutAFailedRequest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "orders.db")
	service, url, printed := start(t, "sqlite:"+file+"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	c := &clients{url: url, http: &http.Client{Transport: transport}}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { c.use(t) })
	}
	all.Go(func() { c.probe(t) })
	for c.taken.Load() < 50 && !t.Failed() {
		time.Sleep(time.Millisecond)
	}
	require.False(t, c.away.Load(), "it was ready")
	require.NoError(t, service.Process.Signal(syscall.SIGTERM))
	for range 8 { // they begin their transactions when no request is accepted any more
		all.Go(func() { c.order(t, 2*time.Second) })
	}
	all.Wait()
	transport.CloseIdleConnections()
	require.NoError(t, service.Wait(), printed)
	require.Empty(t, printed.String())

	db, err := sql.Open("sqlite", file)
	require.NoError(t, err)
	defer db.Close()
	var stored int64
	require.NoError(t, db.QueryRow("SELECT count(*) FROM service_orders").Scan(&stored))
	require.Equal(t, c.taken.Load(), stored, "orders that were acknowledged")
	t.Logf("%d requests, %d orders", c.requests.Load(), stored)
}

func TestTheServiceReportsADatabaseThatIsNotThere(t *testing.T) {
	err := run(t.Context(), io.Discard, settings{dsn: "postgres://app@127.0.0.1:1/shop", listen: "127.0.0.1:0"})
	require.ErrorContains(t, err, "pooldriver: connecting to")
}
