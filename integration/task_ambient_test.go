package integration

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/httptask"
)

// records keeps what is logged at Warn and above.
type records struct {
	mu   sync.Mutex // protects following fields
	list []string
}

func (r *records) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (r *records) WithAttrs([]slog.Attr) slog.Handler               { return r }
func (r *records) WithGroup(string) slog.Handler                    { return r }

func (r *records) Handle(_ context.Context, record slog.Record) error {
	text := record.Message
	record.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, text)
	return nil
}

func (r *records) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.list
	r.list = nil
	return list
}

// ambientModes are pool_ambient's, and what becomes of statements beside a Tx.
var ambientModes = []struct {
	name         string
	option       pooldriver.Option
	joins, warns bool
}{
	{name: "auto", option: func(c *pooldriver.Config) { c.Ambient = pooldriver.AmbientAuto }, joins: true},
	{name: "join", option: func(c *pooldriver.Config) { c.Ambient = pooldriver.AmbientJoin }, joins: true},
	{name: "warn", option: func(c *pooldriver.Config) { c.Ambient = pooldriver.AmbientWarn }, joins: true, warns: true},
	{name: "strict", option: func(c *pooldriver.Config) { c.Ambient = pooldriver.AmbientStrict }},
}

// eachWay opens a pool in the mode by its DSN, and by its option.
func (s stage) eachWay(t *testing.T, mode string, option pooldriver.Option, test func(t *testing.T, p stagePool, log *records)) {
	log := &records{}
	logging := func(c *pooldriver.Config) { c.Logger = slog.New(log) }
	for way, open := range map[string]func(t *testing.T) stagePool{
		"parameter": func(t *testing.T) stagePool {
			return s.openURL(t, s.url("pool_max_conns=3", "pool_ambient="+mode), logging)
		},
		"option": func(t *testing.T) stagePool { return s.open(t, 3, logging, option) },
	} {
		t.Run(mode+"/"+way, func(t *testing.T) {
			p := open(t)
			mustExec(t, s.witness, "DELETE FROM ledger")
			log.take()
			test(t, p, log)
			p.requireNothingLeft(t)
			p.requireAtRest(t)
			require.NoError(t, p.Close())
		})
	}
}

// TestStatementsBesideATransactionDoAsTheirModeSays: they have the task's
// context and do not go through its Tx.
func TestStatementsBesideATransactionDoAsTheirModeSays(t *testing.T) {
	t.Parallel()
	eachStage(t, func(t *testing.T, s stage) {
		for _, mode := range ambientModes {
			s.eachWay(t, mode.name, mode.option, func(t *testing.T, p stagePool, log *records) {
				ctx, end := pooldriver.WithTask(t.Context())
				defer end()
				begun := time.Now()
				tx, err := p.BeginTx(ctx, nil)
				require.NoError(t, err)
				_, err = tx.ExecContext(ctx, insertInto(271828))
				require.NoError(t, err)
				require.Empty(t, log.take())

				var seen int
				err = p.QueryRowContext(ctx, "SELECT count(*) FROM ledger WHERE id = 271828").Scan(&seen)
				switch {
				case mode.joins:
					require.NoError(t, err)
					require.Equal(t, 1, seen, "it is in the transaction")
					p.mustExec(ctx, t, insertInto(2))
				default:
					t.Logf("strict: %v (begun %v ago)", err, time.Since(begun))
					require.ErrorContains(t, err, "transaction")
					require.Regexp(t, `\d(ms|µs|s)\b|\d\d:\d\d`, err.Error(), "since when")
					require.NotContains(t, err.Error(), "271828")
					_, err = p.ExecContext(ctx, insertInto(2))
					require.Error(t, err)
				}
				warnings := log.take()
				require.Equal(t, mode.warns, len(warnings) > 0, "%q", warnings)
				if mode.warns {
					t.Logf("%q", warnings)
				}
				require.NotContains(t, strings.Join(warnings, " "), "271828", "a literal of SQL")

				_, err = tx.ExecContext(ctx, insertInto(3))
				require.NoError(t, err, "the transaction's own statements are never ambient")
				require.NoError(t, tx.Rollback())
				p.mustExec(ctx, t, insertInto(4))
				require.Equal(t, []int{4}, s.stored(t))
				require.Empty(t, log.take(), "after its end there is no transaction to be beside of")
			})
		}
	})
}

