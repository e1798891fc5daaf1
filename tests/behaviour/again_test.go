package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
)

// The second and later executions of a text mean the same as the first.

func TestRowsOfAConnWhosePreparedPragmaActsKeepTheirConnection(t *testing.T) {
	db, c := openSQLite(t, false, filepath.Join(t.TempDir(), "x.db"), 1)
	mustExec(t, t.Context(), db, "CREATE TABLE t (a integer)")
	mustExec(t, t.Context(), db, "INSERT INTO t VALUES (1), (2)")
	const query = "SELECT a FROM t"
	for range 2 { // now the text is known
		var v int
		require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&v))
	}
	conn := takeConn(t, t.Context(), db)
	st, err := conn.PrepareContext(t.Context(), "PRAGMA recursive_triggers = ON")
	require.NoError(t, err)
	defer st.Close()
	rows, err := conn.QueryContext(t.Context(), query)
	require.NoError(t, err)
	require.True(t, rows.Next())
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = db.ExecContext(ctx, "CREATE TABLE other (a integer)")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Zero(t, c.Stats().Reclaims)
	require.NoError(t, rows.Close())
	on := 0
	require.NoError(t, conn.QueryRowContext(t.Context(), "PRAGMA recursive_triggers").Scan(&on))
	require.Equal(t, 1, on)
}

// takesForWrite is a dialect that takes a BEGIN for a text that only writes.
type takesForWrite struct{ *stubdialect.Stub }

func (takesForWrite) Effect(query string) dialects.Effect {
	if query == "BEGIN" {
		return dialects.Writes
	}
	return dialects.Clean
}

func TestAKnownTextThatLeavesATransactionOpenIsRolledBackEachTime(t *testing.T) {
	s := takesForWrite{stubdialect.New(dialects.Traits{ArgsAsGiven: true})}
	db, c := openDatabase(t, s, s.Server)
	for i := range 3 {
		mustExec(t, t.Context(), db, "BEGIN")
		require.Eventually(t, func() bool { return lent(c) == 0 }, 30*time.Second, time.Millisecond)
		require.EqualValues(t, i+1, c.Stats().Rollbacks)
		require.Zero(t, s.Server.State().InTx())
	}
}

// exclaiming is a stub whose statements add a mark to each string that they convert.
type exclaiming struct{ *stubdialect.Stub }

func (e exclaiming) Dial(ctx context.Context, cred *dialects.Credential) (dialects.Session, error) {
	s, err := e.Stub.Dial(ctx, cred)
	if err != nil {
		return nil, err
	}
	return exclaimingSession{s}, nil
}

type exclaimingSession struct{ dialects.Session }

func (s exclaimingSession) Unwrap() driver.Conn { return s.Session.Conn() }

func (s exclaimingSession) Conn() driver.Conn {
	c := s.Session.Conn()
	return exclaimingConn{c, c.(driver.ConnBeginTx), c.(driver.ExecerContext), c.(driver.ConnPrepareContext)}
}

type exclaimingConn struct {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.ConnPrepareContext
}

func (c exclaimingConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	st, err := c.ConnPrepareContext.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return exclaimingStmt{st, st.(driver.StmtExecContext)}, nil
}

type exclaimingStmt struct {
	driver.Stmt
	driver.StmtExecContext
}

func (exclaimingStmt) CheckNamedValue(v *driver.NamedValue) error {
	if s, ok := v.Value.(string); ok {
		v.Value = s + "!"
	}
	return nil
}

func TestArgumentsAreConvertedOnceAlsoIfTheKeptStatementDoesNotTakeThem(t *testing.T) {
	s := exclaiming{stubdialect.New(dialects.Traits{Reprepares: true, PreparedKeepsTypes: true})}
	db, _ := openDatabase(t, s, s.Server)
	const insert = "INSERT INTO t VALUES (?)"
	for range 3 {
		mustExec(t, t.Context(), db, insert, int64(1))
	}
	mustExec(t, t.Context(), db, insert, "x")
	rows := s.Server.Table("t")
	require.EqualValues(t, "x!", rows[len(rows)-1][0])
}

