package httptask_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/httptask"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a SQLite file with an empty table t. When the test is over nothing
// may be lent.
func open(t *testing.T, parameters string) (*sql.DB, *pooldriver.Connector) {
	t.Helper()
	dsn := "sqlite:" + filepath.Join(t.TempDir(), "test.db") + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)" + parameters
	connector := pooldriver.New(dsn, func(c *pooldriver.Config) { c.Logger = slog.New(slog.DiscardHandler) })
	db := sql.OpenDB(connector)
	t.Cleanup(func() {
		require.NoError(t, db.Close())
		require.Zero(t, connector.Stats().Pool.Lent)
	})
	execute(t, t.Context(), db, "create table t (a int)")
	return db, connector
}

func execute(t *testing.T, ctx context.Context, on interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, query string) {
	t.Helper()
	_, err := on.ExecContext(ctx, query)
	require.NoError(t, err)
}

func number(t *testing.T, ctx context.Context, db *sql.DB, query string) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(ctx, query).Scan(&n))
	return n
}

const (
	rowsOfT       = "select count(*) from t"
	ownBaskets    = "select count(*) from sqlite_temp_schema where name = 'basket'"
	makeOwnBasket = "create temporary table basket (item text)"
)

// serve has the middleware serve one request, in this goroutine.
func serve(ctx context.Context, handler http.HandlerFunc, mode ...httptask.Mode) {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	httptask.Middleware(handler, mode...).ServeHTTP(httptest.NewRecorder(), r)
}

// TestStatementsOfAHandlerShareNothing: each *sql.Conn has its session for itself, and
// what a statement on the *sql.DB sets ends with it, as without the middleware.
func TestStatementsOfAHandlerShareNothing(t *testing.T) {
	db, connector := open(t, "")
	serve(t.Context(), func(_ http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		var conns [2]*sql.Conn
		for i := range conns {
			var err error
			conns[i], err = db.Conn(ctx)
			require.NoError(t, err)
			execute(t, ctx, conns[i], makeOwnBasket) // fails if it sees another one's
		}
		execute(t, ctx, conns[0], "begin")
		execute(t, ctx, conns[0], "insert into t values (1)")
		require.Zero(t, number(t, ctx, db, ownBaskets))
		require.Zero(t, number(t, ctx, db, rowsOfT))
		execute(t, ctx, conns[0], "commit")
		require.Equal(t, 1, number(t, ctx, db, rowsOfT))
		for _, conn := range conns {
			execute(t, ctx, conn, "insert into basket values ('soap')")
		}
		execute(t, ctx, db, makeOwnBasket)
		require.Zero(t, number(t, ctx, db, ownBaskets), "it has ended with its statement")
		// The connection of the third basket is cleaned in the background.
		require.Eventually(t, func() bool { return connector.Stats().Pool.Lent == 2 }, 10*time.Second, time.Millisecond)
	})
	require.Zero(t, connector.Stats().Pool.Lent, "the task's end gives them back")
	require.Zero(t, number(t, t.Context(), db, ownBaskets))
}

