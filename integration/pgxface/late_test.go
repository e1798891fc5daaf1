package pgxface

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// waitInPgxFace waits until n goroutines wait for a lock in calls of package pgxpooldriver.
func waitInPgxFace(t *testing.T, n int) {
	t.Helper()
	stacks := make([]byte, 4<<20)
	require.Eventually(t, func() bool {
		waiting := 0
		for stack := range bytes.SplitSeq(stacks[:runtime.Stack(stacks, true)], []byte("\n\n")) {
			if bytes.Contains(stack, []byte("[sync.Mutex.Lock")) && bytes.Contains(stack, []byte("pgxface.late(")) {
				waiting++
			}
		}
		return waiting >= n
	}, 20*time.Second, time.Millisecond)
}

// late calls fn. Its name is in the stack.
//
//go:noinline
func late(fn func() error) error { return fn() }

// TestACallThatMeetsTheEndOfItsTransactionIsPartOfItOrAnError: it waits for the transaction's statement, behind the end, and after
// that another borrower may have the connection.
func TestACallThatMeetsTheEndOfItsTransactionIsPartOfItOrAnError(t *testing.T) {
	b := open(t, "pool_max_conns=1")
	witness := b.Witness(t)
	_, err := b.pool.Exec(t.Context(), "CREATE TABLE t (id int, xid xid8 DEFAULT pg_current_xact_id())")
	require.NoError(t, err)
	const insert = "INSERT INTO t VALUES (2)"
	calls := map[string]func(ctx context.Context, tx pgx.Tx) error{
		"Exec": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, insert); return err },
		"QueryRow": func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, insert+" RETURNING id").Scan(new(int))
		},
		"SendBatch": func(ctx context.Context, tx pgx.Tx) error { return tx.SendBatch(ctx, batchOf(insert)).Close() },
		"CopyFrom": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"t"}, []string{"id"}, pgx.CopyFromRows([][]any{{2}}))
			return err
		},
		"Begin": func(ctx context.Context, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error { _, err := inner.Exec(ctx, insert); return err })
		},
	}
	for name, call := range calls {
		for end, how := range map[string]func(pgx.Tx, context.Context) error{"commit": pgx.Tx.Commit, "rollback": pgx.Tx.Rollback} {
			_, err := witness.Exec("TRUNCATE t")
			require.NoError(t, err)
			holder, err := witness.Conn(t.Context())
			require.NoError(t, err)
			_, err = holder.ExecContext(t.Context(), "SELECT pg_advisory_lock(1)")
			require.NoError(t, err)
			tx, release := begun(t, b, end == "rollback")
			_, err = tx.Exec(t.Context(), "INSERT INTO t VALUES (1)")
			require.NoError(t, err)

			var all sync.WaitGroup
			var ended, called error
			all.Go(func() { _, _ = tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(1)") })
			require.Eventually(t, func() (waits bool) {
				return witness.QueryRow("SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").Scan(&waits) == nil && waits
			}, 20*time.Second, time.Millisecond)
			all.Go(func() {
				ended = late(func() (err error) {
					for again := true; again; again = err != nil && strings.Contains(err.Error(), "a CopyFrom of this transaction is running") {
						err = how(tx, t.Context())
					}
					return err
				})
			})
			waitInPgxFace(t, 1)
			all.Go(func() { called = late(func() error { return call(t.Context(), tx) }) })
			waitInPgxFace(t, 2)
			_, err = holder.ExecContext(t.Context(), "SELECT pg_advisory_unlock(1)")
			require.NoError(t, err)
			require.NoError(t, holder.Close())
			all.Wait()
			release()

			require.NoError(t, ended)
			what := name + " beside " + end
			var outside, inside int
			require.NoError(t, witness.QueryRow(`SELECT count(*) FILTER (WHERE xid NOT IN (SELECT xid FROM t WHERE id = 1)), count(*) FILTER (WHERE id = 2)
				FROM t`).Scan(&outside, &inside))
			require.Zero(t, outside, what)
			if errors.Is(called, pgx.ErrTxClosed) {
				require.Zero(t, inside, what)
			}
			b.atRest(t)
		}
	}
}

// begun is a transaction of the pool, or of a Conn.
func begun(t *testing.T, b both, ofConn bool) (tx pgx.Tx, release func()) {
	t.Helper()
	if !ofConn {
		tx, err := b.pool.Begin(t.Context())
		require.NoError(t, err)
		return tx, func() {}
	}
	c, err := b.pool.Acquire(t.Context())
	require.NoError(t, err)
	tx, err = c.Begin(t.Context())
	require.NoError(t, err)
	return tx, c.Release
}

// TestRowsThatAreReadWhileTheirTransactionEndsAreRightOrAnError: their goroutine may be in the middle of a row, and another borrower
// may read by the same connection.
func TestRowsThatAreReadWhileTheirTransactionEndsAreRightOrAnError(t *testing.T) {
	const text = "SELECT $1::text, g, repeat($1::text, 20) FROM generate_series(1, 3000) g"
	b := open(t, "pool_max_conns=2")
	query := map[string]func(tx pgx.Tx, mark string) (pgx.Rows, error){
		"Query": func(tx pgx.Tx, mark string) (pgx.Rows, error) { return tx.Query(t.Context(), text, mark) },
		"SendBatch": func(tx pgx.Tx, mark string) (pgx.Rows, error) {
			batch := &pgx.Batch{}
			batch.Queue(text, mark)
			return tx.SendBatch(t.Context(), batch).Query()
		},
	}
	for name, query := range query {
		for round := range 60 {
			tx, err := b.pool.Begin(t.Context())
			require.NoError(t, err)
			mark := strings.Repeat("x", 1+round%7)
			rows, err := query(tx, mark)
			require.NoError(t, err)
			read, done := make(chan struct{}, 1), make(chan error, 1)
			go func() {
				defer close(read) // it may have read all rows before the test looks
				for rows.Next() {
					var s, twenty string
					var n int
					if rows.Scan(&s, &n, &twenty) == nil && (s != mark || twenty != strings.Repeat(mark, 20)) {
						t.Errorf("%s: %q in place of %q", name, s, mark)
					}
					_, _ = rows.Values()
					select {
					case read <- struct{}{}:
					default:
					}
				}
				done <- rows.Err()
			}()
			for range 1 + round%3 {
				<-read
			}
			require.NoError(t, tx.Rollback(t.Context()))
			_, err = b.pool.Exec(t.Context(), "SELECT 1")
			require.NoError(t, err)
			if err := <-done; err != nil {
				require.ErrorContains(t, err, "read or close them before")
			}
		}
	}
}
