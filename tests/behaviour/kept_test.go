package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// large is what a program would not like to be kept. As an argument it is 0.
type large struct{ bytes [1 << 10]byte }

func (l *large) Value() (driver.Value, error) { return int64(l.bytes[0]), nil }

// panicking is an argument whose conversion panics.
type panicking struct{ *large }

func (panicking) Value() (driver.Value, error) { panic("boom") }

// TestIdleConnectionsKeepNothingOfTheProgram: neither the context of their last use, nor its arguments.
func TestIdleConnectionsKeepNothingOfTheProgram(t *testing.T) {
	const insert = "INSERT INTO t VALUES (?)"
	for name, use := range map[string]func(t *testing.T, ctx context.Context, server *fakedb.Server, db *sql.DB, arg *large){
		"an exec": func(t *testing.T, ctx context.Context, _ *fakedb.Server, db *sql.DB, arg *large) {
			mustExec(t, ctx, db, insert, arg)
		},
		"an exec that fails": func(t *testing.T, ctx context.Context, server *fakedb.Server, db *sql.DB, arg *large) {
			server.Inject(fakedb.Fault{Text: "INSERT", Err: errors.New("no")})
			_, err := db.ExecContext(ctx, insert, arg)
			require.Error(t, err)
		},
		"a panic of the driver": func(t *testing.T, ctx context.Context, server *fakedb.Server, db *sql.DB, arg *large) {
			server.Inject(fakedb.Fault{Text: "INSERT", Panic: "boom"})
			require.Panics(t, func() { _, _ = db.ExecContext(ctx, insert, arg) })
		},
		"a panic of a Valuer": func(t *testing.T, ctx context.Context, _ *fakedb.Server, db *sql.DB, arg *large) {
			require.Panics(t, func() { _, _ = db.ExecContext(ctx, insert, panicking{arg}) })
		},
		"a query": func(t *testing.T, ctx context.Context, _ *fakedb.Server, db *sql.DB, arg *large) {
			require.NoError(t, query(db.QueryContext(ctx, "SELECT ?", arg)))
		},
		"a transaction": func(t *testing.T, ctx context.Context, _ *fakedb.Server, db *sql.DB, arg *large) {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			mustExec(t, ctx, tx, insert, arg)
			require.NoError(t, tx.Commit())
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, db, c := openStub(t, dialects.Traits{})
			var request, argument weak.Pointer[large]
			var using sync.WaitGroup
			using.Go(func() { // on a stack that ends
				r, a := new(large), new(large)
				request, argument = weak.Make(r), weak.Make(a)
				use(t, context.WithValue(context.Background(), anyKey{}, r), s.Server, db, a)
			})
			using.Wait()
			atRest(t, c)
			// The goroutine above, and those that clean, may not have left their stacks yet.
			gone := func() bool { runtime.GC(); return request.Value() == nil && argument.Value() == nil }
			for deadline := time.Now().Add(patience); !gone() && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			require.True(t, request.Value() == nil, "the context is kept")
			require.True(t, argument.Value() == nil, "the argument is kept")
			runtime.KeepAlive(db)
		})
	}
}