func TestAForgottenTransactionIsRolledBackWhenTheHandlerEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		leave  func()
		panics any
	}{
		"it returns":         {leave: func() {}},
		"it panics":          {leave: func() { panic("broken") }, panics: "broken"},
		"it aborts":          {leave: func() { panic(http.ErrAbortHandler) }, panics: http.ErrAbortHandler},
		"its goroutine ends": {leave: runtime.Goexit},
	} {
		for begun, begin := range map[string]func(t *testing.T, ctx context.Context, db *sql.DB){
			"BeginTx": func(t *testing.T, ctx context.Context, db *sql.DB) {
				// Not the request's end but the task's has to roll it back.
				tx, err := db.BeginTx(context.WithoutCancel(ctx), nil)
				require.NoError(t, err)
				t.Cleanup(func() { _ = tx.Rollback() }) // else database/sql keeps a goroutine for it
				execute(t, ctx, tx, "insert into t values (1)")
			},
			"BeginTx with the request's context": func(t *testing.T, ctx context.Context, db *sql.DB) {
				tx, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				execute(t, ctx, tx, "insert into t values (1)")
			},
			"by hand": func(t *testing.T, ctx context.Context, db *sql.DB) {
				conn, err := db.Conn(ctx)
				require.NoError(t, err)
				t.Cleanup(func() { _ = conn.Close() })
				execute(t, ctx, conn, "begin")
				execute(t, ctx, conn, "insert into t values (1)")
			},
		} {
			t.Run(name+", "+begun, func(t *testing.T) {
				db, connector := open(t, "")
				var panicked any
				lent := -1
				request := make(chan struct{})
				go func() {
					defer close(request)
					defer func() {
						panicked = recover()
						lent = connector.Stats().Pool.Lent
					}()
					serve(t.Context(), func(_ http.ResponseWriter, r *http.Request) {
						begin(t, r.Context(), db)
						tc.leave()
					})
				}()
				<-request
				require.Equal(t, tc.panics, panicked, "it goes on")
				require.Zero(t, lent, "when the middleware returns the connection is back")
				require.EqualValues(t, 1, connector.Stats().Rollbacks)
				require.Zero(t, number(t, t.Context(), db, rowsOfT))
			})
		}
	}
}

func TestOtherStatementsOfAHandlerJoinItsTransactionOnlyWhereThatWasAskedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		parameters string
		joins      bool
		refused    string
	}{
		"by default": {},
		"auto":       {parameters: "&pool_ambient=auto"},
		"join":       {parameters: "&pool_ambient=join", joins: true},
		"warn":       {parameters: "&pool_ambient=warn", joins: true},
		"strict":     {parameters: "&pool_ambient=strict", refused: "pool_ambient=strict lets no other statement of the task join it"},
	} {
		t.Run(name, func(t *testing.T) {
			db, _ := open(t, tc.parameters)
			serve(t.Context(), func(_ http.ResponseWriter, r *http.Request) {
				tx, err := db.BeginTx(r.Context(), nil)
				require.NoError(t, err)
				defer func() { require.NoError(t, tx.Rollback()) }()
				_, err = db.ExecContext(r.Context(), "insert into t values (1)")
				if tc.refused != "" {
					require.ErrorContains(t, err, tc.refused)
					return
				}
				require.NoError(t, err)
				execute(t, r.Context(), tx, "insert into t values (2)")
				if tc.joins {
					require.Equal(t, 2, number(t, r.Context(), db, rowsOfT))
				} else {
					require.Equal(t, 1, number(t, r.Context(), db, rowsOfT), "the transaction's row is not committed")
				}
			})
			kept := 1
			if tc.joins || tc.refused != "" {
				kept = 0
			}
			require.Equal(t, kept, number(t, t.Context(), db, rowsOfT), "after the rollback")
		})
	}
}

// library only knows a handle, and begins a transaction of its own.
func library(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "insert into t values (1)"); err != nil {
		return err
	}
	return tx.Commit()
}

// readmeExample is docs/tasks.md's example of a task, which is rolled back.
func readmeExample(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "insert into t values (2)")
	err = errors.Join(err, library(ctx, db))
	return errors.Join(err, tx.Rollback())
}

