package pgxface

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/pgxpooldriver"
)

// What pgxpool's own tests ask of a *pgxpool.Pool is asked here of a *pgxpooldriver.Pool. docs/pgx.md lists
// what differs: the tests of it are in differs_test.go.

// face is what a pool, a connection and a transaction have in common.
type face interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	Query(context.Context, string, ...any) (pgx.Rows, error)
	QueryRow(context.Context, string, ...any) pgx.Row
	SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
	CopyFrom(context.Context, pgx.Identifier, []string, pgx.CopyFromSource) (int64, error)
	Begin(context.Context) (pgx.Tx, error)
}

// eachFace runs a test by a pool, a connection and a transaction, each without a task and in one; and each over a
// Connector of New, of one of Wrap, and of one whose BEGIN waits for the first statement.
func eachFace(t *testing.T, test func(ctx context.Context, t *testing.T, f face)) {
	t.Helper()
	open := map[string]func(t *testing.T) both{
		"New":        func(t *testing.T) both { return open(t, "pool_max_conns=1") },
		"lazy begin": func(t *testing.T) both { return open(t, "pool_max_conns=1", "pool_lazy_begin=true") },
		"Wrap":       func(t *testing.T) both { return wrap(t, nil, one) },
	}
	for name, open := range open {
		for _, inTask := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, task %t", name, inTask), func(t *testing.T) {
				t.Parallel()
				b, ctx := open(t), t.Context()
				part := func(do func(ctx context.Context) error) {
					if inTask {
						require.NoError(t, pooldriver.Do(ctx, do))
					} else {
						require.NoError(t, do(ctx))
					}
					b.atRest(t)
				}
				part(func(ctx context.Context) error { test(ctx, t, b.pool); return nil })
				part(func(ctx context.Context) error {
					return b.pool.AcquireFunc(ctx, func(c *pgxpooldriver.Conn) error { test(ctx, t, c); return nil })
				})
				part(func(ctx context.Context) error {
					require.ErrorIs(t, pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error { test(ctx, t, tx); return errUndone }), errUndone)
					return nil
				})
				require.EqualValues(t, 1, b.pool.Stat().TotalConns())
			})
		}
	}
}

func one(c *pooldriver.Config) { c.MaxConns = 1 }

// wrap makes both over pgx's own connector.
func wrap(t *testing.T, change func(*pgx.ConnConfig), options ...pooldriver.Option) both {
	t.Helper()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	config, err := pgx.ParseConfig(account.URL())
	require.NoError(t, err)
	if change != nil {
		change(config)
	}
	return over(t, account, pooldriver.Wrap(stdlib.GetConnector(*config), append(options, quiet)...))
}

func TestExecOfEachFace(t *testing.T) {
	t.Parallel()
	eachFace(t, func(ctx context.Context, t *testing.T, f face) {
		tag, err := f.Exec(ctx, "set time zone 'America/Chicago'")
		require.NoError(t, err)
		require.Equal(t, "SET", tag.String())
	})
}

func TestQueryOfEachFace(t *testing.T) {
	t.Parallel()
	eachFace(t, func(ctx context.Context, t *testing.T, f face) {
		for range 3 { // pgx prepares, then executes what it has prepared
			rows, err := f.Query(ctx, "select generate_series(1,$1)", 10)
			require.NoError(t, err)
			sum := 0
			for rows.Next() {
				var n int
				require.NoError(t, rows.Scan(&n))
				sum += n
			}
			require.NoError(t, rows.Err())
			require.Equal(t, 55, sum)
		}
	})
}

func TestQueryRowOfEachFace(t *testing.T) {
	t.Parallel()
	eachFace(t, func(ctx context.Context, t *testing.T, f face) {
		var what, who string
		require.NoError(t, f.QueryRow(ctx, "select 'hello', $1::text", "world").Scan(&what, &who))
		require.Equal(t, "hello world", what+" "+who)
		require.Equal(t, pgx.ErrNoRows, f.QueryRow(ctx, "select n from generate_series(1,10) n where n=0").Scan(nil))
		require.Panics(t, func() {
			var nowhere *string
			_ = f.QueryRow(ctx, "select 'Hello, world!'").Scan(nowhere)
		})
		require.NoError(t, f.QueryRow(ctx, "select 'still', $1::text", "here").Scan(&what, &who))
	})
}

func TestSendBatchOfEachFace(t *testing.T) {
	t.Parallel()
	eachFace(t, func(ctx context.Context, t *testing.T, f face) {
		var batch pgx.Batch
		batch.Queue("select 1")
		batch.Queue("select 2")
		results := f.SendBatch(ctx, &batch)
		for want := 1; want <= 2; want++ {
			var n int
			require.NoError(t, results.QueryRow().Scan(&n))
			require.Equal(t, want, n)
		}
		require.NoError(t, results.Close())
		require.NoError(t, results.Close())
		require.NoError(t, f.SendBatch(ctx, &pgx.Batch{}).Close())
	})
}

