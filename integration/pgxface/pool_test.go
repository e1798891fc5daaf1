package pgxface

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
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

const (
	waits = 20 * time.Second
	tick  = 2 * time.Millisecond
)

var pidQuery = "SELECT pg_backend_pid()"

// eachWay runs a test with the settings that change how statements are sent.
func eachWay(t *testing.T, test func(t *testing.T, parameters ...string)) {
	t.Parallel()
	for _, way := range []string{"pool_lazy_begin=false", "pool_lazy_begin=true", "default_query_exec_mode=exec", "default_query_exec_mode=simple_protocol", "default_query_exec_mode=cache_describe", "default_query_exec_mode=describe_exec"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			test(t, way)
		})
	}
}

func TestThePoolAnswersAsPgxpoolDoes(t *testing.T) { eachWay(t, answersAsPgxpool) }

func answersAsPgxpool(t *testing.T, parameters ...string) {
	b, ctx := open(t, parameters...), t.Context()
	tag, err := b.pool.Exec(ctx, "CREATE TABLE t (id int PRIMARY KEY, name text)")
	require.NoError(t, err)
	require.Equal(t, "CREATE TABLE", tag.String())
	tag, err = b.pool.Exec(ctx, "INSERT INTO t VALUES ($1, $2), ($3, $4)", 1, "a", 2, nil)
	require.NoError(t, err)
	require.EqualValues(t, 2, tag.RowsAffected())

	type row struct {
		ID   int
		Name *string
	}
	rows, err := b.pool.Query(ctx, "SELECT id, name FROM t ORDER BY id")
	require.NoError(t, err)
	require.Equal(t, "id", rows.FieldDescriptions()[0].Name)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByName[row])
	require.NoError(t, err)
	name := "a"
	require.Equal(t, []row{{1, &name}, {2, nil}}, all)
	require.Equal(t, "SELECT 2", rows.CommandTag().String())

	rows, err = b.pool.Query(ctx, "SELECT id, name, ARRAY[1,2], now()::date, '\\x00ff'::bytea FROM t WHERE id = @id", pgx.NamedArgs{"id": 2})
	require.NoError(t, err)
	require.True(t, rows.Next())
	values, err := rows.Values()
	require.NoError(t, err)
	require.Equal(t, []any{int32(2), nil, []any{int32(1), int32(2)}}, values[:3])
	require.Len(t, rows.RawValues(), 5)
	rows.Close()
	require.NoError(t, rows.Err())

	var pgErr *pgconn.PgError
	_, err = b.pool.Exec(ctx, "INSERT INTO t VALUES ($1)", 1)
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, "23505", pgErr.Code)
	_, err = b.pool.Query(ctx, "SELECT nothing FROM t")
	require.ErrorAs(t, err, &pgErr)
	require.ErrorIs(t, b.pool.QueryRow(ctx, "SELECT id FROM t WHERE id = 9").Scan(new(int)), pgx.ErrNoRows)
	rows, err = b.pool.Query(ctx, "SELECT 1/(3-g) FROM generate_series(1, 5) g")
	if err == nil {
		for rows.Next() {
		}
		err = rows.Err()
	}
	require.ErrorAs(t, err, &pgErr)

	n, err := b.pool.CopyFrom(ctx, pgx.Identifier{"t"}, []string{"id", "name"}, pgx.CopyFromSlice(3, func(i int) ([]any, error) { return []any{10 + i, fmt.Sprint(i)}, nil }))
	require.NoError(t, err)
	require.EqualValues(t, 3, n)
	require.NoError(t, b.pool.Ping(ctx))
	require.Equal(t, int64(5), askDB[int64](ctx, t, b.db, "SELECT count(*) FROM t"))
	require.NoError(t, pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM t")
		return err
	}))
	err = pgx.BeginTxFunc(ctx, b.pool, pgx.TxOptions{IsoLevel: pgx.Serializable, AccessMode: pgx.ReadOnly, DeferrableMode: pgx.Deferrable}, func(tx pgx.Tx) error {
		require.Equal(t, "serializable", ask[string](ctx, t, tx, "SHOW transaction_isolation"))
		require.Equal(t, "on", ask[string](ctx, t, tx, "SHOW transaction_deferrable"))
		_, err := tx.Exec(ctx, "INSERT INTO t VALUES (1)")
		return err
	})
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, "25006", pgErr.Code)
	b.atRest(t)
	require.EqualValues(t, 1, b.pool.Stat().TotalConns())
}

func TestABatch(t *testing.T) { eachWay(t, sendsBatches) }

