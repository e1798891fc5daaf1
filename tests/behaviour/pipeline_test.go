package behaviour

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
	"github.com/pooldriver/pooldriver/pool"
)

// pipeline is a stub whose sessions can send queries together.
type pipeline struct {
	*stubdialect.Stub
	sent     atomic.Int32                                                  // pipelines
	trial    func(context.Context) error                                   // nil: it succeeds
	unknown  string                                                        // the text that is not prepared
	together func(ctx context.Context, call dialects.PipelinedQuery) error // called before each answer; nil: nothing is
	dialling func()                                                        // called before each dial; nil: nothing is
}

func (p *pipeline) Dial(ctx context.Context, cred *dialects.Credential) (dialects.Session, error) {
	if p.dialling != nil {
		p.dialling()
	}
	s, err := p.Stub.Dial(ctx, cred)
	if err != nil {
		return nil, err
	}
	return &pipelined{s.(*stubdialect.Session), p}, nil
}

// KeepArgument implements dialects.ArgumentKeeper.
func (p *pipeline) KeepArgument(v any) (kept any, size int, ok bool) {
	if raw, ok := v.([]byte); ok {
		return bytes.Clone(raw), len(raw), true
	}
	text, _ := v.(string)
	_, number := v.(int)
	return v, len(text), number || driver.IsValue(v)
}

// KeepSettings implements dialects.ArgumentKeeper.
func (*pipeline) KeepSettings([]dialects.ContextSetting) bool { return false }

type pipelined struct {
	*stubdialect.Session
	of *pipeline
}

var (
	_ dialects.Pipeliner      = (*pipelined)(nil)
	_ dialects.ArgumentKeeper = (*pipeline)(nil)
)

func (s *pipelined) QueryTogether(ctx context.Context, calls []dialects.PipelinedQuery, _ dialects.PipelineLimits, answer func(int, driver.Rows, error)) error {
	s.of.sent.Add(1)
	for i, call := range calls {
		if s.of.together != nil {
			if err := s.of.together(ctx, call); err != nil {
				return err
			}
		}
		rows, err := s.Conn().(driver.QueryerContext).QueryContext(ctx, call.Text, call.Args)
		answer(i, rows, err)
	}
	return nil
}

func (s *pipelined) HasPipelined(text string, _ uint64) bool { return text != s.of.unknown }

func (s *pipelined) Trial(ctx context.Context) error {
	if s.of.trial != nil {
		return s.of.trial(ctx)
	}
	return nil
}

const lookup = "SELECT a FROM t WHERE a = ?"

// openPipeline opens a pipeline with one connection and the rows 1 to 20 in t. The lookup is known to be short, and
// the trial has succeeded, unless p has a trial.
func openPipeline(t *testing.T, p *pipeline, options ...pooldriver.Option) (*sql.DB, *pooldriver.Connector) {
	t.Helper()
	p.Stub = stubdialect.New(dialects.Traits{Pipelines: true})
	db, c := openDatabase(t, p, p.Server, append([]pooldriver.Option{func(c *pooldriver.Config) { c.Pipeline = 16 }}, options...)...)
	for i := range int64(20) {
		mustExec(t, t.Context(), db, "INSERT INTO t VALUES (?)", i+1)
	}
	known(t, db, lookup)
	if p.trial == nil {
		together, unknown := p.together, p.unknown
		p.together, p.unknown = nil, ""
		for c.Stats().Pool.Pipelined == 0 { // the machine may have been slow
			known(t, db, lookup)
			queue(t, c, db, 2+4*(c.Stats().Pool.Max-1))() // with one connection for each of two, nobody would follow
		}
		p.together, p.unknown = together, unknown
		p.sent.Store(0)
	}
	return db, c
}

// known runs text, of one argument, often enough.
func known(t *testing.T, db *sql.DB, text string) {
	t.Helper()
	for range 30 { // also where one of them was slow
		_, err := look(t.Context(), db, text, 1)
		require.NoError(t, err)
	}
}

func look(ctx context.Context, db *sql.DB, text string, a int64) (got int64, err error) {
	err = db.QueryRowContext(ctx, text, a).Scan(&got)
	return got, err
}

// queue has n goroutines wait for the only connection, in order, each with a lookup of its own number, from 1. Then it
// gives them the connection. all waits for their answers.
func queue(t *testing.T, c *pooldriver.Connector, db *sql.DB, n int) (all func()) {
	t.Helper()
	texts := make([]string, n)
	for i := range texts {
		texts[i] = lookup
	}
	return queueOf(t, c, db, texts...)
}

