package behaviour

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
)

const insertOne = "INSERT INTO t VALUES (?)"

// openPlain opens a database whose driver would prepare every query with
// arguments, and nothing counted yet.
func openPlain(t *testing.T, options ...pooldriver.Option) (s *stubdialect.Stub, db *sql.DB, c *pooldriver.Connector, prepares func() int) {
	t.Helper()
	s, db, c = openStub(t, dialects.Traits{Reprepares: true}, options...)
	return s, db, c, func() int { return len(s.Server.Events(fakedb.ConnPrepareCtx)) }
}

func TestAPlainQueryIsPreparedAndKeptWhenItComesBack(t *testing.T) {
	s, db, c, prepares := openPlain(t)
	for i := range 5 {
		_, err := db.Exec(insertOne, i)
		require.NoError(t, err)
		require.Equal(t, min(i+1, 2), prepares(), "the first time it may be the only one")
		require.Equal(t, min(i, 1), s.Server.State().Prepared())
	}
	for i := range 5 {
		var n int
		require.NoError(t, db.QueryRow("SELECT a FROM t WHERE a = ?", i).Scan(&n))
		require.Equal(t, i, n)
	}
	require.Equal(t, 4, prepares())
	stmt, err := db.Prepare(insertOne)
	require.NoError(t, err)
	_, err = stmt.Exec(9)
	require.NoError(t, err)
	require.NoError(t, stmt.Close())
	require.Equal(t, 4, prepares(), "the program's statements are the same")
	require.EqualValues(t, 4, c.Stats().StmtMisses)
	require.Empty(t, s.Server.Events(fakedb.ConnExecCtx)[1:], "nothing but CREATE TABLE is sent as text")
	require.Empty(t, s.Server.Violations())
}

// What a server that keeps types would do to later arguments, the statement is not
// there to let it do.
func TestAKeptStatementIsExecutedWithArgumentsOfTheSameKindsOnly(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{Reprepares: true, PreparedKeepsTypes: true}, func(c *pooldriver.Config) { c.MaxConns = 1 })
	const echo = "SELECT ?"
	var prepared int
	run := func(arg any) (anew bool) {
		t.Helper()
		var got any
		require.NoError(t, db.QueryRow(echo, arg).Scan(&got))
		before := prepared
		prepared = len(s.Server.Events(fakedb.ConnPrepareCtx))
		return prepared > before
	}
	require.True(t, run(1))
	require.True(t, run(2), "kept from here on")
	for _, again := range []any{3, int64(4), nil, 5} {
		require.False(t, run(again), again)
	}
	for _, other := range []any{"a", 1.5, true, time.Now(), 6, []byte("b")} {
		require.True(t, run(other), other)
		require.False(t, run(other), other)
	}
	require.False(t, run("text, as bytes are"))
	require.False(t, run(nil))

	stmt, err := db.Prepare(echo)
	require.NoError(t, err)
	require.NoError(t, stmt.QueryRow(7).Scan(new(int)))
	require.NoError(t, stmt.Close())
	require.Equal(t, prepared+1, len(s.Server.Events(fakedb.ConnPrepareCtx)), "the last was text")
	prepared++
	require.False(t, run(8), "the program's statements are the same")
	require.Equal(t, 1, s.Server.State().Prepared(), "what did not fit is closed")
	require.Positive(t, c.Stats().StmtHits)
	require.Empty(t, s.Server.Violations())
}

func TestWhatASessionSetsEndsStatementsWhereTheyKeepTypes(t *testing.T) {
	for keeps, want := range map[bool]int{true: 1, false: 0} {
		s, db, _ := openStub(t, dialects.Traits{Reprepares: true, PreparedKeepsTypes: keeps})
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		ask := func() {
			require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT ?", 1).Scan(new(int)))
		}
		ask()
		ask()
		before := len(s.Server.Events(fakedb.ConnPrepareCtx))
		_, err = conn.ExecContext(t.Context(), "SET v = 1")
		require.NoError(t, err)
		ask()
		require.Equal(t, before+want, len(s.Server.Events(fakedb.ConnPrepareCtx)))
		require.NoError(t, conn.Close())
	}
}

func TestAQueryWithoutArgumentsIsNotPrepared(t *testing.T) {
	_, db, _, prepares := openPlain(t)
	for range 3 {
		_, err := db.Exec("INSERT INTO t VALUES (1)")
		require.NoError(t, err)
	}
	require.Zero(t, prepares())
}

func TestOneOffQueriesDoNotFlushTheCache(t *testing.T) {
	s, db, _, prepares := openPlain(t, func(c *pooldriver.Config) { c.StmtCache = 2 })
	for range 2 {
		_, err := db.Exec(insertOne, 1)
		require.NoError(t, err)
	}
	before := prepares()
	for i := range 50 {
		_, err := db.Exec(fmt.Sprintf("DELETE FROM t WHERE a = %d AND a = ?", i), 1)
		require.NoError(t, err)
	}
	require.Equal(t, before+50, prepares())
	_, err := db.Exec(insertOne, 1)
	require.NoError(t, err)
	require.Equal(t, before+50, prepares(), "it is still there")
	require.Equal(t, 1, s.Server.State().Prepared())
}