func sendsBatches(t *testing.T, parameters ...string) {
	b, ctx := open(t, parameters...), t.Context()
	_, err := b.pool.Exec(ctx, "CREATE TABLE t (id int PRIMARY KEY)")
	require.NoError(t, err)
	send := func(ctx context.Context, q interface {
		SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
	}) {
		var batch pgx.Batch
		var sum, got int
		batch.Queue("INSERT INTO t VALUES ($1), ($2)", 1, 2).Exec(func(tag pgconn.CommandTag) error {
			require.EqualValues(t, 2, tag.RowsAffected())
			return nil
		})
		batch.Queue("SELECT id FROM t ORDER BY id").Query(func(rows pgx.Rows) error {
			ids, err := pgx.CollectRows(rows, pgx.RowTo[int])
			require.Equal(t, []int{1, 2}, ids)
			return err
		})
		batch.Queue("SELECT sum(id) FROM t WHERE id < @n", pgx.NamedArgs{"n": 10}).QueryRow(func(row pgx.Row) error { return row.Scan(&sum) })
		batch.Queue("DELETE FROM t")
		require.NoError(t, q.SendBatch(ctx, &batch).Close())
		require.Equal(t, 3, sum)

		batch = pgx.Batch{}
		batch.Queue("INSERT INTO t VALUES ($1) RETURNING id", 7)
		batch.Queue("SELECT id FROM generate_series(1, 3) id")
		batch.Queue("DELETE FROM t")
		results := q.SendBatch(ctx, &batch)
		require.NoError(t, results.QueryRow().Scan(&got))
		require.Equal(t, 7, got)
		rows, err := results.Query()
		require.NoError(t, err)
		require.True(t, rows.Next()) // and not to their end
		tag, err := results.Exec()
		require.NoError(t, err)
		require.EqualValues(t, 1, tag.RowsAffected())
		require.NoError(t, results.Close())
		require.NoError(t, results.Close())
	}
	send(ctx, b.pool)
	send(ctx, b.pool)
	require.NoError(t, pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error { send(ctx, tx); return nil }))
	require.NoError(t, pooldriver.Do(ctx, func(ctx context.Context) error { send(ctx, b.pool); return nil }))

	var batch pgx.Batch
	batch.Queue("INSERT INTO t VALUES (1)")
	batch.Queue("INSERT INTO t VALUES (1)")
	batch.Queue("INSERT INTO t VALUES (2)")
	results := b.pool.SendBatch(ctx, &batch)
	_, err = results.Exec()
	require.NoError(t, err)
	var pgErr *pgconn.PgError
	_, err = results.Exec()
	require.ErrorAs(t, err, &pgErr)
	_, err = results.Exec()
	require.ErrorAs(t, err, &pgErr)
	require.ErrorAs(t, results.Close(), &pgErr)
	require.Zero(t, ask[int](ctx, t, b.pool, "SELECT count(*) FROM t"))
	b.atRest(t)
}

func TestOneTransactionAcrossBothFaces(t *testing.T) { eachWay(t, sharesTransactions) }

func sharesTransactions(t *testing.T, parameters ...string) {
	b := open(t, append(parameters, "pool_max_conns=1")...)
	_, err := b.pool.Exec(t.Context(), "CREATE TABLE t (id int)")
	require.NoError(t, err)
	errUndo := errors.New("undo")
	count := func(ctx context.Context) int { return ask[int](ctx, t, b.pool, "SELECT count(*) FROM t") }

	require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error {
		outer, err := b.db.BeginTx(ctx, nil)
		require.NoError(t, err)
		pid := askDB[int](ctx, t, outer, pidQuery)
		_, err = outer.ExecContext(ctx, "INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		require.Equal(t, 1, count(ctx))
		require.ErrorIs(t, pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
			require.Equal(t, pid, ask[int](ctx, t, tx, pidQuery))
			_, err := tx.Exec(ctx, "INSERT INTO t VALUES (2)")
			require.NoError(t, err)
			require.NoError(t, pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
				_, err := inner.Exec(ctx, "INSERT INTO t VALUES (3)")
				return err
			}))
			require.Equal(t, 3, count(ctx))
			return errUndo
		}), errUndo)
		require.Equal(t, 1, count(ctx))
		return outer.Commit()
	}))
	require.Equal(t, 1, count(t.Context()))

	require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error {
		tx, err := b.pool.Begin(ctx)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, "INSERT INTO t VALUES (4)")
		require.NoError(t, err)
		inner, err := b.db.BeginTx(ctx, nil)
		require.NoError(t, err)
		_, err = inner.ExecContext(ctx, "INSERT INTO t VALUES (5)")
		require.NoError(t, err)
		require.NoError(t, inner.Commit())
		n, err := b.pool.CopyFrom(ctx, pgx.Identifier{"t"}, []string{"id"}, pgx.CopyFromRows([][]any{{6}}))
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		require.NoError(t, tx.Rollback(ctx))
		require.ErrorIs(t, tx.Rollback(ctx), pgx.ErrTxClosed)
		return nil
	}))
	require.Equal(t, 1, count(t.Context()))
	b.atRest(t)
}

func TestSavepointsWithoutATask(t *testing.T) { eachWay(t, hasSavepoints) }

func hasSavepoints(t *testing.T, parameters ...string) {
	b, ctx := open(t, append(parameters, "pool_max_conns=1")...), t.Context()
	_, err := b.pool.Exec(ctx, "CREATE TABLE t (id int)")
	require.NoError(t, err)
	tx, err := b.pool.Begin(ctx)
	require.NoError(t, err)
	inner, err := tx.Begin(ctx)
	require.NoError(t, err)
	_, err = inner.Exec(ctx, "INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	_, err = inner.Exec(ctx, "nonsense")
	require.Error(t, err)
	require.NoError(t, inner.Rollback(ctx))
	inner, err = tx.Begin(ctx)
	require.NoError(t, err)
	_, err = inner.Exec(ctx, "INSERT INTO t VALUES (2)")
	require.NoError(t, err)
	deeper, err := inner.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, inner.Commit(ctx))
	require.ErrorIs(t, deeper.Commit(ctx), pgx.ErrTxClosed)
	open, err := tx.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(ctx))
	require.ErrorIs(t, open.Commit(ctx), pgx.ErrTxClosed)
	require.Equal(t, 2, ask[int](ctx, t, b.pool, "SELECT sum(id) FROM t"))
	b.atRest(t)
}

