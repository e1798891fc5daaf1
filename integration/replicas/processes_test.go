package replicas

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/httptask"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// What a process of the service gets in its environment. With a serviceURL the test binary is such a process.
const (
	serviceURL    = "REPLICAS_SERVICE_URL"
	serviceInsert = "REPLICAS_SERVICE_INSERT"
	serviceMax    = "REPLICAS_SERVICE_MAX"
)

// serve is a service on a database: POST sets a worker's counter, GET reads it on a replica. It prints its address, and
// ends when its standard input does.
func serve(url string) int {
	s := &stage{insert: os.Getenv(serviceInsert), max: os.Getenv(serviceMax)}
	db := sql.OpenDB(pooldriver.New(url))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = listener.Close()
	}()
	_, _ = fmt.Fprintln(os.Stdout, listener.Addr())
	_ = http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // it serves this test
		if err := s.handle(w, r, db); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	if err := db.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (s *stage) handle(w http.ResponseWriter, r *http.Request, db *sql.DB) error {
	ctx := httptask.Reads(r)
	worker, err := strconv.Atoi(r.FormValue("worker"))
	if err != nil {
		return err
	}
	if r.Method == http.MethodGet {
		n, onReplica, err := s.read(pooldriver.Replica(ctx), db, worker)
		if err == nil {
			_, err = fmt.Fprintln(w, n, onReplica)
		}
		return err
	}
	n, err := strconv.Atoi(r.FormValue("n"))
	if err == nil {
		err = s.write(ctx, db, worker, n)
	}
	httptask.SetReads(w, ctx)
	return err
}

// startService starts a process of the service, and returns its address.
func startService(t *testing.T, s *stage) string {
	t.Helper()
	service := exec.Command(os.Args[0])
	url := s.account.URL("pool_replicas="+s.proxies[0].Addr()+","+s.proxies[1].Addr(), "pool_max_conns=20", "pool_replica_max_conns=20")
	service.Env = append(os.Environ(), serviceURL+"="+url, serviceInsert+"="+s.insert, serviceMax+"="+s.max)
	service.Stderr = t.Output()
	stdin, err := service.StdinPipe()
	require.NoError(t, err)
	stdout, err := service.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, service.Start())
	t.Cleanup(func() {
		require.NoError(t, stdin.Close())
		require.NoError(t, service.Wait())
	})
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	t.Logf("process %d serves", service.Process.Pid)
	return strings.TrimSpace(addr)
}

// call makes a request, and returns the answer's text.
func call(ctx context.Context, client *http.Client, method, addr, query string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+addr+"/?"+query, nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return string(text), err
}

// testTwoProcesses has clients write through one process of a service, and read through another one. Those without cookies
// show that the test can fail.
func testTwoProcesses(t *testing.T, s *stage) {
	seed := randomtest.Seed(t)
	length := time.Duration(randomtest.Rounds(2000, 10_000)) * time.Millisecond
	for name, jarOf := range map[string]func() http.CookieJar{
		"cookies": func() http.CookieJar {
			jar, _ := cookiejar.New(nil) // there is no error
			return jar
		},
		"neither": func() http.CookieJar { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			s.empty(t)
			writes, reads := startService(t, s), startService(t, s)
			transport := &http.Transport{MaxIdleConnsPerHost: workers}
			defer transport.CloseIdleConnections()
			calm := s.disturb(t, seed, false)
			defer calm()
			var answers, onReplicas, stale atomic.Int64
			var all sync.WaitGroup
			end := time.Now().Add(length)
			for worker := range workers {
				all.Go(func() {
					client := &http.Client{Jar: jarOf(), Transport: transport}
					of := "worker=" + strconv.Itoa(worker)
					for n := 1; time.Now().Before(end); n++ {
						if _, err := call(t.Context(), client, http.MethodPost, writes, of+"&n="+strconv.Itoa(n)); err != nil {
							t.Error(err)
							return
						}
						text, err := call(t.Context(), client, http.MethodGet, reads, of)
						if err != nil {
							t.Error(err)
							return
						}
						var got int
						var onReplica bool
						if _, err := fmt.Sscan(text, &got, &onReplica); err != nil {
							t.Error(err)
							return
						}
						answers.Add(1)
						if onReplica {
							onReplicas.Add(1)
						}
						if got != n {
							stale.Add(1)
						}
					}
				})
			}
			all.Wait()
			calm()
			t.Logf("%d reads, %d of them on replicas, %d stale", answers.Load(), onReplicas.Load(), stale.Load())
			requireOnlyWithoutFloor(t, name, onReplicas.Load(), stale.Load())
		})
	}
}
