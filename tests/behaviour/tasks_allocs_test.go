package behaviour

import (
	"context"
	"database/sql/driver"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// nullConn is what is called here of a virtual connection, and of the driver's
// own, in place of database/sql.
type nullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.Validator
}

func connectNull(t *testing.T, c driver.Connector) nullConn {
	conn, err := c.Connect(t.Context())
	require.NoError(t, err)
	return conn.(nullConn)
}

// TestAStatementOfATaskAllocatesNothing measures below database/sql, where
// every allocation but the driver's would be ours.
func TestAStatementOfATaskAllocatesNothing(t *testing.T) {
	args := []driver.NamedValue{{Ordinal: 1, Value: int64(1)}, {Ordinal: 2, Value: "x"}}
	exec := func(t *testing.T, ctx context.Context, c nullConn) {
		if _, err := c.ExecContext(ctx, "insert into t values (?, ?)", args); err != nil {
			t.Fatal(err)
		}
	}
	checkout := func(t *testing.T, ctx context.Context, c nullConn) {
		exec(t, ctx, c)
		if !c.IsValid() {
			t.Fatal("the checkout's end says that the connection is not valid")
		}
	}
	joins := func(t *testing.T, ctx context.Context, c nullConn) {
		exec(t, ctx, c)
		_ = c.IsValid() // false: it is owed to the task, and database/sql makes another one
	}
	begin := func(t *testing.T, ctx context.Context, c nullConn) nullConn {
		tx, err := c.BeginTx(ctx, driver.TxOptions{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, tx.Rollback()) })
		return c
	}
	for name, tc := range map[string]struct {
		// prepare returns the virtual connection that run is called with.
		prepare func(*testing.T, context.Context, *pooldriver.Connector) nullConn
		run     func(*testing.T, context.Context, nullConn)
	}{
		"the transaction's own": {
			func(t *testing.T, ctx context.Context, c *pooldriver.Connector) nullConn {
				return begin(t, ctx, connectNull(t, c))
			}, exec},
		"one that joins the transaction": {
			func(t *testing.T, ctx context.Context, c *pooldriver.Connector) nullConn {
				begin(t, ctx, connectNull(t, c))
				return connectNull(t, c)
			}, joins},
		"one of a task that holds nothing": {
			func(t *testing.T, _ context.Context, c *pooldriver.Connector) nullConn { return connectNull(t, c) }, checkout},
	} {
		t.Run(name, func(t *testing.T) {
			connector := pooldriver.Wrap(fakedb.NullConnector{})
			t.Cleanup(func() { require.NoError(t, connector.Close()) })
			ctx, end := pooldriver.WithTask(context.Background()) // t's ends before the clean-up
			t.Cleanup(end)
			conn := tc.prepare(t, ctx, connector)
			bare := connectNull(t, fakedb.NullConnector{})
			driverOnly := testing.AllocsPerRun(500, func() { tc.run(t, ctx, bare) })
			ours := testing.AllocsPerRun(500, func() { tc.run(t, ctx, conn) })
			require.LessOrEqual(t, ours, driverOnly)
		})
	}
}

// TestATaskThatUsesNoDatabaseCostsLittle counts the allocations of the context within, too, which
// are two. docs/tasks.md has the bytes.
func TestATaskThatUsesNoDatabaseCostsLittle(t *testing.T) {
	// t.Context can be cancelled, as that of a request can.
	for name, parent := range map[string]context.Context{"of the background": context.Background(), "of a request": t.Context()} {
		t.Run(name, func(t *testing.T) {
			require.LessOrEqual(t, testing.AllocsPerRun(500, func() {
				_, end := pooldriver.WithTask(parent)
				end()
			}), 4.0)
			const rounds = 1000
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range rounds {
				_, end := pooldriver.WithTask(parent)
				end()
			}
			runtime.ReadMemStats(&after)
			require.LessOrEqual(t, (after.TotalAlloc-before.TotalAlloc)/rounds, uint64(230))
		})
	}
}
