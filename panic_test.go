package pooldriver

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

func TestAPanicWhileStatementsAreGivenBackLosesNoPlace(t *testing.T) {
	server, db, c := openTasks(t, 3)
	var conns []*sql.Conn
	for range 3 {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		stmt, err := conn.PrepareContext(t.Context(), "SELECT 1")
		require.NoError(t, err)
		require.NoError(t, stmt.Close())
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		require.NoError(t, conn.Close())
	}
	server.Inject(fakedb.Fault{Call: fakedb.StmtClose, Skip: 1, Panic: "boom"})
	require.PanicsWithValue(t, "boom", func() { c.pool.Conns()[0].StatementsExhausted() })
	atRest(t, c)
	require.Eventually(t, func() bool { return c.Stats().Pool.Count == 2 }, 30*time.Second, time.Millisecond)
}

// TestAConnectionIsReplacedAfterSoManyForgottenStatements: the driver may count them.
func TestAConnectionIsReplacedAfterSoManyForgottenStatements(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{})
	s.OnClean = func() (bool, error) { return false, nil }
	forget := func() *stmtcache.Cache {
		stmt, err := db.Prepare("SELECT 1")
		require.NoError(t, err)
		require.NoError(t, stmt.Close())
		mustExec(t, t.Context(), db, "SET a = 1")
		atRest(t, c)
		require.NoError(t, db.Ping())
		return c.pool.Conns()[0].Session.Statements()
	}
	kept := forget()
	require.Equal(t, 1, kept.Forgotten())
	for i := range 10_000 {
		kept.Add(fmt.Sprint(i), 0, countless{}, true)
		kept.Forget()
	}
	require.Zero(t, forget().Forgotten())
	require.Equal(t, 2, s.Server.State().Opened)
}

// countless stands in for a driver's statement.
type countless struct{ driver.Stmt }

func (countless) NumInput() int { panic("boom") }
func (countless) Close() error  { return nil }

func TestAPanicOfNumInputCostsNoPlaceInThePool(t *testing.T) {
	for _, tasks := range []bool{false, true} {
		server, db, c := openTasks(t, 1)
		ctx, end := t.Context(), func() {}
		if tasks {
			ctx, end = WithTask(ctx)
		}
		require.NoError(t, insertTwo(ctx, db))
		const text = "INSERT INTO t VALUES (?)"
		c.pool.Conns()[0].Session.Statements().Add(text, 0, countless{}, true)
		stmt, err := db.PrepareContext(ctx, text)
		require.NoError(t, err)
		require.PanicsWithValue(t, "boom", func() { _, _ = stmt.ExecContext(ctx, 3) })
		soon(t, "another statement", func() { require.NoError(t, insertTwo(ctx, db)) })
		require.Equal(t, 2, server.State().Opened, "the first connection is not used again")
		end()
		atRest(t, c)
	}
}