func queueOf(t *testing.T, c *pooldriver.Connector, db *sql.DB, texts ...string) (all func()) {
	t.Helper()
	var taken []*sql.Conn
	for range c.Stats().Pool.Max {
		taken = append(taken, busy(t, db))
	}
	var w sync.WaitGroup
	for i, text := range texts {
		w.Go(func() {
			got, err := look(t.Context(), db, text, int64(i+1))
			if err != nil || got != int64(i+1) {
				t.Errorf("%d got %d, %v", i+1, got, err)
			}
		})
		waiting(t, c, i+1)
	}
	for _, conn := range taken {
		require.NoError(t, conn.Close())
	}
	return w.Wait
}

// busy takes a connection.
func busy(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, conn.PingContext(t.Context()))
	return conn
}

func TestQueriesThatWaitShareAPipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // what is measured to be slow does not come along
		p := &pipeline{}
		db, c := openPipeline(t, p)
		before := c.Stats().Pool
		queue(t, c, db, 5)()
		s := c.Stats().Pool
		require.EqualValues(t, 1, p.sent.Load())
		require.EqualValues(t, 4, s.Pipelined-before.Pipelined)
		require.EqualValues(t, 1, s.Pipelines-before.Pipelines)
		require.Zero(t, c.Stats().BufferedBytes)
	})
}

// A query that may follow waits for whatever comes first, as others do.
func TestAQueryThatMayFollowDoesNotWaitForADialAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipeline{}
		db, c := openPipeline(t, p, maxConns(2))
		c.Flush()
		first := busy(t, db)
		goOn := make(chan struct{})
		t.Cleanup(func() { close(goOn) })
		p.dialling = func() { <-goOn }
		end := make(chan error, 1)
		go func() {
			_, err := look(t.Context(), db, lookup, 1)
			end <- err
		}()
		require.Eventually(t, func() bool { return c.Stats().Pool.Creating == 1 }, patience, time.Millisecond)
		require.NoError(t, first.Close())
		select {
		case err := <-end:
			require.NoError(t, err)
		case <-time.After(patience):
			t.Error("it waits for the dial")
		}
	})
}

// The statements in front would wait while somebody has a lock on one of its tables.
func TestAQueryWhoseTextIsNotPreparedDoesNotComeAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipeline{unknown: "SELECT a FROM t WHERE  a = ?"}
		db, c := openPipeline(t, p)
		known(t, db, p.unknown)
		before := c.Stats().Pool
		queueOf(t, c, db, lookup, p.unknown, lookup, lookup)()
		require.EqualValues(t, 2, c.Stats().Pool.Pipelined-before.Pipelined)
		queueOf(t, c, db, p.unknown, p.unknown, lookup)()
		require.EqualValues(t, 4, c.Stats().Pool.Pipelined-before.Pipelined, "the leader's text is prepared for all")
	})
}

// In the pipeline it is dropped.
func TestAnAnswerThatNobodyWaitsForTakesNoMemory(t *testing.T) {
	for name, leader := range map[string]bool{"leader": true, "follower": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				entered, goOn := make(chan struct{}), make(chan struct{})
				p := &pipeline{together: func(_ context.Context, call dialects.PipelinedQuery) error {
					if call.Args[0].Value == int64(1) {
						close(entered)
						<-goOn
					}
					return nil
				}}
				db, c := openPipeline(t, p)
				ctx, cancel := context.WithCancel(t.Context())
				conn := busy(t, db)
				contexts := []context.Context{t.Context(), ctx}
				if leader {
					contexts = []context.Context{ctx, t.Context()}
				}
				ends := make(chan error, 2)
				for i, ctx := range contexts {
					go func() {
						_, err := look(ctx, db, lookup, int64(i+1))
						ends <- err
					}()
					waiting(t, c, i+1)
				}
				require.NoError(t, conn.Close())
				<-entered
				cancel()
				require.ErrorIs(t, <-ends, context.Canceled, "at once")
				close(goOn)
				require.NoError(t, <-ends)
				atRest(t, c)
				require.Zero(t, c.Stats().BufferedBytes)
				require.Equal(t, 1, p.Server.State().Open())
			})
		})
	}
}