func TestAnExplicitTaskInAHandlerJoins(t *testing.T) {
	withTask := func(ctx context.Context, db *sql.DB) error {
		ctx, end := pooldriver.WithTask(ctx)
		defer end()
		return readmeExample(ctx, db)
	}
	do := func(ctx context.Context, db *sql.DB) error {
		return pooldriver.Do(ctx, func(ctx context.Context) error { return readmeExample(ctx, db) })
	}
	for name, tc := range map[string]struct {
		mode []httptask.Mode
		run  func(ctx context.Context, db *sql.DB) error
		left int
	}{
		"nothing, by default":   {run: readmeExample, left: 2},
		"nothing, in Separate":  {mode: []httptask.Mode{httptask.Separate}, run: readmeExample, left: 2},
		"nothing, in Join":      {mode: []httptask.Mode{httptask.Join}, run: readmeExample},
		"WithTask, by default":  {run: withTask},
		"Do, by default":        {run: do},
		"WithTask, in Separate": {mode: []httptask.Mode{httptask.Separate}, run: withTask},
		"WithTask, in Join":     {mode: []httptask.Mode{httptask.Join}, run: withTask},
	} {
		t.Run(name, func(t *testing.T) {
			db, connector := open(t, "&pool_max_conns=4")
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			serve(ctx, func(_ http.ResponseWriter, r *http.Request) {
				require.NoError(t, tc.run(r.Context(), db))
				require.Zero(t, connector.Stats().Pool.Lent)
			}, tc.mode...)
			require.Equal(t, tc.left, number(t, t.Context(), db, rowsOfT), "after the rollback")
		})
	}
}

func TestATaskInTheFunctionOfInTxIsItsOwn(t *testing.T) {
	db, _ := open(t, "&pool_max_conns=1")
	sold := errors.New("sold out")
	serve(t.Context(), func(_ http.ResponseWriter, r *http.Request) {
		require.ErrorIs(t, pooldriver.InTx(r.Context(), db, nil, func(ctx context.Context, _ *sql.Tx) error {
			return pooldriver.Do(ctx, func(ctx context.Context) error {
				execute(t, ctx, db, "insert into t values (1)")
				return sold
			})
		}), sold)
	})
	require.Zero(t, number(t, t.Context(), db, rowsOfT))
}

func TestAMiddlewareThatJoinsBeginsATaskInOneThatDoesNot(t *testing.T) {
	db, connector := open(t, "&pool_max_conns=1")
	serve(t.Context(), func(_ http.ResponseWriter, outer *http.Request) {
		serve(outer.Context(), func(_ http.ResponseWriter, r *http.Request) {
			_, err := db.BeginTx(r.Context(), nil) // left open
			require.NoError(t, err)
			require.NoError(t, library(r.Context(), db))
			serve(r.Context(), func(_ http.ResponseWriter, inner *http.Request) {
				require.NoError(t, library(inner.Context(), db), "it keeps the task that it has")
			})
		}, httptask.Join)
		require.Zero(t, connector.Stats().Pool.Lent)
		require.NoError(t, outer.Context().Err())
	})
	require.Zero(t, number(t, t.Context(), db, rowsOfT))
}

func TestAnExplicitTaskInAHandlerUnderTwoMiddlewaresJoins(t *testing.T) {
	db, _ := open(t, "&pool_max_conns=1")
	serve(t.Context(), func(_ http.ResponseWriter, outer *http.Request) {
		serve(outer.Context(), func(_ http.ResponseWriter, r *http.Request) {
			require.NoError(t, pooldriver.Do(r.Context(), func(ctx context.Context) error { return readmeExample(ctx, db) }))
		})
	})
	require.Zero(t, number(t, t.Context(), db, rowsOfT))
}

func TestMistakesOfAProgramPanic(t *testing.T) {
	none := http.NotFoundHandler()
	for want, call := range map[string]func(){
		"httptask: Middleware takes one mode, Separate or Join, and was given [0 1]": func() { httptask.Middleware(none, httptask.Separate, httptask.Join) },
		"httptask: mode 2 is neither Separate nor Join":                              func() { httptask.Middleware(none, httptask.Join+1) },
		"httptask: Middleware was given no handler":                                  func() { httptask.MiddlewareWith(nil, httptask.Options{}) },
	} {
		require.PanicsWithValue(t, want, call)
	}
}

func TestInTxJoinsInAHandlerToo(t *testing.T) {
	db, _ := open(t, "")
	serve(t.Context(), func(_ http.ResponseWriter, r *http.Request) {
		err := pooldriver.InTx(r.Context(), db, nil, func(ctx context.Context, _ *sql.Tx) error {
			execute(t, ctx, db, "insert into t values (1)")
			return context.Canceled
		})
		require.ErrorIs(t, err, context.Canceled)
	})
	require.Zero(t, number(t, t.Context(), db, rowsOfT))
}