func TestRowsThatAreOpenLetTheirTaskGoOn(t *testing.T) { eachWay(t, readsRowsAhead) }

func readsRowsAhead(t *testing.T, parameters ...string) {
	b := open(t, append(parameters, "pool_max_conns=1")...)
	for _, begins := range []bool{false, true} {
		require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error {
			if begins {
				tx, err := b.pool.Begin(ctx)
				require.NoError(t, err)
				defer func() { _ = tx.Rollback(ctx) }()
			}
			rows, err := b.pool.Query(ctx, "SELECT g, 'text ' || g, ARRAY[g] FROM generate_series(1, 100) g")
			require.NoError(t, err)
			var batch pgx.Batch
			batch.Queue("SELECT g FROM generate_series(1, 10) g")
			batch.Queue("SELECT 'x'")
			results := b.pool.SendBatch(ctx, &batch)
			of, err := results.Query()
			require.NoError(t, err)
			for n := 1; rows.Next(); n++ {
				if n%10 == 0 {
					require.Equal(t, n, askDB[int](ctx, t, b.db, "SELECT $1::int", n))
					require.True(t, of.Next())
				}
				var g int
				var text string
				var array []int
				require.NoError(t, rows.Scan(&g, &text, &array))
				require.Equal(t, n, g)
				require.Equal(t, fmt.Sprint("text ", n), text)
				require.Equal(t, []int{n}, array)
				require.Equal(t, n, ask[int](ctx, t, b.pool, "SELECT $1::int", n))
			}
			require.NoError(t, rows.Err())
			require.Equal(t, "SELECT 100", rows.CommandTag().String())
			var x string
			require.NoError(t, results.QueryRow().Scan(&x))
			require.Equal(t, "x", x)
			require.NoError(t, results.Close())
			return nil
		}))
		b.atRest(t)
	}
}

func TestRowsGiveTheirConnectionToThoseThatWait(t *testing.T) {
	t.Parallel()
	b, ctx := open(t, "pool_max_conns=1"), t.Context()
	rows, err := b.pool.Query(ctx, "SELECT g FROM generate_series(1, 1000) g")
	require.NoError(t, err)
	defer rows.Close()
	require.True(t, rows.Next())
	require.Equal(t, 5, ask[int](ctx, t, b.pool, "SELECT 5"))
	n := 1
	for rows.Next() {
		n++
	}
	require.NoError(t, rows.Err())
	require.Equal(t, 1000, n)
	require.EqualValues(t, 1, b.connector.Stats().Reclaims)
}

func TestABatchGivesItsConnectionToThoseThatWait(t *testing.T) {
	t.Parallel()
	b, ctx := open(t, "pool_max_conns=1"), t.Context()
	batch := &pgx.Batch{}
	for range 3 {
		batch.Queue("SELECT g FROM generate_series(1, 1000) g")
	}
	results := b.pool.SendBatch(ctx, batch)
	_, err := results.Exec()
	require.NoError(t, err)
	for range 2 {
		rows, err := results.Query()
		require.NoError(t, err)
		n := 0
		for rows.Next() {
			if n++; n == 500 {
				require.Equal(t, 5, ask[int](ctx, t, b.pool, "SELECT 5"))
			}
			var got int
			require.NoError(t, rows.Scan(&got))
			require.Equal(t, n, got)
		}
		require.NoError(t, rows.Err())
		require.Equal(t, 1000, n)
	}
	require.NoError(t, results.Close())
	require.EqualValues(t, 1, b.connector.Stats().Reclaims)
	require.Zero(t, b.connector.Stats().BufferedBytes)
}

// TestRowsOfATaskAreNotReadWithoutNeed, and what the program has of a row stays when they are.
func TestRowsOfATaskAreNotReadWithoutNeed(t *testing.T) {
	t.Parallel()
	b := open(t, "pool_max_conns=1")
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	rows, err := b.pool.Query(ctx, "SELECT 'row ' || g FROM generate_series(1, 1000) g")
	require.NoError(t, err)
	require.True(t, rows.Next())
	require.True(t, rows.Next())
	require.Zero(t, b.connector.Stats().ReadAheads)
	raw := rows.RawValues()
	require.Equal(t, 5, ask[int](ctx, t, b.pool, "SELECT 5"))
	require.EqualValues(t, 1, b.connector.Stats().ReadAheads)
	require.Positive(t, b.connector.Stats().BufferedBytes)
	var text string
	require.NoError(t, rows.Scan(&text))
	require.Equal(t, "row 2", text)
	require.Equal(t, "row 2", string(raw[0]))
	end() // nobody closes the rows
	require.Eventually(t, func() bool { return b.connector.Stats().BufferedBytes == 0 }, waits, tick)
}