func TestCopyFromOfEachFace(t *testing.T) {
	t.Parallel()
	eachFace(t, func(ctx context.Context, t *testing.T, f face) {
		_, err := f.Exec(ctx, `create table foo(a int2, b int4, c int8, d varchar, e text, f date, g timestamptz)`)
		require.NoError(t, err)
		input := [][]any{
			{int16(0), int32(1), int64(2), "abc", "efg", time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2010, 2, 3, 4, 5, 6, 0, time.Local)},
			{nil, nil, nil, nil, nil, nil, nil},
		}
		n, err := f.CopyFrom(ctx, pgx.Identifier{"foo"}, []string{"a", "b", "c", "d", "e", "f", "g"}, pgx.CopyFromRows(input))
		require.NoError(t, err)
		require.EqualValues(t, len(input), n)
		rows, err := f.Query(ctx, "select * from foo")
		require.NoError(t, err)
		var output [][]any
		for rows.Next() {
			row, err := rows.Values()
			require.NoError(t, err)
			output = append(output, row)
		}
		require.NoError(t, rows.Err())
		require.Equal(t, input, output)
		_, err = f.Exec(ctx, "drop table foo")
		require.NoError(t, err)
	})
}

// Where a table is temporary, a connection and a transaction have it until they end; what follows has none.
func TestATemporaryTable(t *testing.T) {
	t.Parallel()
	b, ctx := open(t, "pool_max_conns=1"), t.Context()
	use := func(f face) {
		_, err := f.Exec(ctx, "create temporary table bar(id int)")
		require.NoError(t, err)
		_, err = f.CopyFrom(ctx, pgx.Identifier{"bar"}, []string{"id"}, pgx.CopyFromRows([][]any{{1}, {2}}))
		require.NoError(t, err)
		require.Equal(t, 2, ask[int](ctx, t, f, "select count(*) from bar"))
	}
	require.NoError(t, b.pool.AcquireFunc(ctx, func(c *pgxpooldriver.Conn) error { use(c); return nil }))
	require.NoError(t, pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error { use(tx); return nil }))
	require.Zero(t, ask[int](ctx, t, b.pool, "select count(*) from pg_class where relname = 'bar'"))
}

func TestNestedBeginFunc(t *testing.T) {
	t.Parallel()
	eachFace(t, func(ctx context.Context, t *testing.T, f face) {
		_, err := f.Exec(ctx, "create table nested(id integer unique)")
		require.NoError(t, err)
		insert := func(tx pgx.Tx, id int) {
			_, err := tx.Exec(ctx, "insert into nested(id) values ($1)", id)
			require.NoError(t, err)
		}
		for _, inner := range []error{nil, errors.New("do a rollback")} {
			require.NoError(t, pgx.BeginFunc(ctx, f, func(tx pgx.Tx) error {
				insert(tx, 1)
				require.Equal(t, inner, pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
					insert(tx, 2)
					require.NoError(t, pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { insert(tx, 3); return nil }))
					return inner
				}))
				insert(tx, 4)
				return nil
			}))
			want := 4
			if inner != nil {
				want = 2
			}
			require.Equal(t, want, ask[int](ctx, t, f, "select count(*) from nested"))
			_, err = f.Exec(ctx, "delete from nested")
			require.NoError(t, err)
		}
		_, err = f.Exec(ctx, "drop table nested")
		require.NoError(t, err)
	})
}

func TestAcquire(t *testing.T) {
	t.Parallel()
	b, ctx := open(t, fmt.Sprint("pool_max_conns=", math.MaxInt32)), t.Context()
	conns := acquired(t, b, 3)
	require.EqualValues(t, 3, b.pool.Stat().TotalConns())
	require.EqualValues(t, 3, b.pool.Stat().AcquiredConns())
	require.EqualValues(t, 3, b.pool.Stat().AcquireCount())
	for _, c := range conns {
		c.Release()
	}
	b.atRest(t)
	require.EqualValues(t, 3, b.pool.Stat().IdleConns())

	var n int
	require.NoError(t, b.pool.AcquireFunc(ctx, func(c *pgxpooldriver.Conn) error { return c.QueryRow(ctx, "select 1").Scan(&n) }))
	require.Equal(t, 1, n)
	require.EqualError(t, b.pool.AcquireFunc(ctx, func(*pgxpooldriver.Conn) error { return errors.New("some error") }), "some error")
	require.Panics(t, func() { _ = b.pool.AcquireFunc(ctx, func(*pgxpooldriver.Conn) error { panic("in between") }) })
	b.atRest(t)
}