// stuck lines up five lookups, of which one is stuck in its pipeline until its context ends or goOn is called. On a slow
// machine the text may not be known to be short, and the lookup runs alone: then stuck tries again.
func stuck(t *testing.T, which, most int) (c *pooldriver.Connector, ends []chan error, cancel, goOn func()) {
	t.Helper()
	for {
		met, goes := make(chan struct{}), make(chan struct{})
		goOn = sync.OnceFunc(func() { close(goes) })
		t.Cleanup(goOn)
		var once atomic.Bool
		p := &pipeline{}
		p.together = func(ctx context.Context, call dialects.PipelinedQuery) error {
			if call.Args[0].Value == int64(which+1) && once.CompareAndSwap(false, true) {
				close(met)
				select {
				case <-goes:
				case <-ctx.Done():
					return driver.ErrBadConn
				}
			}
			return nil
		}
		db, c := openPipeline(t, p, maxConns(most), func(c *pooldriver.Config) { c.AcquireTimeout = 2 * time.Second })
		t.Cleanup(goOn) // before the database is closed
		var taken []*sql.Conn
		for range most {
			taken = append(taken, busy(t, db))
		}
		ctx, cancel := context.WithCancel(t.Context())
		ends = make([]chan error, 5)
		var all sync.WaitGroup
		for i := range ends {
			ends[i] = make(chan error, 1)
			its := t.Context()
			if i == which {
				its = ctx
			}
			all.Go(func() {
				got, err := look(its, db, lookup, int64(i+1))
				if err == nil && got != int64(i+1) {
					err = errors.New("a stranger's answer")
				}
				ends[i] <- err
			})
			waiting(t, c, i+1)
		}
		for _, conn := range taken {
			require.NoError(t, conn.Close())
		}
		alone := make(chan struct{})
		go func() { all.Wait(); close(alone) }()
		select {
		case <-met:
			return c, ends, cancel, goOn
		case <-alone:
			cancel()
		}
	}
}

// The others of its pipeline are answered by the other connection meanwhile.
func TestAQueryThatTakesLongInAPipelineHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for slow := range 3 {
			c, ends, cancel, goOn := stuck(t, slow, 2)
			for i := range ends {
				if i != slow {
					require.NoError(t, <-ends[i])
				}
			}
			if slow == 1 {
				time.Sleep(2200 * time.Millisecond) // AcquireTimeout bounds no statement
				require.Empty(t, ends[slow])
			}
			goOn()
			require.NoError(t, <-ends[slow])
			cancel()
			atRest(t, c)
		}
	})
}

// It is cancelled when nobody waits for it any more.
func TestAStatementThatHangsInAPipelineKeepsNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for hangs := range 3 {
			c, ends, cancel, _ := stuck(t, hangs, 1)
			cancel()
			require.ErrorIs(t, <-ends[hangs], context.Canceled)
			for i := range ends {
				if i != hangs {
					require.NoError(t, <-ends[i])
				}
			}
			atRest(t, c)
		}
	})
}

// Perhaps the query itself makes them end.
func TestAQueryWhoseConnectionsAreLostRunsAloneInTheEnd(t *testing.T) {
	for name, broken := range map[string]func(context.Context, dialects.PipelinedQuery) error{
		"lost": func(context.Context, dialects.PipelinedQuery) error { return driver.ErrBadConn },
		"later": func(_ context.Context, call dialects.PipelinedQuery) error {
			return []error{driver.ErrBadConn, nil}[call.Args[0].Value.(int64)%2]
		},
		"unsupported": func(context.Context, dialects.PipelinedQuery) error { return errors.ErrUnsupported },
		"panics":      func(context.Context, dialects.PipelinedQuery) error { panic("driver") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &pipeline{together: broken}
				db, c := openPipeline(t, p)
				queue(t, c, db, 8)()
				require.NotZero(t, p.sent.Load())
				require.LessOrEqual(t, p.sent.Load(), int32(3*8))
				atRest(t, c)
				require.Zero(t, c.Stats().BufferedBytes)
			})
		})
	}
}

// As if it had kept the connection.
func TestAConnOfThePipelineGoesOnWhileDraining(t *testing.T) {
	for name, fails := range map[string]error{"rows": nil, "error": errors.New("query failed")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { goesOnWhileDraining(t, fails) }) // a busy machine finds no text short
		})
	}
}