func TestWhatStatementsLeaveIsCleaned(t *testing.T) {
	t.Parallel()
	b, ctx := open(t, "pool_max_conns=1"), t.Context()
	before := ask[string](ctx, t, b.pool, "SHOW work_mem")
	pid := ask[int](ctx, t, b.pool, pidQuery)
	for name, do := range map[string]func(*pgxpooldriver.Conn){
		"Exec": func(c *pgxpooldriver.Conn) {
			_, err := c.Exec(ctx, "SET work_mem = '77MB'")
			require.NoError(t, err)
		},
		"Query": func(c *pgxpooldriver.Conn) {
			require.Equal(t, "77MB", ask[string](ctx, t, c, "SELECT set_config('work_mem', $1, false)", "77MB"))
		},
		"batch": func(c *pgxpooldriver.Conn) {
			var batch pgx.Batch
			batch.Queue("SELECT 1")
			batch.Queue("SET work_mem = '77MB'")
			require.NoError(t, c.SendBatch(ctx, &batch).Close())
		},
		"mode": func(c *pgxpooldriver.Conn) {
			_, err := c.Exec(ctx, "SET work_mem = '77MB'", pgx.QueryExecModeExec)
			require.NoError(t, err)
		},
		"Conn": func(c *pgxpooldriver.Conn) {
			_, err := c.Conn().Exec(ctx, "SET work_mem = '77MB'")
			require.NoError(t, err)
			require.Equal(t, "77MB", ask[string](ctx, t, c, "SHOW work_mem"))
		},
		"LISTEN": func(c *pgxpooldriver.Conn) {
			_, err := c.Exec(ctx, "LISTEN ch; SET work_mem = '77MB'")
			require.NoError(t, err)
			_, err = b.pool.Connector().Connect(ctx)
			require.NoError(t, err)
			_, err = c.Conn().Exec(ctx, "NOTIFY ch, 'hello'")
			require.NoError(t, err)
			n, err := c.Conn().WaitForNotification(ctx)
			require.NoError(t, err)
			require.Equal(t, "hello", n.Payload)
		},
		"a transaction": func(c *pgxpooldriver.Conn) {
			tx, err := c.Begin(ctx)
			require.NoError(t, err)
			_, err = tx.Exec(ctx, "SET work_mem = '77MB'")
			require.NoError(t, err)
		},
		"by hand": func(c *pgxpooldriver.Conn) {
			_, err := c.Exec(ctx, "BEGIN")
			require.NoError(t, err)
			_, err = c.Exec(ctx, "SET work_mem = '77MB'")
			require.NoError(t, err)
		},
	} {
		require.NoError(t, b.pool.AcquireFunc(ctx, func(c *pgxpooldriver.Conn) error {
			do(c)
			require.Equal(t, "77MB", ask[string](ctx, t, c, "SHOW work_mem"), name)
			return nil
		}))
		require.Equal(t, before, ask[string](ctx, t, b.pool, "SHOW work_mem"), name)
		require.Equal(t, pid, ask[int](ctx, t, b.pool, pidQuery), name)
		require.Empty(t, ask[[]string](ctx, t, b.pool, "SELECT coalesce(array_agg(c), '{}') FROM pg_listening_channels() c"), name)
	}
	b.atRest(t)
}

func TestPreparedStatementsAreSharedAndCleaned(t *testing.T) {
	t.Parallel()
	b, ctx := open(t, "pool_max_conns=1"), t.Context()
	const prepared = "SELECT count(*) FROM pg_prepared_statements WHERE statement = 'SELECT $1::int + 1'"
	const text = "SELECT $1::int + 1"
	for range 3 {
		require.Equal(t, 2, ask[int](ctx, t, b.pool, text, 1))
		require.Equal(t, 2, askDB[int](ctx, t, b.db, text, 1))
		require.Equal(t, 1, ask[int](ctx, t, b.pool, prepared, pgx.QueryExecModeExec))
	}
	stmt, err := b.db.PrepareContext(ctx, text) // ours, which pgx finds by its text
	require.NoError(t, err)
	for range 3 {
		require.Equal(t, 2, ask[int](ctx, t, b.pool, text, 1))
		var n int
		require.NoError(t, stmt.QueryRowContext(ctx, 1).Scan(&n))
	}
	require.LessOrEqual(t, ask[int](ctx, t, b.pool, prepared), 2)
	_, err = b.pool.Exec(ctx, "DEALLOCATE ALL")
	require.NoError(t, err)
	require.Zero(t, ask[int](ctx, t, b.pool, prepared))
	require.Equal(t, 2, ask[int](ctx, t, b.pool, text, 1))

	tx, err := b.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Prepare(ctx, "mine", "SELECT $1::int * 2")
	require.NoError(t, err)
	require.Equal(t, 8, ask[int](ctx, t, tx, "mine", 4))
	require.NoError(t, tx.Commit(ctx))
	require.Zero(t, ask[int](ctx, t, b.pool, "SELECT count(*) FROM pg_prepared_statements WHERE name = 'mine'"))

	// The table changes: pgx's statement is stale, and is prepared again.
	_, err = b.pool.Exec(ctx, "CREATE TABLE t (a int)")
	require.NoError(t, err)
	for _, change := range []string{"ALTER TABLE t ADD b int", "ALTER TABLE t ADD c int"} {
		rows, err := b.pool.Query(ctx, "SELECT * FROM t WHERE a = $1", 1)
		require.NoError(t, err)
		rows.Close()
		require.NoError(t, rows.Err())
		_, err = b.pool.Exec(ctx, change)
		require.NoError(t, err)
	}
	rows, err := b.pool.Query(ctx, "SELECT * FROM t WHERE a = $1", 1)
	require.NoError(t, err)
	require.Len(t, rows.FieldDescriptions(), 3)
	rows.Close()
}

