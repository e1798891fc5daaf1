package pgxface

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// TestRandomProgramsOfBothFacesDoWhatOneConnectionDoes runs programs from a seed. In one run each step goes by the pool of
// pgx or by the *sql.DB, all in one task; in the other run all steps go by a plain *pgx.Conn, with transactions and savepoints
// by hand. Both must have given the same answers, and must leave the same table.
func TestRandomProgramsOfBothFacesDoWhatOneConnectionDoes(t *testing.T) {
	t.Parallel()
	seed, seconds := randomtest.Seed(t), randomtest.Rounds(5, 300)
	const table = "CREATE TABLE t (id int PRIMARY KEY CHECK (id < 90), tenant text DEFAULT current_setting('app.tenant', true))"
	pools := []both{
		open(t, "pool_max_conns=1"), open(t, "pool_max_conns=1", "pool_lazy_begin=true"),
		open(t, "pool_max_conns=3", "pool_pipeline=16"), wrap(t, nil, one),
	}
	for _, b := range pools {
		_, err := b.pool.Exec(t.Context(), table)
		require.NoError(t, err)
	}
	conn, err := pgx.Connect(t.Context(), testbed.Shared(t, testbed.Postgres).NewAccount(t).URL())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	_, err = conn.Exec(t.Context(), table)
	require.NoError(t, err)

	end, programs, answers := time.Now().Add(time.Duration(seconds)*time.Second), 0, 0
	for ; time.Now().Before(end); programs++ {
		answers += runBothWays(t, seed+uint64(programs), pools[programs%len(pools)], conn)
	}
	t.Logf("%d programs, %d answers", programs, answers)
	for _, b := range pools {
		b.atRest(t)
		require.Zero(t, b.connector.Stats().BufferedBytes)
	}
}

func runBothWays(t *testing.T, seed uint64, b both, conn *pgx.Conn) (answers int) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	tenant := []string{"", fmt.Sprint("tenant ", seed)}[seed%2]
	inTask := ctx
	if tenant != "" {
		inTask = pooldriver.WithSettings(ctx, pooldriver.Settings{"app.tenant": tenant})
	}
	mixed := program{r: rand.New(rand.NewPCG(seed, 1))}
	require.NoError(t, pooldriver.Do(inTask, func(ctx context.Context) error {
		mixed.way = mixture{b, ctx, rand.New(rand.NewPCG(seed, 2))}
		mixed.block(3)
		return nil
	}))
	_, err := conn.Exec(ctx, "SELECT set_config('app.tenant', $1, false)", tenant)
	require.NoError(t, err)
	plain := program{way: &byHand{ctx: ctx, conn: conn}, r: rand.New(rand.NewPCG(seed, 1))}
	plain.block(3)

	const stored = "SELECT coalesce(array_agg(id || ' ' || coalesce(tenant, '') ORDER BY id), '{}') FROM t"
	require.Equal(t, plain.answers, mixed.answers, "POOLDRIVER_SEED=%d", seed)
	require.Equal(t, ask[[]string](ctx, t, conn, stored), ask[[]string](ctx, t, b.pool, stored), "POOLDRIVER_SEED=%d", seed)
	for _, q := range []face{conn, b.pool} {
		_, err := q.Exec(ctx, "DELETE FROM t")
		require.NoError(t, err)
	}
	return len(plain.answers)
}

// way is how the steps of a program reach the server.
type way interface {
	exec(text string, args ...any) (int64, error)
	count() (int, error)
	rows(inside func()) (ids []int, err error) // inside is called at one of the rows
	batch(b *pgx.Batch) (int64, error)
	copy(ids ...int) (int64, error)
	tx(inside func() (commits bool)) error // a savepoint, if a transaction is open
}

// program chooses steps, and remembers their answers.
type program struct {
	way
	r       *rand.Rand
	answers []string
	failed  bool // a step of the innermost transaction
}

func (p *program) tell(step string, answer any, err error) {
	of := "ok"
	if server := (*pgconn.PgError)(nil); errors.As(err, &server) {
		of = server.Code
	} else if err != nil {
		of = err.Error()
	}
	p.answers = append(p.answers, fmt.Sprint(step, " ", answer, " ", of))
	p.failed = p.failed || err != nil
}

func (p *program) block(depth int) {
	for range 1 + p.r.IntN(5) {
		a, b := p.r.IntN(20), p.r.IntN(20)
		switch step := p.r.IntN(9); {
		case step == 0:
			n, err := p.exec("INSERT INTO t VALUES (90)")
			p.tell("wrong", n, err)
		case step == 1:
			n, err := p.exec("DELETE FROM t WHERE id > $1", a)
			p.tell("delete", n, err)
		case step == 2:
			n, err := p.count()
			p.tell("count", n, err)
		case step == 3:
			var batch pgx.Batch
			batch.Queue("INSERT INTO t VALUES ($1)", a)
			batch.Queue("SELECT id FROM t")
			batch.Queue("INSERT INTO t VALUES ($1)", b)
			n, err := p.batch(&batch)
			p.tell("batch", n, err)
		case step == 4:
			n, err := p.copy(a, b)
			p.tell("copy", n, err)
		case step <= 6 && depth > 0:
			p.transaction(depth, a < 13)
		case step == 7 && depth > 0:
			ids, err := p.rows(func() { p.block(depth - 1) })
			p.tell("rows", ids, err)
		default:
			n, err := p.exec("INSERT INTO t VALUES ($1)", a)
			p.tell("insert", n, err)
		}
	}
}