// The dial of a caller that has given up is not lost: its connection serves the next one.
func TestADialOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	ctx, cancel := context.WithCancel(t.Context())
	dials := 0
	b := over(t, account, pooldriver.New(account.URL(), quiet, one, func(c *pooldriver.Config) {
		c.Dial = func(dial context.Context, network, addr string) (net.Conn, error) {
			cancel()
			dials++
			var d net.Dialer
			return d.DialContext(dial, network, addr)
		}
	}))
	_, err := b.pool.Exec(ctx, "SELECT 1")
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, b.pool.Ping(t.Context()))
	require.EqualValues(t, 1, b.pool.Stat().NewConnsCount())
	require.Equal(t, 1, dials)
}

func TestReleaseOfAConnectionThatWasClosed(t *testing.T) {
	t.Parallel()
	b, ctx := open(t), t.Context()
	c, err := b.pool.Acquire(ctx)
	require.NoError(t, err)
	require.NoError(t, c.Conn().Close(ctx))
	require.EqualValues(t, 1, b.pool.Stat().TotalConns())
	c.Release()
	require.Eventually(t, func() bool { return b.pool.Stat().TotalConns() == 0 }, waits, tick)
	require.NoError(t, b.pool.Ping(ctx))
}

// acquired are n connections at once.
func acquired(t *testing.T, b both, n int) (conns []*pgxpooldriver.Conn) {
	t.Helper()
	for range n {
		c, err := b.pool.Acquire(t.Context())
		require.NoError(t, err)
		conns = append(conns, c)
	}
	return conns
}

func TestReset(t *testing.T) {
	t.Parallel()
	b, ctx := open(t), t.Context()
	conns := acquired(t, b, 3)
	b.pool.Reset()
	for _, c := range conns {
		require.NoError(t, c.Ping(ctx))
		c.Release()
	}
	require.Eventually(t, func() bool { return b.pool.Stat().TotalConns() == 0 }, waits, tick)
}

func TestIdleConnectionsThatWereKilled(t *testing.T) {
	t.Parallel()
	b, ctx := open(t), t.Context()
	conns := acquired(t, b, 3)
	for _, c := range conns {
		c.Release()
	}
	b.atRest(t)
	b.KillIdle(t, 3)
	require.NoError(t, b.pool.Ping(ctx))
	require.Equal(t, 1, ask[int](ctx, t, b.pool, "select 1"))
}

func TestLifetimesAndIdleTimes(t *testing.T) {
	t.Parallel()
	b, ctx := open(t, "pool_max_conn_lifetime=1s", "pool_max_conn_lifetime_jitter=0", "pool_health_check_period=100ms"), t.Context()
	c, err := b.pool.Acquire(ctx)
	require.NoError(t, err)
	time.Sleep(1100 * time.Millisecond)
	c.Release() // it is too old by now
	require.Eventually(t, func() bool { return b.pool.Stat().TotalConns() == 0 }, waits, tick)
	require.NoError(t, b.pool.Ping(ctx)) // and this one gets too old while it is idle
	require.Eventually(t, func() bool { return b.pool.Stat().MaxLifetimeDestroyCount() == 2 }, waits, tick)
	require.EqualValues(t, 2, b.pool.Stat().NewConnsCount())

	b = open(t, "pool_max_conn_idle_time=100ms", "pool_health_check_period=100ms")
	require.NoError(t, b.pool.Ping(ctx))
	require.Eventually(t, func() bool { return b.pool.Stat().MaxIdleDestroyCount() == 1 }, waits, tick)
	require.Zero(t, b.pool.Stat().MaxLifetimeDestroyCount())

	b = open(t, "pool_max_conn_lifetime=0", "pool_health_check_period=50ms")
	pid := ask[int](ctx, t, b.pool, pidQuery)
	time.Sleep(500 * time.Millisecond)
	require.Equal(t, pid, ask[int](ctx, t, b.pool, pidQuery))
}

func TestStatOfOpenRows(t *testing.T) {
	t.Parallel()
	b, ctx := open(t), t.Context()
	rows, err := b.pool.Query(ctx, "select generate_series(1,$1)", 10)
	require.NoError(t, err)
	require.EqualValues(t, 1, b.pool.Stat().AcquiredConns())
	require.EqualValues(t, 1, b.pool.Stat().TotalConns())
	rows.Close()
	require.NoError(t, rows.Err())
	b.atRest(t)
	require.EqualValues(t, 1, b.pool.Stat().IdleConns())
	require.EqualValues(t, 10, b.pool.Stat().MaxConns())
}