func TestTheBudgetIsSharedByAllConnections(t *testing.T) {
	s, db, _, _ := openPlain(t, func(c *pooldriver.Config) { c.MaxConns, c.StmtBudget = 1, 4 })
	for i := range 100 {
		_, err := db.Exec(fmt.Sprintf("DELETE FROM t WHERE a = %d AND a = ?", i%10), 1)
		require.NoError(t, err)
		require.LessOrEqual(t, s.Server.State().Prepared(), 3, "with the one that is being prepared, 4")
	}
	require.Equal(t, 3, s.Server.State().Prepared())
}

// TestTheErrorOfPreparingIsTheAnswer: the driver prepares too, so there is nothing
// else to try, and a text that failed once is kept when it works.
func TestTheErrorOfPreparingIsTheAnswer(t *testing.T) {
	s, db, _, prepares := openPlain(t)
	no := errors.New("locked")
	for _, c := range []struct {
		name string
		run  func() error
	}{
		{"exec", func() error { _, err := db.Exec(insertOne, 1); return err }}, // first: the query finds its row
		{"query", func() error { return db.QueryRow("SELECT a FROM t WHERE a = ?", 1).Scan(new(int)) }},
	} {
		before := prepares()
		s.Server.Fail(fakedb.ConnPrepareCtx, 1, no)
		require.ErrorIs(t, c.run(), no, c.name)
		require.Equal(t, before+1, prepares(), "it was asked once")
		for range 3 {
			require.NoError(t, c.run(), c.name)
		}
		require.Equal(t, before+2, prepares())
	}
	require.Empty(t, s.Server.Events(fakedb.ConnExecCtx)[1:])
}

// TestAFullServerGetsOurStatementsBack: its limit is for all its clients, and a
// connection without statements may be the one that meets it.
func TestAFullServerGetsOurStatementsBack(t *testing.T) {
	s, db, _, _ := openPlain(t, func(c *pooldriver.Config) { c.MaxConns = 2 })
	holder, err := db.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, holder.PingContext(t.Context()))
	for i := range 10 {
		_, err := db.Exec(fmt.Sprintf("DELETE FROM t WHERE a = %d AND a = ?", i/2), 1)
		require.NoError(t, err)
	}
	require.Equal(t, 5, s.Server.State().Prepared())
	s.Server.Fail(fakedb.ConnPrepareCtx, 1, stubdialect.ErrTooMany)
	_, err = holder.ExecContext(t.Context(), insertOne, 1)
	require.NoError(t, err)
	require.LessOrEqual(t, s.Server.State().Prepared(), 1)
	s.Server.Inject(fakedb.Fault{Call: fakedb.ConnPrepareCtx, Err: stubdialect.ErrTooMany, Times: 2})
	_, err = holder.PrepareContext(t.Context(), "SELECT 1")
	require.ErrorIs(t, err, stubdialect.ErrTooMany, "nothing of ours is left to give")
	require.NoError(t, holder.Close())
}

// TestADriversOwnStaleStatementIsRunAgainOutsideATransaction: pgx keeps
// prepared statements itself.
func TestADriversOwnStaleStatementIsRunAgainOutsideATransaction(t *testing.T) {
	s, db, _ := openStub(t, dialects.Traits{})
	type handle interface {
		Exec(query string, args ...any) (sql.Result, error)
		QueryRow(query string, args ...any) *sql.Row
	}
	for call, run := range map[fakedb.Call]func(handle) error{
		fakedb.ConnExecCtx: func(db handle) error {
			_, err := db.Exec(insertOne, 1)
			return err
		},
		fakedb.ConnQueryCtx: func(db handle) error {
			return db.QueryRow("SELECT n FROM numbers WHERE n = ? LIMIT 3", 1).Scan(new(int))
		},
	} {
		s.Server.Fail(call, 1, stubdialect.ErrStale)
		require.NoError(t, run(db))
		s.Server.Inject(fakedb.Fault{Call: call, Err: stubdialect.ErrStale, Times: maxRenewals})
		require.NoError(t, run(db), "an ALTER TABLE before each")
		s.Server.Inject(fakedb.Fault{Call: call, Err: stubdialect.ErrStale, Times: 1 + maxRenewals})
		require.ErrorIs(t, run(db), stubdialect.ErrStale, "not for ever")
		s.Server.Heal()
		tx, err := db.Begin()
		require.NoError(t, err)
		s.Server.Fail(call, 1, stubdialect.ErrStale)
		require.ErrorIs(t, run(tx), stubdialect.ErrStale)
		require.NoError(t, run(tx))
		require.NoError(t, tx.Commit())
	}
	require.Len(t, s.Server.Table("t"), 3)
}
