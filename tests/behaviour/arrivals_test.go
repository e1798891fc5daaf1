package behaviour

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// TestWhatHasALabelIsCountedWhenItArrives: once for each checkout, however many statements it has, and whether it finds a connection or
// not.
func TestWhatHasALabelIsCountedWhenItArrives(t *testing.T) {
	t.Parallel()
	_, db, c := openTasks(t, 1)
	ctx := pooldriver.Label(t.Context(), "POST /pay")
	counted := func() uint64 {
		n := uint64(0)
		for _, a := range c.Stats().Arrivals {
			require.Equal(t, "POST /pay", a.Label)
			n += a.Count
		}
		return n
	}
	mustExec(t, t.Context(), db, "INSERT INTO t VALUES (1)")
	require.Zero(t, counted(), "it has no label")
	for range 3 {
		mustExec(t, ctx, db, "INSERT INTO t VALUES (1)")
	}
	require.Equal(t, uint64(3), counted())

	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	mustExec(t, ctx, tx, "INSERT INTO t VALUES (2)")
	mustExec(t, ctx, tx, "INSERT INTO t VALUES (3)")
	require.Equal(t, uint64(4), counted())
	gaveUp, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() { _, _ = db.ExecContext(gaveUp, "INSERT INTO t VALUES (4)") })
	}
	require.Eventually(t, func() bool { return c.Stats().Pool.Waiting == 2 }, 30*time.Second, time.Millisecond)
	require.Equal(t, uint64(6), counted(), "they wait")
	cancel()
	all.Wait()
	require.NoError(t, tx.Rollback())

	task, end := pooldriver.WithTask(ctx)
	mustExec(t, task, db, "INSERT INTO t VALUES (5)")
	end()
	require.Equal(t, uint64(7), counted())
}

// TestADeferredTransactionIsCountedByTheLabelOfItsBeginTx: its first statement takes the connection.
func TestADeferredTransactionIsCountedByTheLabelOfItsBeginTx(t *testing.T) {
	t.Parallel()
	_, db, c := openStub(t, dialects.Traits{}, func(c *pooldriver.Config) { c.LazyBegin = true })
	tx, err := db.BeginTx(pooldriver.Label(t.Context(), "job"), nil)
	require.NoError(t, err)
	mustExec(t, t.Context(), tx, "INSERT INTO t VALUES (1)")
	require.NoError(t, tx.Rollback())
	require.Len(t, c.Stats().Arrivals, 1)
	require.Equal(t, "job", c.Stats().Arrivals[0].Label)
	require.Equal(t, uint64(1), c.Stats().Arrivals[0].Count)
}

// TestAStatementWhoseCallerHasGoneIsNoErrorOfTheServer: its class is "ended", and that of a driver without SQLSTATE is "other".
func TestAStatementWhoseCallerHasGoneIsNoErrorOfTheServer(t *testing.T) {
	t.Parallel()
	s, db, c := openTasks(t, 1)
	mustExec(t, t.Context(), db, "INSERT INTO t VALUES (1)")
	require.Empty(t, c.Stats().StatementErrors)
	for _, err := range []error{context.DeadlineExceeded, errors.New("broken")} {
		s.Inject(fakedb.Fault{Text: "INSERT", Err: err})
		_, got := db.ExecContext(t.Context(), "INSERT INTO t VALUES (2)")
		require.ErrorIs(t, got, err)
	}
	require.Equal(t, map[string]uint64{"ended": 1, "other": 1}, c.Stats().StatementErrors)
}