func TestALoadOfQueriesAndBatches(t *testing.T) {
	t.Parallel()
	b, ctx := open(t, "pool_max_conns=4"), t.Context()
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			for range 5 {
				var batch pgx.Batch
				batch.Queue("select 1")
				batch.Queue("select 2")
				results := b.pool.SendBatch(ctx, &batch)
				for want := 1; want <= 2; want++ {
					var n int
					assert.NoError(t, results.QueryRow().Scan(&n))
					assert.Equal(t, want, n)
				}
				assert.NoError(t, results.Close())
				assert.NoError(t, results.Close())
				rows, err := b.pool.Query(ctx, "select generate_series(1,$1)", 10)
				assert.NoError(t, err)
				all, err := pgx.CollectRows(rows, pgx.RowTo[int])
				assert.NoError(t, err)
				assert.Len(t, all, 10)
			}
		})
	}
	all.Wait()
	b.atRest(t)
}

func TestCloseTwice(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.pool.Close()
	b.pool.Close()
	require.ErrorIs(t, b.pool.Ping(t.Context()), pooldriver.ErrClosed)
}

// pgxpool's hooks get a *pgx.Conn; Config.AfterConnect gets stdlib's connection around it.
func TestAfterConnect(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	b := over(t, account, pooldriver.New(account.URL(), quiet, one, func(c *pooldriver.Config) {
		c.AfterConnect = func(ctx context.Context, dc driver.Conn) error {
			_, err := dc.(*stdlib.Conn).Conn().Prepare(ctx, "ps1", "select 1")
			return err
		}
	}))
	for range 3 {
		require.Equal(t, 1, ask[int](t.Context(), t, b.pool, "ps1"))
		_, err := b.pool.Exec(t.Context(), "SET work_mem = '77MB'") // after which it is cleaned
		require.NoError(t, err)
	}
}

type countingTracer struct {
	mu      sync.Mutex
	texts   []string
	batches int
}

func (c *countingTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.texts = append(c.texts, d.SQL)
	return ctx
}
func (c *countingTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (c *countingTracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batches++
	return ctx
}
func (c *countingTracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (c *countingTracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func TestATracerOfPgxSeesBothFaces(t *testing.T) {
	t.Parallel()
	var seen countingTracer
	b, ctx := wrap(t, func(c *pgx.ConnConfig) { c.Tracer = &seen }, one), t.Context()
	require.Equal(t, 1, ask[int](ctx, t, b.pool, "select 1"))
	require.Equal(t, 2, askDB[int](ctx, t, b.db, "select 2"))
	var batch pgx.Batch
	batch.Queue("select 3")
	require.NoError(t, b.pool.SendBatch(ctx, &batch).Close())
	require.Equal(t, []string{"select 1", "select 2"}, seen.texts)
	require.Equal(t, 1, seen.batches)
}

type spanKey struct{}

// spanTracer records in which span each text runs.
type spanTracer struct{ spans sync.Map }

func (s *spanTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	s.spans.Store(d.SQL, ctx.Value(spanKey{}))
	return ctx
}

func (s *spanTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestATransactionIsTracedInTheContextsOfItsCalls(t *testing.T) {
	t.Parallel()
	var seen spanTracer
	b := wrap(t, func(c *pgx.ConnConfig) { c.Tracer = &seen }, one)
	span := func(name string) context.Context { return context.WithValue(t.Context(), spanKey{}, name) }
	for _, end := range []func(pgx.Tx) error{
		func(tx pgx.Tx) error { return tx.Commit(span("commit")) },
		func(tx pgx.Tx) error { return tx.Rollback(span("rollback")) },
	} {
		tx, err := b.pool.Begin(span("begin"))
		require.NoError(t, err)
		require.NoError(t, end(tx))
	}
	for _, text := range []string{"begin", "commit", "rollback"} {
		got, _ := seen.spans.Load(text)
		require.Equal(t, text, got)
	}
}

type panickingTracer struct {
	countingTracer
	at atomic.Value // a string
}

func (p *panickingTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if d.SQL == p.at.Load() {
		panic("tracer")
	}
	return ctx
}

func TestATracerOfPgxThatPanics(t *testing.T) {
	t.Parallel()
	var tracer panickingTracer
	b, ctx := wrap(t, func(c *pgx.ConnConfig) { c.Tracer = &tracer }, one), t.Context()
	for _, at := range []string{"begin", "set transaction read write", "select 1", "commit", "rollback"} {
		tracer.at.Store(at)
		require.PanicsWithValue(t, "tracer", func() {
			tx, err := b.pool.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadWrite})
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(ctx) }()
			_, err = tx.Exec(ctx, "select 1")
			require.NoError(t, err)
			if at == "commit" {
				_ = tx.Commit(ctx)
			}
		}, at)
		b.atRest(t)
		require.Equal(t, 1, ask[int](ctx, t, b.pool, "select 1 as one"))
	}
}