func goesOnWhileDraining(t *testing.T, fails error) {
	t.Helper()
	p := &pipeline{}
	db, c := openPipeline(t, p, maxConns(2))
	first := busy(t, db)
	tx, err := db.BeginTx(t.Context(), nil) // until its end nothing is drained
	require.NoError(t, err)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		_, err := look(t.Context(), db, lookup, 1)
		assert.NoError(t, err)
	})
	waiting(t, c, 1)
	all.Go(func() {
		var a int
		assert.ErrorIs(t, conn.QueryRowContext(t.Context(), lookup, 2).Scan(&a), fails)
	})
	waiting(t, c, 2)
	if fails != nil {
		p.Server.Inject(fakedb.Fault{Call: fakedb.ConnQueryCtx, Skip: 1, Err: fails})
	}
	require.NoError(t, first.Close())
	all.Wait()
	require.EqualValues(t, 1, p.sent.Load())
	done := make(chan error, 1)
	go func() { done <- c.Drain(context.Background()) }()
	require.Eventually(t, func() bool { return db.PingContext(t.Context()) != nil }, patience, time.Millisecond)
	mustExec(t, t.Context(), conn, "INSERT INTO t VALUES (0)")
	require.NoError(t, conn.Close())
	require.NoError(t, tx.Rollback())
	require.NoError(t, <-done)
}

// It had its turn, so pool_max_waiters does not refuse it when it waits once more.
func TestAQueryThatRunsAgainIsNotOneTooMany(t *testing.T) {
	for name, end := range map[string]error{"lost": driver.ErrBadConn, "unsupported": errors.ErrUnsupported} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var others sync.WaitGroup
				defer others.Wait()
				var crowd func()
				p := &pipeline{together: func(context.Context, dialects.PipelinedQuery) error {
					crowd()
					return end
				}}
				db, c := openPipeline(t, p, func(c *pooldriver.Config) { c.MaxWaiters = 8 })
				crowd = sync.OnceFunc(func() {
					for range 16 { // the first ones fill the queue again
						others.Go(func() {
							if _, err := look(t.Context(), db, lookup, 1); err != nil && !errors.Is(err, pool.ErrTooManyWaiters) {
								t.Error(err)
							}
						})
					}
					for c.Stats().Pool.Waiting < 8 {
						time.Sleep(time.Millisecond)
					}
				})
				queue(t, c, db, 8)()
				require.NotZero(t, p.sent.Load())
			})
		})
	}
}

// A query that waits meets no error, and waits no longer than the trials take.
func TestWhereTrialsFailQueriesRunAlone(t *testing.T) {
	for name, trial := range map[string]func(context.Context) error{
		"no answer":   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"wrong":       func(context.Context) error { return errors.New("wrong") },
		"unsupported": func(context.Context) error { return errors.ErrUnsupported },
		"panics":      func(context.Context) error { panic("driver") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &logged{}
			var trials atomic.Int32
			p := &pipeline{trial: func(ctx context.Context) error { trials.Add(1); return trial(ctx) }}
			db, c := openPipeline(t, p, func(c *pooldriver.Config) { c.Logger = slog.New(log) })
			begun := time.Now()
			for trials.Load() < 3 { // mostly one round is enough
				known(t, db, lookup)
				queue(t, c, db, 8)()
			}
			require.Less(t, time.Since(begun), 20*time.Second)
			queue(t, c, db, 8)()
			require.EqualValues(t, 3, trials.Load())
			require.Zero(t, p.sent.Load())
			require.Zero(t, c.Stats().Pool.Pipelined)
			require.NoError(t, db.Close())
			// The line is written when the trial's connection is free again.
			require.Eventually(t, func() bool { return log.count("pool_pipeline has no effect") == 1 }, 10*time.Second, time.Millisecond)
		})
	}
}

// The pool is closed, or drains, while queries are in pipelines.
func TestAPipelineEndsBeforeItsPool(t *testing.T) {
	for name, end := range map[string]func(c *pooldriver.Connector, db *sql.DB) error{
		"Close": func(_ *pooldriver.Connector, db *sql.DB) error { return db.Close() },
		"Drain": func(c *pooldriver.Connector, _ *sql.DB) error { return c.Drain(context.Background()) },
		"Flush": func(c *pooldriver.Connector, _ *sql.DB) error { c.Flush(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				entered, goOn := make(chan struct{}), make(chan struct{})
				p := &pipeline{together: func(_ context.Context, call dialects.PipelinedQuery) error {
					if call.Args[0].Value == int64(2) {
						close(entered)
						<-goOn
					}
					return nil
				}}
				db, c := openPipeline(t, p)
				all := queue(t, c, db, 2)
				<-entered
				ended := make(chan error, 1)
				go func() { ended <- end(c, db) }()
				time.Sleep(10 * time.Millisecond) // it has begun, or else the answers come before it: both are right
				close(goOn)
				all()
				require.NoError(t, <-ended)
			})
		})
	}
}
