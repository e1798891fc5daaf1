// Package browser looks at the pages of package inspect as people do: in a real browser,
// on a real PostgreSQL.
//
// POOLDRIVER_PICTURES=DIR has the pictures of docs/observability.md made anew in DIR.
package browser

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"image"
	"image/draw"
	"image/png"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	"github.com/pooldriver/pooldriver/inspect"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.Run(m)) }

// stage is a service with a pool, and its page.
type stage struct {
	account   testbed.Account
	connector *pooldriver.Connector
	db        *sql.DB
	page      *httptest.Server
	inspector *inspect.Inspector
}

// patient lets statements wait for as long as a browser needs on a busy machine.
const patient = "pool_acquire_timeout=5m"

func newStage(t *testing.T, conns int, parameters ...string) *stage {
	s := &stage{account: testbed.Shared(t, testbed.Postgres).NewAccount(t)}
	s.connector = pooldriver.New(s.account.URL(append(parameters, fmt.Sprintf("pool_max_conns=%d", conns))...))
	s.db = sql.OpenDB(s.connector)
	t.Cleanup(func() { _ = s.db.Close() })
	s.inspector = inspect.Handler(s.connector)
	s.inspector.AllowFlush = true
	mux := http.NewServeMux()
	mux.Handle("/debug/pool", s.inspector)
	mux.Handle("/debug/pprof/pooldriver", inspect.Profile(s.connector))
	s.page = httptest.NewServer(mux)
	t.Cleanup(s.page.Close)
	return s
}

func (s *stage) url() string { return s.page.URL + "/debug/pool" }

// forgetTransaction is the mistake that people look for.
//
//go:noinline
func forgetTransaction(t *testing.T, ctx context.Context, db *sql.DB) (pid int) {
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, tx.QueryRowContext(ctx, "SELECT pg_backend_pid() WHERE 'seeded literal' <> $1", "seeded argument").Scan(&pid))
	return pid
}

// crowd has n goroutines run a statement each for as long as ctx lasts.
func (s *stage) crowd(t *testing.T, ctx context.Context, n int, label, statement string) {
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	for range n {
		running.Go(func() { _, _ = s.db.ExecContext(pooldriver.Label(ctx, label), statement) })
	}
}

// tab is a page of a browser, which notes what it asks for and complains of.
type tab struct {
	ctx context.Context

	mu         sync.Mutex // protects following fields
	hosts      map[string]bool
	complaints []string
}

// openBrowser starts a browser that ends with the test.
func openBrowser(t *testing.T) *tab {
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			program = found
			break
		}
	}
	require.NotEmpty(t, program, "these tests need a browser (Debian: chromium)")
	allocator, stop := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true))...)
	ctx, closeTab := chromedp.NewContext(allocator)
	b := &tab{hosts: map[string]bool{}}
	// The first call starts the browser, which lives as long as that call's context.
	err := chromedp.Listen(ctx, b.note)
	bounded, cancel := context.WithTimeout(ctx, 5*time.Minute)
	b.ctx = bounded
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, chromedp.Cancel(ctx))
		closeTab()
		stop()
	})
	require.NoError(t, err)
	call(t, b, network.Enable, network.EnableParams{})
	call(t, b, log.Enable, cdp.Empty{})
	return b
}

func (b *tab) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err == nil {
			b.hosts[u.Scheme+"://"+u.Host] = true
		}
	case *log.EventEntryAdded:
		b.complaints = append(b.complaints, e.Entry.Text)
	}
}

func (b *tab) do(t *testing.T, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	require.NoError(t, chromedp.Do(b.ctx, steps...))
}

// ask evaluates an expression in the page.
func ask[T any](t *testing.T, b *tab, expression string) T {
	t.Helper()
	answer, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	require.NoError(t, err)
	return answer
}

// call sends a command of the browser's protocol.
func call[P, R any](t *testing.T, b *tab, command cdp.Command[P, R], params P) {
	t.Helper()
	_, err := chromedp.Call(b.ctx, command, params)
	require.NoError(t, err)
}

// requireClean: the page has asked its own server alone, and the browser has nothing to
// complain of, its content security policy included.
func (b *tab) requireClean(t *testing.T, server string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Equal(t, map[string]bool{server: true}, b.hosts)
	for _, text := range b.complaints {
		require.Contains(t, text, "favicon.ico", "the only thing that there is none of")
	}
}

// picture keeps what the page looks like, where that is wanted.
func (b *tab) picture(t *testing.T, name string, width, height int64, dark bool) {
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	call(t, b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
	call(t, b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	shot, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	require.NoError(t, err)
	require.Greater(t, len(shot), 5_000, "something is drawn")
	dir := os.Getenv("POOLDRIVER_PICTURES")
	if dir == "" {
		return
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, name+".png"), shot, 0o600))
	if rest, ok := strings.CutPrefix(name, "inspector"); ok && width > 1000 {
		top(t, shot, filepath.Join(dir, "inspector-top"+rest+".png"))
	}
}

// top keeps the sentence and what is right below it: the README shows that, also on a telephone.
func top(t *testing.T, shot []byte, file string) {
	t.Helper()
	whole, err := png.Decode(bytes.NewReader(shot))
	require.NoError(t, err)
	cut := image.NewRGBA(image.Rect(0, 0, 1000, 400))
	draw.Draw(cut, cut.Bounds(), whole, image.Point{}, draw.Src)
	var text bytes.Buffer
	require.NoError(t, png.Encode(&text, cut))
	require.NoError(t, os.WriteFile(file, text.Bytes(), 0o600))
}