// TestInTxIsOneTransactionInEveryMode: what runs with the function's context
// belongs to it, through any handle; what runs with another's is as the mode says.
func TestInTxIsOneTransactionInEveryMode(t *testing.T) {
	t.Parallel()
	no := errors.New("no")
	eachStage(t, func(t *testing.T, s stage) {
		for _, mode := range ambientModes {
			s.eachWay(t, mode.name, mode.option, func(t *testing.T, p stagePool, log *records) {
				taken, end := pooldriver.WithTask(t.Context())
				defer end()
				for who, outer := range map[string]context.Context{"a task": taken, "no task": t.Context()} {
					mustExec(t, s.witness, "DELETE FROM ledger")
					var late context.Context
					work := func(result error) func(context.Context, *sql.Tx) error {
						return func(ctx context.Context, tx *sql.Tx) error {
							late = ctx
							for _, by := range statements {
								require.NoError(t, by.run(ctx, p, insertInto(1)), by.name)
							}
							_, err := tx.ExecContext(ctx, insertInto(2))
							require.NoError(t, err)
							require.ErrorIs(t, pooldriver.InTx(ctx, p.DB, nil, func(ctx context.Context, _ *sql.Tx) error {
								p.mustExec(ctx, t, insertInto(3))
								return no
							}), no)
							require.NoError(t, pooldriver.InTx(ctx, p.DB, nil, func(ctx context.Context, _ *sql.Tx) error {
								p.mustExec(ctx, t, insertInto(4))
								return nil
							}))
							require.Equal(t, 6, p.count(ctx, t), "what the inner one has rolled back is there")
							require.Empty(t, s.stored(t), "somebody else sees it")
							if who == "a task" {
								var seen int
								err := p.QueryRowContext(outer, "SELECT count(*) FROM ledger").Scan(&seen)
								switch {
								case mode.joins:
									require.NoError(t, err)
									require.Equal(t, 6, seen)
								default:
									require.Error(t, err)
								}
							}
							return result
						}
					}
					require.ErrorIs(t, pooldriver.InTx(outer, p.DB, nil, work(no)), no, who)
					require.Empty(t, s.stored(t), who)
					require.PanicsWithValue(t, no, func() {
						_ = pooldriver.InTx(outer, p.DB, nil, func(ctx context.Context, tx *sql.Tx) error {
							_ = work(nil)(ctx, tx)
							panic(no)
						})
					})
					require.Empty(t, s.stored(t), who)
					require.NoError(t, pooldriver.InTx(outer, p.DB, nil, work(nil)), who)
					require.Equal(t, []int{1, 1, 1, 1, 2, 4}, s.stored(t), who)

					for _, by := range means {
						require.ErrorIs(t, by.run(context.WithoutCancel(late), p, insertInto(5)), sql.ErrTxDone, "%s: %s", who, by.name)
					}
					require.Len(t, s.stored(t), 6, who)
				}
			})
		}
	})
}

// requestKey is how a program's contexts name their request.
type requestKey struct{}

// request is a value of the program's own.
type request struct{ lifetime context.Context }

func ofRequest(ctx context.Context) (any, context.Context) {
	r, _ := ctx.Value(requestKey{}).(*request)
	if r == nil {
		return nil, nil
	}
	return r, r.lifetime
}