func TestLargeObjectsAndTheLentConnection(t *testing.T) {
	t.Parallel()
	b, ctx := open(t, "pool_max_conns=1"), t.Context()
	require.NoError(t, pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		los := tx.LargeObjects()
		oid, err := los.Create(ctx, 0)
		require.NoError(t, err)
		lo, err := los.Open(ctx, oid, pgx.LargeObjectModeWrite|pgx.LargeObjectModeRead)
		require.NoError(t, err)
		_, err = lo.Write([]byte("hello"))
		require.NoError(t, err)
		require.NoError(t, pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
			_, err := inner.Exec(ctx, "SELECT 1")
			return err
		}))
		_, err = lo.Seek(1, 0)
		require.NoError(t, err)
		four := make([]byte, 4)
		_, err = lo.Read(four)
		require.NoError(t, err)
		require.Equal(t, "ello", string(four))
		return los.Unlink(ctx, oid)
	}))
	b.atRest(t)
}

func TestAContextThatEndsBoundsTheBeginAlone(t *testing.T) {
	t.Parallel()
	b, ctx := open(t, "pool_max_conns=1"), t.Context()
	_, err := b.pool.Exec(ctx, "CREATE TABLE t (id int)")
	require.NoError(t, err)
	begin, cancel := context.WithCancel(ctx)
	tx, err := b.pool.Begin(begin)
	require.NoError(t, err)
	cancel()
	_, err = tx.Exec(ctx, "INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	require.NoError(t, tx.Commit(ctx))
	require.Equal(t, 1, ask[int](ctx, t, b.pool, "SELECT count(*) FROM t"))

	pid := ask[int](ctx, t, b.pool, pidQuery)
	begin, cancel = context.WithCancel(ctx)
	tx, err = b.pool.Begin(begin)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "INSERT INTO t VALUES (2)")
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, tx.Commit(begin), context.Canceled)
	require.ErrorIs(t, tx.Rollback(begin), pgx.ErrTxClosed)
	require.Equal(t, 1, ask[int](ctx, t, b.pool, "SELECT count(*) FROM t"))
	require.Equal(t, pid, ask[int](ctx, t, b.pool, pidQuery), "the connection is kept")

	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = b.pool.Exec(short, "SELECT pg_sleep(30)")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, 1, ask[int](ctx, t, b.pool, "SELECT count(*) FROM t"))
	b.atRest(t)
}

func TestSettingsOfAContext(t *testing.T) {
	t.Parallel()
	b := open(t, "pool_max_conns=1")
	ctx := pooldriver.WithSettings(t.Context(), map[string]string{"app.tenant": "seven"})
	const tenant = "SELECT coalesce(current_setting('app.tenant', true), '')"
	for range 3 {
		require.Equal(t, "seven", ask[string](ctx, t, b.pool, tenant))
		require.Equal(t, "seven", ask[string](ctx, t, b.pool, tenant+" || $1::text", ""))
		require.Empty(t, ask[string](t.Context(), t, b.pool, tenant))
		var batch pgx.Batch
		batch.Queue(tenant)
		batch.Queue(tenant+" || $1::text", "")
		results := b.pool.SendBatch(ctx, &batch)
		var one, two string
		require.NoError(t, results.QueryRow().Scan(&one))
		require.NoError(t, results.QueryRow().Scan(&two))
		require.NoError(t, results.Close())
		require.Equal(t, "seven seven", one+" "+two)
	}
	require.NoError(t, pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		require.Equal(t, "seven", ask[string](ctx, t, tx, tenant))
		require.Equal(t, "seven", ask[string](ctx, t, tx.Conn(), tenant))
		return nil
	}))
	require.Empty(t, ask[string](t.Context(), t, b.pool, tenant))
	utc := pooldriver.WithSettings(t.Context(), map[string]string{"timezone": "UTC"})
	tokyo := pooldriver.WithSettings(t.Context(), map[string]string{"timezone": "Asia/Tokyo"})
	const literal = "SELECT extract(epoch FROM timestamptz '2020-01-01 00:00')::int + $1::int"
	for range 3 {
		require.Equal(t, 9*3600, ask[int](utc, t, b.pool, literal, 0)-ask[int](tokyo, t, b.pool, literal, 0))
	}
	b.atRest(t)
}

// pgx executes a statement of a batch by one that db.Prepare has made of the same text.
func TestABatchDoesNotKeepAStatementThatIsStale(t *testing.T) {
	t.Parallel()
	b, ctx := open(t, "pool_max_conns=1"), t.Context()
	_, err := b.pool.Exec(ctx, "CREATE TABLE t AS SELECT 1 AS a")
	require.NoError(t, err)
	const text = "SELECT * FROM t"
	st, err := b.db.PrepareContext(ctx, text)
	require.NoError(t, err)
	defer st.Close()
	witness := b.Witness(t)
	columns := func(texts ...string) (n int, err error) {
		var batch pgx.Batch
		for _, text := range texts {
			batch.Queue(text).Query(func(rows pgx.Rows) error {
				n = len(rows.FieldDescriptions())
				return nil
			})
		}
		err = b.pool.SendBatch(ctx, &batch).Close()
		return n, err
	}
	for i, texts := range [][]string{{text}, {text, "SELECT 1", text}, {"SELECT 1", text}} {
		var a int
		dest := []any{&a, &a, &a, &a}
		require.NoError(t, st.QueryRowContext(ctx).Scan(dest[:i+1]...))
		_, err = witness.ExecContext(ctx, fmt.Sprintf("ALTER TABLE t ADD c%d int DEFAULT 1", i))
		require.NoError(t, err)
		if texts[0] != text { // too late to send the batch again
			_, err = columns(texts...)
			require.Error(t, err)
		}
		n, err := columns(texts...)
		require.NoError(t, err)
		require.Equal(t, i+2, n)
	}
}

