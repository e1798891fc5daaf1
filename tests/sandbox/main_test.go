package sandbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	_ "github.com/pooldriver/pooldriver/dialects/sqlite"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

func TestMain(m *testing.M) {
	randomtest.AtOnce(8)
	goleak.VerifyTestMain(m)
}

func quietly(c *pooldriver.Config) { c.Logger = slog.New(slog.DiscardHandler) }

// onSQLite returns a connector to a database in a file, with a table.
func onSQLite(t *testing.T, options ...pooldriver.Option) *pooldriver.Connector {
	t.Helper()
	_, c := global(t, options...)
	return c
}

// global is onSQLite, with a handle as a program has it.
func global(t *testing.T, options ...pooldriver.Option) (*sql.DB, *pooldriver.Connector) {
	t.Helper()
	c := pooldriver.New("sqlite:"+filepath.Join(t.TempDir(), "test.db"), append([]pooldriver.Option{quietly}, options...)...)
	db := sql.OpenDB(c)
	mustExec(t, db, "CREATE TABLE ledger (id integer PRIMARY KEY, note text)")
	t.Cleanup(func() {
		require.Zero(t, count(t, db), "nothing of the tests is left")
		require.NoError(t, db.Close())
	})
	return db, c
}

// recorder is a test that only records what is said of it. Its cleanups run when end is called.
type recorder struct {
	testing.TB
	name string
	// isParallel has the name of the field of *testing.T.
	isParallel bool
	ctx        context.Context // t.Context(); nil: that of TB
	cancel     context.CancelFunc

	mu       sync.Mutex // protects following fields
	errors   []string
	logs     []string
	failed   bool
	over     bool
	late     []string // what was said after the end
	cleanups []func()
}

func record(t *testing.T) *recorder {
	r := &recorder{TB: t, name: t.Name()}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

func (r *recorder) say(to *[]string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := strings.TrimSuffix(fmt.Sprintln(args...), "\n")
	if r.over {
		r.late = append(r.late, text)
	}
	*to = append(*to, text)
}

func (r *recorder) Name() string { return r.name }
func (r *recorder) Helper()      {}
func (r *recorder) Log(args ...any) {
	r.say(&r.logs, args...)
}
func (r *recorder) Error(args ...any) {
	r.say(&r.errors, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}
func (r *recorder) Errorf(format string, args ...any) { r.Error(fmt.Sprintf(format, args...)) }
func (r *recorder) Logf(format string, args ...any)   { r.Log(fmt.Sprintf(format, args...)) }

// fatal is what Fatal panics with, so that fn of fatally ends.
type fatal struct{ text string }

func (r *recorder) Fatal(args ...any) { r.Error(args...); panic(fatal{fmt.Sprint(args...)}) }
func (r *recorder) Fatalf(format string, args ...any) {
	r.Fatal(fmt.Sprintf(format, args...))
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Context() context.Context {
	if r.ctx == nil {
		return r.TB.Context()
	}
	return r.ctx
}

func (r *recorder) Cleanup(fn func()) { r.cleanups = append(r.cleanups, fn) }

// end ends the context and runs the cleanups, as package testing does. It returns the errors.
func (r *recorder) end() []string {
	if r.cancel != nil {
		r.cancel()
	}
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	return r.errors
}

// fatally returns the text of the Fatal that ends fn.
func fatally(t *testing.T, fn func()) (text string) {
	t.Helper()
	defer func() {
		f, ok := recover().(fatal)
		require.True(t, ok, "it is fatal")
		text = f.text
	}()
	fn()
	return ""
}