// TestWhoMadeTheTaskDecidesWhatAmbientMeansByDefault: a program that asked for
// a task wants its statements in it; one that never heard of tasks keeps its
// meaning.
func TestWhoMadeTheTaskDecidesWhatAmbientMeansByDefault(t *testing.T) {
	t.Parallel()
	makers := []struct {
		name  string
		joins bool
		// run calls work in a task and ends it.
		run func(t *testing.T, work func(ctx context.Context))
	}{
		{"WithTask", true, func(t *testing.T, work func(ctx context.Context)) {
			ctx, end := pooldriver.WithTask(t.Context())
			defer end()
			work(ctx)
		}},
		{"NewTask", true, func(t *testing.T, work func(ctx context.Context)) {
			ctx, end := pooldriver.NewTask(t.Context())
			defer end()
			work(ctx)
		}},
		{"Do", true, func(t *testing.T, work func(ctx context.Context)) {
			require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error { work(ctx); return nil }))
		}},
		{"Config.TaskKey", false, func(t *testing.T, work func(ctx context.Context)) {
			ctx, cancel := context.WithCancel(t.Context())
			work(context.WithValue(ctx, requestKey{}, &request{ctx}))
			cancel()
		}},
		{"Config.TaskKey, and a task of its own", true, func(t *testing.T, work func(ctx context.Context)) {
			ctx, end := pooldriver.WithTask(context.WithValue(t.Context(), requestKey{}, &request{t.Context()}))
			defer end()
			work(ctx)
		}},
		{"Middleware", false, func(_ *testing.T, work func(ctx context.Context)) {
			httptask.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { work(r.Context()) })).
				ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		}},
		{"Middleware that joins", true, func(_ *testing.T, work func(ctx context.Context)) {
			httptask.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { work(r.Context()) }), httptask.Join).
				ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		}},
		{"Middleware, and WithTask in it", true, func(_ *testing.T, work func(ctx context.Context)) {
			httptask.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				ctx, end := pooldriver.WithTask(r.Context())
				defer end()
				work(ctx)
			})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		}},
		{"Middleware, and a new task in it", true, func(_ *testing.T, work func(ctx context.Context)) {
			httptask.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				ctx, end := pooldriver.NewTask(r.Context())
				defer end()
				work(ctx)
			})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		}},
	}
	eachStage(t, func(t *testing.T, s stage) {
		p := s.open(t, 3, func(c *pooldriver.Config) { c.TaskKey = ofRequest })
		for _, maker := range makers {
			t.Run(maker.name, func(t *testing.T) {
				maker.run(t, func(ctx context.Context) {
					tx, err := p.BeginTx(ctx, nil)
					require.NoError(t, err)
					_, err = tx.ExecContext(ctx, insertInto(1))
					require.NoError(t, err)
					require.Equal(t, maker.joins, p.count(ctx, t) == 1)
					require.NoError(t, tx.Rollback())
					// Session state is an explicit task's.
					p.mustExec(ctx, t, s.say("SET app.tenant = 'alice'", "SET @tenant = 'alice'", "CREATE TEMP TABLE left_behind (id integer)"))
					seen, err := observed(ctx, p.DB, s.traces()[0])
					if maker.joins {
						require.NoError(t, err)
					}
					require.Equal(t, maker.joins, seen)
					_, err = p.BeginTx(ctx, nil) // left open
					require.NoError(t, err)
				})
				require.Eventually(t, func() bool {
					left, err := s.left(context.Background())
					return err == nil && left == "" && p.lent() == 0
				}, slowMachine, time.Millisecond)
				require.Empty(t, s.stored(t))
			})
		}
		p.requireNextBorrowersSeeNothing(t)
		p.requireAtRest(t)
	})
}

// anyKey is of a value that nobody asks for.
type anyKey struct{}

// TestAnAdoptedTaskEndsWithItsLifetimeNotWithAQuerysTimeout: the program's
// contexts come and go within a request.
func TestAnAdoptedTaskEndsWithItsLifetimeNotWithAQuerysTimeout(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s stage) {
		p := s.open(t, 2, func(c *pooldriver.Config) { c.TaskKey = ofRequest })
		lifetime, finish := context.WithCancel(t.Context())
		defer finish()
		root := context.WithValue(t.Context(), requestKey{}, &request{lifetime})
		conn := take(t, root, p.DB)
		brief, cancel := context.WithCancel(root)
		_, err := conn.ExecContext(brief, s.say("SET app.tenant = 'alice'", "SET @tenant = 'alice'", ""))
		require.NoError(t, err)
		cancel()
		for _, ctx := range []context.Context{root, context.WithValue(root, anyKey{}, 1)} {
			seen, err := observed(ctx, conn, s.traces()[0])
			require.NoError(t, err)
			require.True(t, seen, "the *sql.Conn keeps its session")
			seen, err = observed(ctx, p.DB, s.traces()[0])
			require.NoError(t, err)
			require.False(t, seen, "nobody shares it")
		}
		other := context.WithValue(t.Context(), requestKey{}, &request{t.Context()})
		seen, err := observed(other, p.DB, s.traces()[0])
		require.NoError(t, err)
		require.False(t, seen, "another request")
		finish()
		require.Eventually(t, func() bool { return p.lent() == 0 }, slowMachine, time.Millisecond)
		for _, via := range []querier{conn, p.DB} {
			_, err = via.ExecContext(root, "SELECT 1")
			require.ErrorIs(t, err, pooldriver.ErrTaskEnded)
		}
		_ = conn.Close()
		p.requireNextBorrowersSeeNothing(t)
	})
}