// What the server says in the middle of a batch counts for the other connections, too.
func TestAnErrorInTheMiddleOfABatchIsActedOn(t *testing.T) {
	t.Parallel()
	b, ctx := open(t, "pool_max_conns=2"), t.Context()
	both := func() (pids []int) {
		var conns []*pgxpooldriver.Conn
		for range 2 {
			c, err := b.pool.Acquire(ctx)
			require.NoError(t, err)
			conns, pids = append(conns, c), append(pids, ask[int](ctx, t, c, pidQuery))
		}
		for _, c := range conns {
			c.Release()
		}
		return pids
	}
	before := both()
	var batch pgx.Batch
	batch.Queue("SELECT 1")
	batch.Queue("SELECT pg_terminate_backend(pg_backend_pid())")
	batch.Queue("SELECT 1")
	results := b.pool.SendBatch(ctx, &batch)
	require.NoError(t, results.QueryRow().Scan(new(int)))
	require.True(t, hasState(results.QueryRow().Scan(new(bool)), "57P01"))
	require.Error(t, results.Close())
	for _, pid := range both() {
		require.NotContains(t, before, pid, "the server may be leaving")
	}
}

func TestADeadIdleConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	b, ctx := open(t, "pool_max_conns=2"), t.Context()
	for name, use := range map[string]func() error{
		"Exec": func() error { _, err := b.pool.Exec(ctx, "SELECT 1"); return err },
		"Begin": func() error {
			return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "SELECT 1"); return err })
		},
		"Query": func() error { return b.pool.QueryRow(ctx, "SELECT $1::int", 1).Scan(new(int)) },
		"batch": func() error {
			var batch pgx.Batch
			batch.Queue("SELECT $1::int", 1)
			return b.pool.SendBatch(ctx, &batch).Close()
		},
	} {
		require.NoError(t, b.pool.Ping(ctx))
		b.atRest(t)
		b.KillIdle(t, int(b.pool.Stat().TotalConns()))
		require.Eventually(t, func() bool { n, _, err := b.Backends(ctx); return err == nil && n == 0 }, waits, tick)
		require.NoError(t, use(), name)
	}
}

func TestTheEndOfATask(t *testing.T) {
	t.Parallel()
	b := open(t, "pool_max_conns=2")
	ctx, end := pooldriver.WithTask(t.Context())
	tx, err := b.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "CREATE TABLE t (id int)")
	require.NoError(t, err)
	rows, err := tx.Query(ctx, "SELECT g FROM generate_series(1, 100000) g")
	require.NoError(t, err)
	require.True(t, rows.Next())
	end()
	for rows.Next() {
	}
	require.ErrorIs(t, rows.Err(), pooldriver.ErrTaskEnded)
	_, err = tx.Exec(ctx, "SELECT 1")
	require.ErrorIs(t, err, pooldriver.ErrTaskEnded)
	require.ErrorIs(t, tx.Commit(t.Context()), pooldriver.ErrTaskEnded)
	b.atRest(t)
	require.Zero(t, ask[int](t.Context(), t, b.pool, "SELECT count(*) FROM pg_class WHERE relname = 't'"))
}

func TestACopyWhoseSourceUsesTheTask(t *testing.T) {
	t.Parallel()
	b := open(t, "pool_max_conns=2")
	_, err := b.pool.Exec(t.Context(), "CREATE TABLE t (id int)")
	require.NoError(t, err)
	require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error {
		_, err := b.pool.CopyFrom(ctx, pgx.Identifier{"t"}, []string{"id"}, pgx.CopyFromSlice(3, func(i int) ([]any, error) {
			return []any{i}, b.pool.QueryRow(pooldriver.Outside(ctx), "SELECT $1::int", i).Scan(new(int))
		}))
		require.NoError(t, err)
		tx, err := b.pool.Begin(ctx)
		require.NoError(t, err)
		_, err = b.pool.CopyFrom(ctx, pgx.Identifier{"t"}, []string{"id"}, pgx.CopyFromSlice(3, func(i int) ([]any, error) {
			return []any{i}, b.pool.QueryRow(ctx, "SELECT $1::int", i).Scan(new(int))
		}))
		require.ErrorContains(t, err, "lent")
		return tx.Rollback(ctx)
	}))
	require.Equal(t, 3, ask[int](t.Context(), t, b.pool, "SELECT count(*) FROM t"))
	b.atRest(t)
}

// traced is a connector whose connections are those of another one, with something around them.
type traced struct{ driver.Connector }

type tracedConn struct{ driver.Conn }

func (c traced) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	return tracedConn{conn}, err
}