func TestARequestThatCarriesATaskKeepsIt(t *testing.T) {
	db, connector := open(t, "")
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	var tx *sql.Tx
	serve(ctx, func(_ http.ResponseWriter, r *http.Request) {
		execute(t, r.Context(), db, makeOwnBasket)
		var err error
		tx, err = db.BeginTx(r.Context(), nil)
		require.NoError(t, err)
		execute(t, r.Context(), db, "insert into t values (1)") // joins, as in any task of WithTask
		require.Equal(t, 1, number(t, r.Context(), db, rowsOfT))
	})
	require.NoError(t, ctx.Err(), "whoever began the task ends it")
	require.Equal(t, 1, number(t, ctx, db, ownBaskets))
	require.Zero(t, number(t, t.Context(), db, rowsOfT), "not committed yet")
	require.NoError(t, tx.Commit())
	end()
	require.Zero(t, connector.Stats().Pool.Lent)
	require.Equal(t, 1, number(t, t.Context(), db, rowsOfT))
}

func TestTheOuterOfTwoMiddlewaresEndsTheTask(t *testing.T) {
	db, connector := open(t, "")
	serve(t.Context(), func(w http.ResponseWriter, r *http.Request) {
		var conn *sql.Conn
		httptask.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, inner *http.Request) {
			var err error
			conn, err = db.Conn(inner.Context())
			require.NoError(t, err)
			execute(t, inner.Context(), conn, "begin")
		})).ServeHTTP(w, r)
		execute(t, r.Context(), conn, "insert into t values (1)")
		require.Zero(t, number(t, r.Context(), db, rowsOfT), "the transaction is open")
	})
	require.Zero(t, connector.Stats().Pool.Lent)
	require.Zero(t, number(t, t.Context(), db, rowsOfT))
}

func TestTheHandlerGetsItsWriterAndItsRequest(t *testing.T) {
	type key struct{}
	recorder := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(context.WithValue(t.Context(), key{}, "kept"), http.MethodPost, "/path?a=b", nil)
	var ended context.Context
	httptask.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Same(t, recorder, w, "with whatever else it can do")
		require.Equal(t, "kept", r.Context().Value(key{}))
		require.Equal(t, "/path", r.URL.Path)
		require.NoError(t, r.Context().Err())
		ended = r.Context()
	})).ServeHTTP(recorder, request)
	require.ErrorIs(t, context.Cause(ended), pooldriver.ErrTaskEnded)
	require.NoError(t, request.Context().Err())
}

func TestWorkBehindAHandlerNeedsAContextOfItsOwn(t *testing.T) {
	for name, tc := range map[string]struct {
		derive func(ctx context.Context) (context.Context, func())
		want   error
	}{
		"Outside, without cancel": {derive: func(ctx context.Context) (context.Context, func()) {
			return context.WithoutCancel(pooldriver.Outside(ctx)), func() {}
		}},
		"without cancel, Outside": {derive: func(ctx context.Context) (context.Context, func()) {
			return pooldriver.Outside(context.WithoutCancel(ctx)), func() {}
		}},
		"a new task without cancel": {derive: func(ctx context.Context) (context.Context, func()) {
			return pooldriver.NewTask(context.WithoutCancel(ctx))
		}},
		"without cancel only": {want: pooldriver.ErrTaskEnded, derive: func(ctx context.Context) (context.Context, func()) {
			return context.WithoutCancel(ctx), func() {}
		}},
		"Outside only": {want: context.Canceled, derive: func(ctx context.Context) (context.Context, func()) {
			return pooldriver.Outside(ctx), func() {}
		}},
		"the request's": {want: context.Canceled, derive: func(ctx context.Context) (context.Context, func()) {
			return ctx, func() {}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			db, _ := open(t, "")
			returned, result := make(chan struct{}), make(chan error, 1)
			serve(t.Context(), func(_ http.ResponseWriter, r *http.Request) {
				execute(t, r.Context(), db, "insert into t values (1)")
				ctx, end := tc.derive(r.Context())
				go func() {
					defer end()
					<-returned
					_, err := db.ExecContext(ctx, "insert into t values (2)")
					result <- err
				}()
			})
			close(returned)
			err := <-result
			if tc.want == nil {
				require.NoError(t, err)
				require.Equal(t, 2, number(t, t.Context(), db, rowsOfT))
				return
			}
			require.ErrorIs(t, err, tc.want)
			require.Equal(t, 1, number(t, t.Context(), db, rowsOfT))
		})
	}
}

