package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
)

// Errors that no sentinel tells, and bounds of the implementation.
const (
	saysLent      = "pooldriver: this *sql.Conn is lent to a function of Raw until the function returns"
	saysEndInRaw  = "pooldriver: Commit was called while a function of Raw has the connection of the transaction"
	saysPanicked  = "pooldriver: the driver has panicked, so the connection and its session are gone"
	saysTxOptions = "pooldriver: a transaction inside another transaction of its task is a savepoint, and has the isolation level"

	maxRenewals = 10 // of a stale statement
	rawPatience = 500 * time.Millisecond

	patience = 30 * time.Second // with what comes at once on a machine that does nothing else
)

var everything = fakedb.Variant{Name: "everything", Features: fakedb.All}

// openFake wraps a fake database; at the end of the test nothing is open on
// the server and the driver was used as drivers may be used.
func openFake(t *testing.T, v fakedb.Variant, options ...pooldriver.Option) (*fakedb.Server, *sql.DB, *pooldriver.Connector) {
	t.Helper()
	server := fakedb.NewServer()
	connector := pooldriver.Wrap(server.Connector(v), append([]pooldriver.Option{quiet}, options...)...)
	db := sql.OpenDB(connector)
	t.Cleanup(func() {
		server.Heal()
		require.NoError(t, db.Close())
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, server.Await(ctx, func(s fakedb.State) bool { return s.Open() == 0 }), "connections left open")
		require.Empty(t, server.Violations())
	})
	return server, db, connector
}

func maxConns(n int) pooldriver.Option { return func(c *pooldriver.Config) { c.MaxConns = n } }

// atRest waits until no connection is lent.
func atRest(t *testing.T, c *pooldriver.Connector) {
	t.Helper()
	require.Eventually(t, func() bool { return c.Stats().Pool.Active == 0 }, patience, time.Millisecond)
}

// openStub opens a database of the stub dialect with one connection.
func openStub(t *testing.T, traits dialects.Traits, options ...pooldriver.Option) (*stubdialect.Stub, *sql.DB, *pooldriver.Connector) {
	t.Helper()
	s := stubdialect.New(traits)
	db, c := openDatabase(t, s, s.Server, options...)
	return s, db, c
}

// openDatabase opens a stub, or what embeds one, as openStub does.
func openDatabase(t *testing.T, s stubdialect.Database, server *fakedb.Server, options ...pooldriver.Option) (*sql.DB, *pooldriver.Connector) {
	t.Helper()
	c := pooldriver.Wrap(stubdialect.Connector(s), append([]pooldriver.Option{quiet, maxConns(1)}, options...)...)
	db := sql.OpenDB(c)
	t.Cleanup(func() {
		require.NoError(t, db.Close())
		require.Empty(t, server.Violations())
	})
	_, err := db.Exec("CREATE TABLE t (a INT)")
	require.NoError(t, err)
	return db, c
}

// openTasks opens a fake database with a table t of one column and the given
// number of connections.
func openTasks(t *testing.T, most int, options ...pooldriver.Option) (*fakedb.Server, *sql.DB, *pooldriver.Connector) {
	t.Helper()
	s, db, c := openStub(t, dialects.Traits{}, append([]pooldriver.Option{func(c *pooldriver.Config) { c.MaxConns = most }}, options...)...)
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

func show(t *testing.T, ctx context.Context, db *sql.DB, name string) any {
	t.Helper()
	var v any
	require.NoError(t, db.QueryRowContext(ctx, "SHOW "+name).Scan(&v))
	return v
}

type anyKey struct{}

func lent(c *pooldriver.Connector) int { return c.Stats().Pool.Lent }

// quiet keeps what the pool logs out of a passing run's output.
func quiet(c *pooldriver.Config) { c.Logger = slog.New(slog.DiscardHandler) }

func logTo(w io.Writer) pooldriver.Option {
	return func(c *pooldriver.Config) { c.Logger = slog.New(slog.NewTextHandler(w, nil)) }
}

func deadlockAfter(d time.Duration) pooldriver.Option {
	return func(c *pooldriver.Config) { c.DeadlockAfter = d }
}

func lazily(c *pooldriver.Config) { c.LazyBegin = true }

func ambient(m pooldriver.AmbientMode) pooldriver.Option {
	return func(c *pooldriver.Config) { c.Ambient = m }
}

func inTransaction(ctx context.Context, db *sql.DB, fn func(context.Context) error) error {
	return pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error { return fn(ctx) })
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

// rawly executes a statement on the driver's own connection.
func rawly(ctx context.Context, dc driver.Conn, statement string) error {
	_, err := dc.(driver.ExecerContext).ExecContext(ctx, statement, nil)
	return err
}

// inRaw calls Raw in a goroutine whose function waits. It returns when the
// function runs; done lets it go on and returns what Raw returned.
func inRaw(ctx context.Context, conn *sql.Conn, fn func(driver.Conn) error) (done func() error) {
	inside, leave, result := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		result <- pooldriver.Raw(ctx, conn, func(dc driver.Conn) error {
			close(inside)
			<-leave
			return fn(dc)
		})
	}()
	<-inside
	return func() error { close(leave); return <-result }
}

func nothing(driver.Conn) error { return nil }

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
func waiting(t *testing.T, c *pooldriver.Connector, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return c.Stats().Pool.Waiting == n }, patience, time.Millisecond)
}

type logged struct {
	slog.Handler
	mu    sync.Mutex // protects following fields
	lines []string
}

func (l *logged) Enabled(context.Context, slog.Level) bool { return true }
func (l *logged) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, r.Message)
	return nil
}

func (l *logged) count(containing string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, containing) {
			n++
		}
	}
	return n
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}
func (l *lockedBuffer) lines(about string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), about)
}

func (l *lockedBuffer) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// leaveOpen has a *sql.Conn end with a transaction open that it has begun by hand.
func leaveOpen(t *testing.T, db *sql.DB) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	mustExec(t, t.Context(), conn, "BEGIN")
	require.NoError(t, conn.Close())
}