func TestAConnectorAroundPgx(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	config, err := pgx.ParseConfig(account.URL())
	require.NoError(t, err)
	for name, inner := range map[string]driver.Connector{
		"pgx's":     stdlib.GetConnector(*config),
		"a wrapped": traced{stdlib.GetConnector(*config)},
	} {
		pool := pgxpooldriver.New(pooldriver.Wrap(inner, quiet))
		require.Equal(t, 7, ask[int](t.Context(), t, pool, "SELECT $1::int", 7), name)
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			require.Equal(t, 7, ask[int](t.Context(), t, tx, "SELECT 7"))
			return nil
		}), name)
		pool.Close()
	}
}

// limiting is a connector whose transactions have a deadline, by a context that lasts as long as they do.
type limiting struct{ driver.Connector }

type limitedConn struct{ *stdlib.Conn }

type limitedTx struct {
	driver.Tx
	cancel context.CancelFunc
}

func (l limiting) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := l.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return limitedConn{conn.(*stdlib.Conn)}, nil
}

func (c limitedConn) Raw() driver.Conn { return c.Conn }

func (c limitedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	ctx, cancel := context.WithTimeout(ctx, waits)
	tx, err := c.Conn.BeginTx(ctx, opts)
	return limitedTx{tx, cancel}, err
}

func (t limitedTx) Commit() error {
	defer t.cancel()
	return t.Tx.Commit()
}

// TestAContextThatAWrapperDerivesLastsAsLongAsItsTransaction, although those of the begin and of a statement have ended.
func TestAContextThatAWrapperDerivesLastsAsLongAsItsTransaction(t *testing.T) {
	t.Parallel()
	account, ctx := testbed.Shared(t, testbed.Postgres).NewAccount(t), t.Context()
	config, err := pgx.ParseConfig(account.URL())
	require.NoError(t, err)
	for _, lazy := range []bool{false, true} {
		b := over(t, account, pooldriver.Wrap(limiting{stdlib.GetConnector(*config)}, quiet, one, func(c *pooldriver.Config) { c.LazyBegin = lazy }))
		short, cancel := context.WithCancel(ctx)
		tx, err := b.pool.Begin(short)
		require.NoError(t, err)
		_, err = tx.Exec(short, "SELECT 1")
		require.NoError(t, err)
		cancel()
		require.NoError(t, tx.Commit(ctx), lazy)

		ofSQL, err := b.db.BeginTx(ctx, nil)
		require.NoError(t, err)
		short, cancel = context.WithCancel(ctx)
		_, err = ofSQL.ExecContext(short, "SELECT 1")
		require.NoError(t, err)
		cancel()
		require.NoError(t, ofSQL.Commit(), lazy)
		b.atRest(t)
	}
}

func TestInTxOfDatabaseSQLHoldsForPgx(t *testing.T) {
	t.Parallel()
	b := open(t, "pool_max_conns=1", "pool_ambient=strict")
	_, err := b.pool.Exec(t.Context(), "CREATE TABLE t (id int)")
	require.NoError(t, err)
	require.ErrorIs(t, pooldriver.InTx(t.Context(), b.db, nil, func(ctx context.Context, _ *sql.Tx) error {
		_, err := b.pool.Exec(ctx, "INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		require.NoError(t, pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO t VALUES (1)")
			return err
		}))
		require.Equal(t, 2, ask[int](ctx, t, b.pool, "SELECT count(*) FROM t"))
		return errUndone
	}), errUndone)
	require.Zero(t, ask[int](t.Context(), t, b.pool, "SELECT count(*) FROM t"))
	require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error {
		tx, err := b.pool.Begin(ctx)
		require.NoError(t, err)
		_, err = b.pool.Exec(ctx, "SELECT 1")
		require.ErrorContains(t, err, "pool_ambient=strict")
		_, err = tx.Exec(ctx, "SELECT 1")
		require.NoError(t, err)
		return tx.Commit(ctx)
	}))
	b.atRest(t)
}

func TestATransactionWhoseConnectionIsKilled(t *testing.T) {
	t.Parallel()
	b := open(t, "pool_max_conns=2")
	require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error {
		tx, err := b.pool.Begin(ctx)
		require.NoError(t, err)
		admin, err := b.Server.Admin()
		require.NoError(t, err)
		require.True(t, askDB[bool](ctx, t, admin, "SELECT pg_terminate_backend($1, 10000)", ask[int](ctx, t, tx, pidQuery)))
		_, err = tx.Exec(ctx, "SELECT 1")
		require.Error(t, err)
		_, err = b.pool.Exec(ctx, "SELECT 1")
		require.ErrorIs(t, err, pooldriver.ErrTxLost)
		require.ErrorIs(t, tx.Commit(ctx), pooldriver.ErrTxLost)
		_, err = b.pool.Exec(ctx, "SELECT 1")
		require.NoError(t, err)
		return nil
	}))
	b.atRest(t)
}

func TestDrainWaitsForPgx(t *testing.T) {
	t.Parallel()
	b := open(t, "pool_max_conns=2")
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	drained := make(chan error, 1)
	go func() { drained <- b.connector.Drain(t.Context()) }()
	require.Eventually(t, func() bool {
		_, err := b.pool.Exec(t.Context(), "SELECT 1")
		return errors.Is(err, pooldriver.ErrClosed)
	}, waits, tick)
	_, err = tx.Exec(t.Context(), "SELECT 1")
	require.NoError(t, err)
	require.Empty(t, drained)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-drained)
}