// TestARequestsConnectionHasTheLabelOfItsRoute: the path, in which a secret may stand, is
// never part of it.
func TestARequestsConnectionHasTheLabelOfItsRoute(t *testing.T) {
	db, connector := open(t, "")
	var label string
	look := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tx, err := db.BeginTx(r.Context(), nil)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		label = connector.Holders()[0].Label
		_ = tx.Rollback()
	})
	inside, around := http.NewServeMux(), http.NewServeMux()
	inside.Handle("GET /orders/{id}", httptask.Middleware(look))
	around.Handle("/orders/{id}", look)
	mounted, nested := http.NewServeMux(), http.NewServeMux()
	mounted.Handle("/", httptask.Middleware(around))
	nested.Handle("/", around)
	between := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r) })
	}
	labelled := func(next http.Handler, label string) http.Handler {
		return httptask.MiddlewareWith(next, httptask.Options{Label: func(r *http.Request) string {
			require.Equal(t, "/orders/s3cr3t", r.URL.Path)
			return label
		}})
	}
	mountedWith := http.NewServeMux()
	mountedWith.Handle("/", labelled(between(around), "the program's"))
	for name, tc := range map[string]struct {
		handler      http.Handler
		method, want string
	}{
		"inside of the mux":                    {inside, "GET", "GET /orders/{id}"},
		"around the mux":                       {httptask.Middleware(around, httptask.Join), "POST", "/orders/{id}"},
		"around the mux, in another mux":       {mounted, "GET", "/orders/{id}"},
		"around a mux in a mux":                {httptask.Middleware(nested), "GET", "/orders/{id}"},
		"without a mux":                        {httptask.Middleware(look), "PUT", "PUT"},
		"a method of somebody":                 {httptask.Middleware(look), "S3CR3T", "other method"},
		"a middleware between":                 {httptask.Middleware(between(around)), "GET", "GET"},
		"the program's":                        {labelled(between(around), "the program's"), "GET", "the program's"},
		"the program's, around the mux":        {labelled(around, "the program's"), "GET", "the program's"},
		"the program's, in another mux":        {mountedWith, "GET", "the program's"},
		"the program has none, around the mux": {labelled(around, ""), "GET", "/orders/{id}"},
		"the program has none":                 {labelled(look, ""), "GET", "GET"},
	} {
		t.Run(name, func(t *testing.T) {
			label = ""
			recorder := httptest.NewRecorder()
			tc.handler.ServeHTTP(recorder, httptest.NewRequest(tc.method, "/orders/s3cr3t", nil))
			require.Equal(t, http.StatusOK, recorder.Code, recorder.Body.String())
			require.Equal(t, tc.want, label)
		})
	}
}

func TestMiddlewareWithHasTheModeOfItsOptions(t *testing.T) {
	for mode, left := range map[httptask.Mode]int{httptask.Separate: 2, httptask.Join: 0} {
		db, _ := open(t, "&pool_max_conns=4")
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		httptask.MiddlewareWith(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			require.NoError(t, readmeExample(r.Context(), db))
		}), httptask.Options{Mode: mode}).ServeHTTP(httptest.NewRecorder(), r)
		require.Equal(t, left, number(t, t.Context(), db, rowsOfT), "after the rollback")
	}
}