func TestATransactionThatIsEndedTwiceEndsNoOther(t *testing.T) {
	s := stubdialect.New(dialects.Traits{ArgsAsGiven: true})
	c := pooldriver.Wrap(stubdialect.Connector(s), quiet, maxConns(1))
	defer c.Close()
	conn, err := c.Connect(t.Context())
	require.NoError(t, err)
	exec := func(query string) {
		_, err := conn.(driver.ExecerContext).ExecContext(t.Context(), query, nil)
		require.NoError(t, err)
	}
	putBack := func() { require.True(t, conn.(driver.Validator).IsValid()) }
	begin := func() driver.Tx {
		tx, err := conn.(driver.ConnBeginTx).BeginTx(t.Context(), driver.TxOptions{})
		require.NoError(t, err)
		return tx
	}
	exec("CREATE TABLE t (a INT)")
	putBack()
	first := begin()
	require.NoError(t, first.Commit())
	require.ErrorIs(t, first.Rollback(), sql.ErrTxDone)
	putBack()
	second := begin()
	exec("INSERT INTO t VALUES (1)")
	require.ErrorIs(t, first.Rollback(), sql.ErrTxDone)
	require.NoError(t, second.Commit())
	require.Len(t, s.Server.Table("t"), 1)
	putBack()
}

// askingValue is an argument that asks the database for its value.
type askingValue struct {
	ctx context.Context
	db  *sql.DB
}

func (a askingValue) Value() (v driver.Value, err error) {
	err = a.db.QueryRowContext(a.ctx, "SELECT a FROM t").Scan(&v)
	return v, err
}

// TestKnownTextsInATask: on one connection each statement of the task has to find what the task has
// open, and a task that has nothing open takes the connection anew.
func TestKnownTextsInATask(t *testing.T) {
	server, db, c := openTasks(t, 1)
	insert := func(ctx context.Context, args ...any) error {
		_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (?)", args...)
		return err
	}
	get := func(ctx context.Context) (n int64, err error) {
		err = db.QueryRowContext(ctx, "SELECT a FROM t").Scan(&n)
		return n, err
	}
	for range 3 { // the texts are known from the second time on
		ctx, end := pooldriver.WithTask(t.Context())
		require.NoError(t, insert(ctx, int64(1)))
		require.Zero(t, lent(c), "the task holds nothing")
		n, err := get(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 1, n)

		rows, err := db.QueryContext(ctx, "SELECT a FROM t")
		require.NoError(t, err)
		require.True(t, rows.Next())
		require.NoError(t, insert(ctx, int64(1)), "beside the rows")
		require.NoError(t, rows.Close())

		require.NoError(t, insert(ctx, askingValue{ctx, db}), "an argument that uses the task")

		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		require.NoError(t, insert(ctx, int64(1)), "in the task's transaction")
		require.NoError(t, tx.Rollback())
		require.Len(t, server.Table("t"), 3)

		no := errors.New("no")
		server.Inject(fakedb.Fault{Text: "INSERT", Err: no})
		require.ErrorIs(t, insert(ctx, int64(1)), no)
		server.Inject(fakedb.Fault{Text: "INSERT", Panic: "boom"})
		require.PanicsWithValue(t, "boom", func() { _ = insert(ctx, int64(1)) })
		require.NoError(t, insert(ctx, int64(1)), "on a new connection")

		gate := fakedb.NewGate()
		server.Inject(fakedb.Fault{Text: "INSERT", Gate: gate})
		done := make(chan error)
		go func() { done <- insert(ctx, int64(1)) }()
		<-gate.Entered()
		end() // the statement's context ends with the task
		require.ErrorIs(t, <-done, pooldriver.ErrTaskEnded)
		require.ErrorIs(t, insert(ctx, int64(1)), context.Canceled, "by database/sql")
		atRest(t, c)
		server.Heal()
		mustExec(t, t.Context(), db, "DELETE FROM t")
	}
}

// TestAStatementMayBePreparedThatAsksLaterForWhatAnotherLeaves: the connection of the rows before it was
// taken back, but only an execution asks.
func TestAStatementMayBePreparedThatAsksLaterForWhatAnotherLeaves(t *testing.T) {
	db, c := openSQLite(t, false, filepath.Join(t.TempDir(), "x.db"), 1)
	mustExec(t, t.Context(), db, "CREATE TABLE t (a integer)")
	mustExec(t, t.Context(), db, "INSERT INTO t VALUES (1), (2)")
	conn := takeConn(t, t.Context(), db)
	rows, err := conn.QueryContext(t.Context(), "SELECT a FROM t")
	require.NoError(t, err)
	require.True(t, rows.Next())
	mustExec(t, t.Context(), db, "CREATE TABLE other (a integer)")
	require.NotZero(t, c.Stats().Reclaims)
	require.NoError(t, rows.Close())
	asks, err := conn.PrepareContext(t.Context(), "SELECT last_insert_rowid()")
	require.NoError(t, err)
	defer asks.Close()
	id := 0
	require.ErrorContains(t, asks.QueryRowContext(t.Context()).Scan(&id), "asks for what the statement before it has left")
	mustExec(t, t.Context(), conn, "INSERT INTO t VALUES (3)")
	require.NoError(t, asks.QueryRowContext(t.Context()).Scan(&id))
	require.Equal(t, 3, id)
}
