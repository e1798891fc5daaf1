package pooldriver

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

func TestAStatementClosedAndPreparedAgainIsOfNowWherePreparedStatementsAge(t *testing.T) {
	for _, ages := range []bool{false, true} {
		s, db, c := openStub(t, dialects.Traits{PreparedAges: ages})
		prepares := func() int { return len(s.Server.Events(fakedb.ConnPrepareCtx)) }
		again := func() *sql.Stmt {
			stmt, err := db.Prepare("INSERT INTO t VALUES (?)")
			require.NoError(t, err)
			_, err = stmt.Exec(1)
			require.NoError(t, err)
			return stmt
		}
		first := again()
		second := again()
		require.Equal(t, 1, prepares(), "two users of one text share it")
		require.NoError(t, first.Close())
		require.NoError(t, second.Close())
		require.NoError(t, again().Close())
		require.Equal(t, map[bool]int{false: 1, true: 2}[ages], prepares())
		require.Equal(t, 1, s.Server.State().Prepared())
		require.Zero(t, c.pool.Generations.Len())
	}
}

func TestEditionsEndWithTheirStatementsHoweverThoseEnd(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{PreparedAges: true})
	s.Server.Inject(fakedb.Fault{Call: fakedb.ConnPrepareCtx, Panic: "boom"})
	require.Panics(t, func() { _, _ = db.Prepare("SELECT 1") })
	require.Zero(t, c.pool.Generations.Len())
	s.Server.Fail(fakedb.ConnPrepareCtx, 1, errors.New("no"))
	_, err := db.Prepare("SELECT 1")
	require.Error(t, err)
	require.Zero(t, c.pool.Generations.Len())
	tx, err := db.Begin()
	require.NoError(t, err)
	_, err = tx.Prepare("SELECT 1")
	require.NoError(t, err)
	s.Server.Fail(fakedb.TxCommit, 1, driver.ErrBadConn)
	require.ErrorIs(t, tx.Commit(), driver.ErrBadConn)
	require.Zero(t, c.pool.Generations.Len())
}

func TestAStatementIsPreparedOnceInATasksTransactionWherePreparedStatementsAge(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{PreparedAges: true})
	prepares := func() int { return len(s.Server.Events(fakedb.ConnPrepareCtx)) }
	ctx, end := WithTask(t.Context())
	use := func() {
		stmt, err := db.PrepareContext(ctx, "INSERT INTO t VALUES (?)")
		require.NoError(t, err)
		for i := range 3 {
			_, err = stmt.ExecContext(ctx, i)
			require.NoError(t, err)
		}
		require.NoError(t, stmt.Close())
	}
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	use()
	mustExec(t, ctx, db, "INSERT INTO t VALUES (4)")
	use()
	require.Equal(t, 1, prepares(), "its tables are locked until the transaction ends")
	mustExec(t, ctx, db, "CREATE TABLE other (a INT)")
	use()
	require.Equal(t, 2, prepares(), "the transaction may have changed them itself")
	inner, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	use()
	require.Equal(t, 2, prepares())
	require.NoError(t, inner.Rollback())
	use()
	require.Equal(t, 3, prepares(), "locks were let go")
	require.NoError(t, tx.Commit())
	use()
	require.Equal(t, 4, prepares(), "it was prepared again, so it is valid")
	_, err = db.BeginTx(ctx, nil)
	require.NoError(t, err)
	use()
	require.Equal(t, 5, prepares())
	end()
	require.Zero(t, c.pool.Generations.Len())
	require.Len(t, s.Server.Table("t"), 16, "the savepoint's and the last one's were rolled back")
}

// TestAStatementPreparedAgainInATasksSessionIsOfNow: the session's state locks no
// tables, so others may have changed them since.
func TestAStatementPreparedAgainInATasksSessionIsOfNow(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{PreparedAges: true})
	prepares := func() int { return len(s.Server.Events(fakedb.ConnPrepareCtx)) }
	ctx, end := WithTask(t.Context())
	defer end()
	mustExec(t, ctx, db, "SET a = 1")
	for range 3 {
		before := prepares()
		stmt, err := db.PrepareContext(ctx, "INSERT INTO t VALUES (?)")
		require.NoError(t, err)
		require.Equal(t, before+1, prepares())
		_, err = stmt.ExecContext(ctx, 1)
		require.NoError(t, err)
		require.NoError(t, stmt.Close())
		require.Equal(t, 1, s.Server.State().Prepared(), "the old one is closed")
		require.Zero(t, c.pool.Generations.Len())
	}
}