func TestTasksThatWaitForEachOtherThroughPgx(t *testing.T) {
	t.Parallel()
	b := open(t, "pool_max_conns=1", "pool_deadlock_after=200ms")
	require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error {
		tx, err := b.pool.Begin(ctx)
		require.NoError(t, err)
		other, end := pooldriver.NewTask(ctx)
		defer end()
		_, err = b.pool.Exec(other, "SELECT 1")
		require.ErrorIs(t, err, pooldriver.ErrDeadlock)
		return tx.Rollback(ctx)
	}))
	b.atRest(t)
}

func TestACommitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for _, parameter := range []string{"pool_lazy_begin=false", "pool_lazy_begin=true"} {
		t.Run(parameter, func(t *testing.T) {
			b, ctx := open(t, "pool_max_conns=1", parameter), t.Context()
			_, err := b.pool.Exec(ctx, `CREATE TABLE t (id int);
				CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); RETURN NULL; END $$;
				CREATE CONSTRAINT TRIGGER hang AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hang()`)
			require.NoError(t, err)
			for _, begin := range []context.Context{ctx, context.Background()} {
				tx, err := b.pool.Begin(begin)
				require.NoError(t, err)
				insert, cancel := context.WithCancel(ctx)
				_, err = tx.Exec(insert, "INSERT INTO t VALUES (1)")
				require.NoError(t, err)
				cancel()
				short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				require.ErrorIs(t, tx.Commit(short), context.DeadlineExceeded)
				require.ErrorIs(t, tx.Rollback(ctx), pgx.ErrTxClosed)
				require.Zero(t, ask[int](ctx, t, b.pool, "SELECT count(*) FROM t"))
			}
			b.atRest(t)
		})
	}
}

func TestALoan(t *testing.T) {
	t.Parallel()
	b := open(t, "pool_max_conns=1")
	closed, err := b.pool.Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, closed.Conn().Close(t.Context()))
	_, err = closed.Exec(t.Context(), "SELECT 1")
	require.Error(t, err)
	closed.Release()
	require.NoError(t, b.pool.Ping(t.Context()))

	require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error {
		tx, err := b.pool.Begin(ctx)
		require.NoError(t, err)
		raw := tx.Conn()
		inner, err := tx.Begin(ctx)
		require.NoError(t, err)
		require.Same(t, raw, inner.Conn())
		_, err = inner.Exec(ctx, "CREATE TABLE t (id int)")
		require.NoError(t, err)
		require.NoError(t, inner.Commit(ctx))
		require.Same(t, raw, tx.Conn())
		require.True(t, ask[bool](ctx, t, raw, "SELECT to_regclass('t') IS NOT NULL"))
		_, err = b.db.ExecContext(ctx, "SELECT 1")
		require.ErrorContains(t, err, "lent")
		require.NoError(t, tx.Commit(ctx))
		require.Nil(t, tx.Conn())
		return b.db.QueryRowContext(ctx, "SELECT count(*) FROM t").Scan(new(int))
	}))

	ctx, end := pooldriver.WithTask(t.Context())
	tx, err := b.pool.Begin(ctx)
	require.NoError(t, err)
	_, err = tx.Conn().Exec(ctx, "DROP TABLE t")
	require.NoError(t, err)
	end()
	require.NoError(t, tx.Rollback(ctx))
	require.Zero(t, ask[int](t.Context(), t, b.pool, "SELECT count(*) FROM t"))
	b.atRest(t)
}

// As with pgx, and unlike in a task.
func TestOpenRowsKeepTheirTransactionBusyWithoutATask(t *testing.T) {
	t.Parallel()
	b, ctx := open(t, "pool_max_conns=1"), t.Context()
	tx, err := b.pool.Begin(ctx)
	require.NoError(t, err)
	rows, err := tx.Query(ctx, "SELECT g FROM generate_series(1, 100000) g")
	require.NoError(t, err)
	require.True(t, rows.Next())
	_, err = tx.Exec(ctx, "SELECT 1")
	require.ErrorContains(t, err, "conn busy")
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	require.NoError(t, err)
	require.Len(t, ids, 99999)
	_, err = tx.Exec(ctx, "SELECT 1")
	require.NoError(t, err)
	require.NoError(t, tx.Commit(ctx))
	b.atRest(t)
}

// TestABatchIsReadWhileItsTaskGoesOn: the statements beside it read its results into memory at any moment.
func TestABatchIsReadWhileItsTaskGoesOn(t *testing.T) {
	t.Parallel()
	b := open(t, "pool_max_conns=1")
	var batch pgx.Batch
	for i := range 10 {
		batch.Queue("SELECT $1::int", i).QueryRow(func(row pgx.Row) error {
			var got int
			err := row.Scan(&got)
			assert.Equal(t, i, got)
			return err
		})
		batch.Queue("SELECT 'text', 1::int8 FROM generate_series(1, 3)").Query(func(rows pgx.Rows) error {
			texts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (text string, err error) { return text, row.Scan(&text, new(int64)) })
			assert.Equal(t, []string{"text", "text", "text"}, texts)
			return err
		})
	}
	for range 100 {
		require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error {
			var beside sync.WaitGroup
			defer beside.Wait()
			beside.Go(func() {
				for i := range 3 {
					var got int
					assert.NoError(t, b.pool.QueryRow(ctx, "SELECT $1::int", i).Scan(&got))
					assert.Equal(t, i, got)
				}
			})
			return b.pool.SendBatch(ctx, &batch).Close()
		}))
	}
	b.atRest(t)
}
