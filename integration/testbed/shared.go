package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// shared are the servers that all tests of a process use, started when first
// asked for.
var shared struct {
	mu      sync.Mutex
	servers map[Engine]*sharedServer
}

type sharedServer struct {
	once   sync.Once
	server *Server
	err    error
}

// Shared returns the process's server of that engine. Tests that stop it, or
// need a property it has not, use [Start].
func Shared(t testing.TB, engine Engine) *Server {
	t.Helper()
	shared.mu.Lock()
	if shared.servers == nil {
		shared.servers = map[Engine]*sharedServer{}
	}
	s := shared.servers[engine]
	if s == nil {
		s = &sharedServer{}
		shared.servers[engine] = s
	}
	shared.mu.Unlock()
	s.once.Do(func() { s.server, s.err = New(context.Background(), engine) })
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.server
}

// Engines are all kinds of servers.
func Engines() []Engine { return []Engine{Postgres, MySQL} }

// Each runs the test once per engine, side by side, on the shared server, with an
// account of its own. It returns before they have run, as parallel subtests do.
func Each(t *testing.T, test func(t *testing.T, account Account)) {
	t.Helper()
	for _, engine := range Engines() {
		t.Run(engine.String(), func(t *testing.T) {
			t.Parallel()
			test(t, Shared(t, engine).NewAccount(t))
		})
	}
}

// EachInTurn is Each, one engine after the other: for tests that measure.
func EachInTurn(t *testing.T, test func(t *testing.T, account Account)) {
	t.Helper()
	for _, engine := range Engines() {
		t.Run(engine.String(), func(t *testing.T) {
			test(t, Shared(t, engine).NewAccount(t))
		})
	}
}

// Run is a TestMain's whole body but os.Exit: it runs the tests, ends the shared
// servers and fails the run when goroutines are left over.
//
// Tests on servers wait most of the time: more run at once than there are processors,
// by default 5 (go test -parallel; 4 with the race detector). Tests that measure do not call t.Parallel, and so
// run before, one at a time. What is expected is no leak.
func Run(m *testing.M, expected ...goleak.Option) int { return RunAtOnce(m, 5, expected...) }

// RunAtOnce is Run with n parallel tests at once.
func RunAtOnce(m *testing.M, n int, expected ...goleak.Option) int {
	randomtest.AtOnce(n)
	_ = mysql.SetLogger(silentLogger{}) // Tests provoke what it would report.
	code := m.Run()
	if err := terminateShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	if code == 0 {
		if err := leaked(expected); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// closing is longer than a pool works on the end of a connection after its Close, which does
// not wait for all of it: five seconds, in which a server may have to be asked for a KILL.
const closing = 8 * time.Second

// leaked is about the goroutines that are left over after closing.
func leaked(expected []goleak.Option) (err error) {
	expected = append(expected,
		// The Docker client keeps idle HTTP connections for the life of the process.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		// gorm's cache of prepared statements has a goroutine that nothing ends.
		goleak.IgnoreTopFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"),
	)
	for begun := time.Now(); time.Since(begun) < closing; {
		err = goleak.Find(expected...)
		if err == nil {
			return nil
		}
	}
	return err
}

func terminateShared() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	var errs []error
	for _, s := range shared.servers {
		if s.server != nil {
			errs = append(errs, s.server.Terminate())
		}
	}
	return errors.Join(errs...)
}
