package pooldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
)

// These are for the tests that need private names. tests/behaviour has its own.

var quiet = func(c *Config) { c.Logger = slog.New(slog.DiscardHandler) }

// openStub opens a database of the stub dialect with one connection.
func openStub(t *testing.T, traits dialects.Traits, options ...Option) (*stubdialect.Stub, *sql.DB, *Connector) {
	t.Helper()
	s := stubdialect.New(traits)
	c := Wrap(stubdialect.Connector(s), append([]Option{quiet, func(c *Config) { c.MaxConns = 1 }}, options...)...)
	db := sql.OpenDB(c)
	t.Cleanup(func() {
		require.NoError(t, db.Close())
		require.Empty(t, s.Server.Violations())
	})
	_, err := db.Exec("CREATE TABLE t (a INT)")
	require.NoError(t, err)
	return s, db, c
}

// openTasks opens a fake database with a table t of one column and the given
// number of connections.
func openTasks(t *testing.T, most int, options ...Option) (*fakedb.Server, *sql.DB, *Connector) {
	t.Helper()
	s, db, c := openStub(t, dialects.Traits{}, append([]Option{func(c *Config) { c.MaxConns = most }}, options...)...)
	t.Cleanup(func() { s.Server.Heal() })
	return s.Server, db, c
}

func mustExec(t *testing.T, ctx context.Context, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, query string, args ...any) {
	t.Helper()
	_, err := db.ExecContext(ctx, query, args...)
	require.NoError(t, err)
}

func insertTwo(ctx context.Context, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}) error {
	_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (2)")
	return err
}

func takeConn(t *testing.T, ctx context.Context, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

// atRest waits until nothing is lent: cleaning goes on behind the program.
func atRest(t *testing.T, c *Connector) {
	t.Helper()
	require.Eventually(t, func() bool { return c.Stats().Pool.Active == 0 }, 30*time.Second, time.Millisecond)
}

func lent(c *Connector) int { return c.Stats().Pool.Lent }

// inRaw calls Raw in a goroutine whose function waits. It returns when the
// function runs; done lets it go on and returns what Raw returned.
func inRaw(ctx context.Context, conn *sql.Conn, fn func(driver.Conn) error) (done func() error) {
	inside, leave, result := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		result <- Raw(ctx, conn, func(dc driver.Conn) error {
			close(inside)
			<-leave
			return fn(dc)
		})
	}()
	<-inside
	return func() error { close(leave); return <-result }
}

// soon requires that fn returns. It runs in the test's goroutine, where it may end the
// test; if it hangs, nothing else could.
func soon(t *testing.T, what string, fn func()) {
	t.Helper()
	limit := time.AfterFunc(20*time.Second, func() {
		stacks := make([]byte, 1<<20)
		panic(t.Name() + ": " + what + " did not return\n\n" + string(stacks[:runtime.Stack(stacks, true)]))
	})
	defer limit.Stop()
	fn()
}

// held makes the next call with this text wait; it is running when the gate says
// that it has been entered.
func held(server *fakedb.Server, text string) *fakedb.Gate {
	gate := fakedb.NewGate()
	server.Inject(fakedb.Fault{Text: text, Gate: gate})
	return gate
}