// transaction rolls back if a statement in it has failed, as programs do.
func (p *program) transaction(depth int, commits bool) {
	before := p.failed
	err := p.tx(func() bool {
		p.failed = false
		p.block(depth - 1)
		return commits && !p.failed
	})
	p.failed = before
	p.tell("tx", commits, err)
}

// mixture takes one of the faces for each step.
type mixture struct {
	both
	ctx   context.Context
	faces *rand.Rand
}

func (m mixture) byPgx() bool { return m.faces.IntN(2) == 0 }

func (m mixture) exec(text string, args ...any) (int64, error) {
	if m.byPgx() {
		tag, err := m.pool.Exec(m.ctx, text, args...)
		return tag.RowsAffected(), err
	}
	res, err := m.db.ExecContext(m.ctx, text, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

const countText, rowsText = "SELECT count(*) FROM t WHERE id >= $1", "SELECT g FROM generate_series(1, $1) g"

func (m mixture) count() (n int, err error) {
	if m.byPgx() {
		err = m.pool.QueryRow(m.ctx, countText, 0).Scan(&n)
	} else {
		err = m.db.QueryRowContext(m.ctx, countText, 0).Scan(&n)
	}
	return n, err
}

func (m mixture) rows(inside func()) (ids []int, err error) {
	var rows interface {
		Next() bool
		Scan(...any) error
		Err() error
	}
	if m.byPgx() {
		pgxRows, err := m.pool.Query(m.ctx, rowsText, 30)
		if err != nil {
			return nil, err
		}
		defer pgxRows.Close()
		rows = pgxRows
	} else {
		sqlRows, err := m.db.QueryContext(m.ctx, rowsText, 30)
		if err != nil {
			return nil, err
		}
		defer sqlRows.Close()
		rows = sqlRows
	}
	for rows.Next() {
		var id int
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		if ids = append(ids, id); id == 10 {
			inside()
		}
	}
	return ids, rows.Err()
}

// batch looks at each result, so that an error is that of its own query.
func (m mixture) batch(b *pgx.Batch) (int64, error) { return send(m.ctx, m.pool, b) }

func send(ctx context.Context, to interface {
	SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
}, b *pgx.Batch) (n int64, err error) {
	results := to.SendBatch(ctx, b)
	for range b.QueuedQueries {
		tag, err := results.Exec()
		if err != nil {
			_ = results.Close()
			return n, err
		}
		n = 100*n + tag.RowsAffected()
	}
	return n, results.Close()
}

func copyIDs(ctx context.Context, to face, ids []int) (int64, error) {
	return to.CopyFrom(ctx, pgx.Identifier{"t"}, []string{"id"}, pgx.CopyFromSlice(len(ids), func(i int) ([]any, error) { return []any{ids[i]}, nil }))
}

func (m mixture) copy(ids ...int) (int64, error) { return copyIDs(m.ctx, m.pool, ids) }

func (m mixture) tx(inside func() bool) error {
	if m.byPgx() {
		tx, err := m.pool.Begin(m.ctx)
		if err != nil {
			return err
		}
		if inside() {
			return tx.Commit(m.ctx)
		}
		return tx.Rollback(m.ctx)
	}
	tx, err := m.db.BeginTx(m.ctx, nil)
	if err != nil {
		return err
	}
	if inside() {
		return tx.Commit()
	}
	return tx.Rollback()
}

// byHand has one connection of pgx.
type byHand struct {
	ctx   context.Context
	conn  *pgx.Conn
	depth int // of transactions
}

func (h *byHand) exec(text string, args ...any) (int64, error) {
	tag, err := h.conn.Exec(h.ctx, text, args...)
	return tag.RowsAffected(), err
}

func (h *byHand) count() (n int, err error) {
	err = h.conn.QueryRow(h.ctx, countText, 0).Scan(&n)
	return n, err
}

func (h *byHand) rows(inside func()) (ids []int, err error) {
	rows, err := h.conn.Query(h.ctx, rowsText, 30)
	if err != nil {
		return nil, err
	}
	if ids, err = pgx.CollectRows(rows, pgx.RowTo[int]); err == nil {
		inside()
	}
	return ids, err
}

func (h *byHand) batch(b *pgx.Batch) (int64, error) { return send(h.ctx, h.conn, b) }

func (h *byHand) copy(ids ...int) (int64, error) { return copyIDs(h.ctx, h.conn, ids) }

func (h *byHand) tx(inside func() bool) error {
	begin, commit, rollback := "BEGIN", "COMMIT", "ROLLBACK"
	if h.depth > 0 {
		name := fmt.Sprint("s", h.depth)
		begin, commit, rollback = "SAVEPOINT "+name, "RELEASE "+name, "ROLLBACK TO "+name
	}
	if _, err := h.exec(begin); err != nil {
		return err
	}
	h.depth++
	commits := inside()
	h.depth--
	text := rollback
	if commits {
		text = commit
	}
	_, err := h.exec(text)
	return err
}
