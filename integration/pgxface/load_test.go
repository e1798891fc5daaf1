package pgxface

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
	"github.com/pooldriver/pooldriver/pgxpooldriver"
)

type pair struct {
	Number int32
	Mood   string
}

// withTypes makes both over an account with types that each connection registers.
func withTypes(t *testing.T, parameters ...string) both {
	t.Helper()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	admin, err := pgx.Connect(t.Context(), account.URL())
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TYPE pair AS (number int, mood mood); CREATE TABLE t (id int)")
	require.NoError(t, err)
	require.NoError(t, admin.Close(t.Context()))
	connector := pooldriver.New(account.URL(parameters...), quiet, func(c *pooldriver.Config) {
		c.AfterConnect = func(ctx context.Context, dc driver.Conn) error {
			conn := dc.(*stdlib.Conn).Conn()
			for _, name := range []string{"mood", "_mood", "pair"} {
				own, err := conn.LoadType(ctx, name)
				if err != nil {
					return err
				}
				conn.TypeMap().RegisterType(own)
			}
			return nil
		}
	})
	b := both{account, connector, pgxpooldriver.New(connector), nil}
	t.Cleanup(func() { b.pool.Close() })
	return b
}

func TestTypesOfAfterConnect(t *testing.T) {
	t.Parallel()
	b, ctx := withTypes(t, "pool_max_conns=1"), t.Context()
	for range 2 {
		got := ask[pair](ctx, t, b.pool, "SELECT $1::pair", pair{7, "ok"})
		require.Equal(t, pair{7, "ok"}, got)
		require.Equal(t, []string{"sad", "ok"}, ask[[]string](ctx, t, b.pool, "SELECT $1::mood[]", []string{"sad", "ok"}))
		require.Equal(t, map[string]any{"number": int32(7), "mood": "ok"}, ask[any](ctx, t, b.pool, "SELECT $1::pair", pair{7, "ok"}))
	}
	n, err := b.pool.CopyFrom(ctx, pgx.Identifier{"t"}, []string{"id"}, pgx.CopyFromRows([][]any{{6}}))
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}

var errUndone = errors.New("undone")

// cutKey is the key of a *bool: whether a call of the work was cut, with the transaction around it.
type cutKey struct{}

// TestManyUseBothFacesAtOnce: with the race detector it sees who uses the memory of a connection that another one has.
func TestManyUseBothFacesAtOnce(t *testing.T) {
	t.Parallel()
	b := withTypes(t, "pool_max_conns=3")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for round := range randomtest.Rounds(12, 300) {
				r, cut := rand.New(rand.NewPCG(uint64(g), uint64(round))), false
				err := b.work(context.WithValue(ctx, cutKey{}, &cut), r, r.IntN(3))
				if err != nil && !(cut && errors.Is(err, pooldriver.ErrTxLost)) {
					t.Errorf("%d.%d: %v", g, round, err)
					return
				}
			}
		})
	}
	all.Wait()
	b.atRest(t)
	require.Zero(t, ask[int](ctx, t, b.pool, "SELECT count(*) FROM t"))
	require.Zero(t, b.connector.Stats().BufferedBytes)
}

// work does one piece of work, and others inside it.
func (b both) work(ctx context.Context, r *rand.Rand, depth int) error {
	within := func(ctx context.Context) error {
		if depth == 0 {
			return nil
		}
		return b.work(ctx, r, depth-1)
	}
	inTask := func(f func(context.Context) error) error { return pooldriver.Do(ctx, f) } // so that nothing waits for itself
	switch r.IntN(5) {
	case 0:
		return inTask(func(ctx context.Context) error {
			rows, err := b.pool.Query(ctx, "SELECT (g, CASE g % 2 WHEN 0 THEN 'ok' ELSE 'sad' END::mood)::pair, 'text ' || g FROM generate_series(1, $1) g", 200)
			if err != nil {
				return err
			}
			defer rows.Close()
			stop, at := 1+r.IntN(250), 1+r.IntN(200)
			for n := int32(1); rows.Next() && int(n) < stop; n++ {
				var p pair
				var text string
				if err := rows.Scan(&p, &text); err != nil {
					return err
				}
				if want := (pair{n, []string{"ok", "sad"}[n%2]}); p != want || text != fmt.Sprint("text ", n) {
					return fmt.Errorf("got %v %s, want %v", p, text, want)
				}
				if int(n) == at {
					if err := within(ctx); err != nil {
						return err
					}
				}
			}
			return rows.Err()
		})
	case 1:
		return inTask(func(ctx context.Context) error {
			err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
				for range 2 {
					if _, err := tx.Exec(ctx, "INSERT INTO t VALUES ($1)", r.IntN(9)); err != nil {
						return err
					}
				}
				if err := within(ctx); err != nil {
					return err
				}
				var n int
				if err := b.pool.QueryRow(ctx, "SELECT count(*) FROM t").Scan(&n); err != nil || n < 2 {
					return fmt.Errorf("%d rows, %w", n, err)
				}
				return errUndone
			})
			if errors.Is(err, errUndone) {
				return nil
			}
			return err
		})
	case 2:
		return inTask(func(ctx context.Context) error {
			var batch pgx.Batch
			batch.Queue("SELECT g, $1::mood FROM generate_series(1, 50) g", "sad")
			batch.Queue("SELECT ARRAY['ok', 'sad']::mood[]")
			results := b.pool.SendBatch(ctx, &batch)
			defer results.Close()
			rows, err := results.Query()
			if err != nil {
				return err
			}
			var sum, g int
			var mood string
			if _, err := pgx.ForEachRow(rows, []any{&g, &mood}, func() error {
				if sum += g; g == 20 {
					return within(ctx)
				}
				return nil
			}); err != nil || sum != 50*51/2 || mood != "sad" {
				return fmt.Errorf("sum %d, %s: %w", sum, mood, err)
			}
			var moods []string
			if err := results.QueryRow().Scan(&moods); err != nil || len(moods) != 2 {
				return fmt.Errorf("%v: %w", moods, err)
			}
			return results.Close()
		})
	case 3:
		rows, err := b.pool.Query(ctx, "SELECT g FROM generate_series(1, 300) g")
		if err != nil {
			return err
		}
		got, err := pgx.CollectRows(rows, pgx.RowTo[int])
		if err != nil || len(got) != 300 {
			return fmt.Errorf("%d rows: %w", len(got), err)
		}
		return nil
	}
	short, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(3000))*time.Microsecond)
	defer cancel()
	_, err := b.pool.Exec(short, "SELECT pg_sleep(0.001)")
	if short.Err() != nil {
		*ctx.Value(cutKey{}).(*bool) = true
		return nil
	}
	return err
}
