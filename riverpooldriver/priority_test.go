package riverpooldriver

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/riverqueue/river/riverdriver"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/pgxpooldriver"
)

var errRecorded = errors.New("recorded")

// recorder notes the priority of each query by its name, and of each transaction by that of its first query.
type recorder struct {
	pgx.Tx
	queries, begins map[string]pooldriver.Priority
	begun           *pooldriver.Priority // of a transaction that waits for its first query
}

func (r *recorder) note(ctx context.Context, sql string) {
	name := strings.Fields(sql + " - - -")[2]
	r.queries[name] = task.PlaceOf(ctx).Priority
	if r.begun != nil {
		r.begins[name], r.begun = *r.begun, nil
	}
}

func (r *recorder) Exec(ctx context.Context, sql string, _ ...any) (pgconn.CommandTag, error) {
	r.note(ctx, sql)
	return pgconn.CommandTag{}, errRecorded
}

func (r *recorder) Query(ctx context.Context, sql string, _ ...any) (pgx.Rows, error) {
	r.note(ctx, sql)
	return nil, errRecorded
}

func (r *recorder) QueryRow(ctx context.Context, sql string, _ ...any) pgx.Row {
	r.note(ctx, sql)
	return failed{} // no error: other queries follow that for the server's version
}

func (r *recorder) CopyFrom(ctx context.Context, _ pgx.Identifier, _ []string, _ pgx.CopyFromSource) (int64, error) {
	r.note(ctx, "")
	return 0, errRecorded
}

func (r *recorder) Begin(ctx context.Context) (pgx.Tx, error) {
	p := task.PlaceOf(ctx).Priority
	r.begun = &p
	return r, nil
}

// TestWhatAClientNeedsIsOfHighPriority calls each method that runs a query, alone and as the first of a transaction. It fails if
// a release of River has other names.
func TestWhatAClientNeedsIsOfHighPriority(t *testing.T) {
	t.Parallel()
	r := &recorder{queries: map[string]pooldriver.Priority{}, begins: map[string]pooldriver.Priority{}}
	methods := reflect.TypeFor[riverdriver.Executor]()
	for i := range methods.NumMethod() {
		m := methods.Method(i)
		if m.Type.NumIn() > 2 || m.Name == "Begin" || m.Name == "Ping" || m.Name == "PGAdvisoryXactLock" {
			continue
		}
		args := []reflect.Value{reflect.ValueOf(t.Context())}
		if m.Type.NumIn() == 2 {
			args = append(args, reflect.New(m.Type.In(1).Elem()))
		}
		pool := New(nil).own().UnwrapExecutor(executor{statements: r})
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		for _, on := range []riverdriver.Executor{pool, tx} {
			reflect.ValueOf(on).MethodByName(m.Name).Call(args)
		}
	}
	for _, name := range needed {
		require.Contains(t, r.queries, name)
		if name != "PGGetProductAndVersion" { // which a driver asks once
			require.Contains(t, r.begins, name)
		}
	}
	for _, noted := range []map[string]pooldriver.Priority{r.queries, r.begins} {
		for name, priority := range noted {
			require.Equal(t, slices.Contains(needed, name), priority == pooldriver.PriorityHigh, name)
		}
	}
	require.Contains(t, r.begins, "JobInsertFastMany")
	require.Contains(t, r.queries, "JobGetAvailable")
}

func TestATransactionThatCannotBeginFailsWithItsFirstStatement(t *testing.T) {
	t.Parallel()
	ctx, p := t.Context(), pgxpooldriver.New(pooldriver.New("postgres://nobody@localhost/x"))
	p.Close()
	pool := executor{statements: p}
	for _, call := range []func(pgx.Tx) error{
		func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "SELECT 1"); return err },
		func(tx pgx.Tx) error { _, err := tx.Query(ctx, "SELECT 1"); return err },
		func(tx pgx.Tx) error { return tx.QueryRow(ctx, "SELECT 1").Scan() },
		func(tx pgx.Tx) error { return tx.SendBatch(ctx, &pgx.Batch{}).Close() },
		func(tx pgx.Tx) error { _, err := tx.CopyFrom(ctx, nil, nil, nil); return err },
		func(tx pgx.Tx) error { _, err := tx.Prepare(ctx, "", "SELECT 1"); return err },
		func(tx pgx.Tx) error { _, err := tx.Begin(ctx); return err },
	} {
		tx, err := pool.Begin(ctx)
		require.NoError(t, err)
		require.ErrorIs(t, call(tx), riverdriver.ErrClosedPool)
		require.ErrorIs(t, tx.Commit(ctx), riverdriver.ErrClosedPool)
		require.ErrorIs(t, tx.Rollback(ctx), pgx.ErrTxClosed)
	}
}
