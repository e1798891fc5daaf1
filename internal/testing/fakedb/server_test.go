package fakedb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// open returns a database over a server, which must end with nothing left
// open and no violation.
func open(t *testing.T, v Variant) (*sql.DB, *Server) {
	t.Helper()
	server := NewServer()
	db := sql.OpenDB(server.Connector(v))
	t.Cleanup(func() {
		require.NoError(t, db.Close())
		require.Zero(t, server.State().Open())
		require.Empty(t, server.Violations())
	})
	return db, server
}

func mustExec(t *testing.T, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, text string, args ...any) sql.Result {
	t.Helper()
	res, err := db.ExecContext(t.Context(), text, args...)
	require.NoError(t, err, text)
	return res
}

func count(t *testing.T, db *sql.DB, text string, args ...any) int {
	t.Helper()
	var n int
	require.NoError(t, db.QueryRowContext(t.Context(), text, args...).Scan(&n))
	return n
}

func TestTablesHoldWhatWasWrittenOnEveryVariant(t *testing.T) {
	for _, v := range Variants() {
		t.Run(v.Name, func(t *testing.T) {
			db, server := open(t, v)
			mustExec(t, db, "CREATE TABLE t (a INT NOT NULL, b TEXT)")
			mustExec(t, db, "INSERT INTO t VALUES (?, ?), (2, NULL)", 1, "it's")
			res := mustExec(t, db, "UPDATE t SET b = 'two' WHERE a = 2")
			n, err := res.RowsAffected()
			require.NoError(t, err)
			require.Equal(t, int64(1), n)
			require.Equal(t, 1, count(t, db, "SELECT count(*) FROM t WHERE b = ?", "it's"))
			mustExec(t, db, "DELETE FROM t WHERE a = ?", 1)
			require.Equal(t, [][]any{{int64(2), "two"}}, server.Table("t"))
			mustExec(t, db, "DROP TABLE t")
			require.Nil(t, server.Table("t"))
		})
	}
}

func TestRollbackUndoesAndCommitKeeps(t *testing.T) {
	db, server := open(t, Variant{Features: All})
	mustExec(t, db, "CREATE TABLE t (a INT)")
	mustExec(t, db, "INSERT INTO t VALUES (1)")

	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
	require.NoError(t, err)
	require.Equal(t, 1, server.State().InTx())
	require.Equal(t, driver.IsolationLevel(sql.LevelSerializable), server.State().Sessions[0].Isolation)
	mustExec(t, tx, "INSERT INTO t VALUES (2)")
	mustExec(t, tx, "SAVEPOINT s")
	mustExec(t, tx, "UPDATE t SET a = 9")
	mustExec(t, tx, "DELETE FROM t WHERE a = 9")
	require.Empty(t, server.Table("t"))
	mustExec(t, tx, "ROLLBACK TO SAVEPOINT s")
	require.ElementsMatch(t, [][]any{{int64(1)}, {int64(2)}}, server.Table("t"))
	mustExec(t, tx, "RELEASE SAVEPOINT s")
	require.NoError(t, tx.Rollback())
	require.Equal(t, [][]any{{int64(1)}}, server.Table("t"))

	tx, err = db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	mustExec(t, tx, "INSERT INTO t VALUES (3)")
	require.NoError(t, tx.Commit())
	require.Len(t, server.Table("t"), 2)
	require.Zero(t, server.State().InTx())
}

func TestReadOnlyTransactionRefusesWrites(t *testing.T) {
	db, _ := open(t, Variant{Features: All})
	mustExec(t, db, "CREATE TABLE t (a INT)")
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "INSERT INTO t VALUES (1)")
	require.ErrorIs(t, err, ErrReadOnly)
	require.NoError(t, tx.Rollback())
	_, err = db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.IsolationLevel(UnsupportedIsolation)})
	require.ErrorContains(t, err, "not supported")
}

func TestSessionStateBelongsToItsConnection(t *testing.T) {
	db, server := open(t, Variant{Features: All})
	one, err := db.Conn(t.Context())
	require.NoError(t, err)
	two, err := db.Conn(t.Context())
	require.NoError(t, err)
	mustExec(t, one, "SET lang = 'de'")
	mustExec(t, one, "CREATE TEMP TABLE tmp (a INT)")

	var lang sql.NullString
	require.NoError(t, one.QueryRowContext(t.Context(), "SHOW lang").Scan(&lang))
	require.Equal(t, "de", lang.String)
	require.NoError(t, two.QueryRowContext(t.Context(), "SHOW lang").Scan(&lang))
	require.False(t, lang.Valid)
	_, err = two.ExecContext(t.Context(), "INSERT INTO tmp VALUES (1)")
	require.ErrorContains(t, err, "no such table: tmp")

	first := server.State().Sessions[0]
	require.Equal(t, map[string]any{"lang": "de"}, first.Vars)
	require.Equal(t, []string{"tmp"}, first.Temp)
	require.NoError(t, one.Close())
	require.NoError(t, two.Close())
}

func TestPreparedStatementsAreCountedPerConnection(t *testing.T) {
	db, server := open(t, Variant{Features: All})
	s, err := db.PrepareContext(t.Context(), "SELECT ?")
	require.NoError(t, err)
	require.Equal(t, []string{"SELECT ?"}, server.State().Sessions[0].Prepared)
	require.NoError(t, s.Close())
	require.Zero(t, server.State().Prepared())
}

func TestHintsBendTheirStatement(t *testing.T) {
	db, server := open(t, Variant{Features: All})
	db.SetMaxOpenConns(1)
	mustExec(t, db, "CREATE TABLE t (a INT)")

	_, err := db.ExecContext(t.Context(), "INSERT INTO t VALUES (1) /*+ error 'no luck' */")
	require.EqualError(t, err, "fakedb: no luck")
	require.Empty(t, server.Table("t"))

	_, err = db.ExecContext(t.Context(), "/*+ badconn before */ INSERT INTO t VALUES (1)")
	require.ErrorIs(t, err, driver.ErrBadConn)
	require.Empty(t, server.Table("t"))

	_, err = db.ExecContext(t.Context(), "INSERT INTO t VALUES (1) /*+ badconn after */")
	require.ErrorIs(t, err, driver.ErrBadConn)
	require.Len(t, server.Table("t"), 3, "database/sql retries twice")

	require.PanicsWithValue(t, "fakedb: boo", func() {
		_, _ = db.ExecContext(t.Context(), "PING /*+ panic 'boo' */")
	})

	rows, err := db.QueryContext(t.Context(), "SELECT * FROM numbers LIMIT 5 /*+ break 2 'mid' */")
	require.NoError(t, err)
	n := 0
	for rows.Next() {
		n++
	}
	require.Equal(t, 2, n)
	require.EqualError(t, rows.Err(), "fakedb: mid")
}

func TestSleepHintEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, _ := open(t, Variant{Features: All})
		start := time.Now()
		mustExec(t, db, "PING /*+ sleep 1h */")
		require.Equal(t, time.Hour, time.Since(start))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := db.ExecContext(ctx, "PING /*+ sleep 1h */")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestFaultsActOnTheCallTheyName(t *testing.T) {
	db, server := open(t, Variant{Features: All})
	db.SetMaxOpenConns(1)
	boom := errors.New("boom")
	server.Fail(ConnPing, 2, boom)
	require.NoError(t, db.PingContext(t.Context()))
	require.ErrorIs(t, db.PingContext(t.Context()), boom)
	require.NoError(t, db.PingContext(t.Context()))

	server.Inject(Fault{Call: ConnExecCtx, Text: "nope", Always: true, Err: boom})
	for range 3 {
		_, err := db.ExecContext(t.Context(), "SET nope = 1")
		require.ErrorIs(t, err, boom)
	}
	mustExec(t, db, "SET yes = 1")
	server.Heal()
	mustExec(t, db, "SET nope = 1")

	server.Inject(Fault{Call: ConnExecCtx, After: true, Kill: true, Err: boom})
	_, err := db.ExecContext(t.Context(), "SET after = 1")
	require.ErrorIs(t, err, boom)
	require.Equal(t, 1, server.Executed("after"))
	require.Zero(t, server.State().Open())
}

func TestGateHoldsACallUntilItIsOpened(t *testing.T) {
	db, server := open(t, Variant{Features: All})
	gate := server.Block(ConnExecCtx)
	done := make(chan error, 1)
	go func() {
		_, err := db.Exec("PING")
		done <- err
	}()
	<-gate.Entered()
	require.Zero(t, server.Executed("PING"))
	gate.Open()
	gate.Open()
	require.NoError(t, <-done)
	require.NoError(t, server.Await(t.Context(), func(s State) bool { return s.Executed == 1 }))
}

func TestRefusedConnectionsAreNeverOpened(t *testing.T) {
	db, server := open(t, Variant{Features: All})
	down := errors.New("down for maintenance")
	server.Refuse(down)
	err := db.PingContext(t.Context())
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorIs(t, err, down)
	require.Zero(t, server.State().Opened)
	server.Refuse(nil)
	require.NoError(t, db.PingContext(t.Context()))
}

func TestKilledSessionIsGoneAtOnceAndFoundOutAtTheNextCall(t *testing.T) {
	db, server := open(t, Variant{Features: All})
	mustExec(t, db, "CREATE TABLE t (a INT)")
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	mustExec(t, tx, "INSERT INTO t VALUES (1)")
	require.Equal(t, 1, server.KillAll())
	require.Zero(t, server.State().Open())
	require.Empty(t, server.Table("t"), "its transaction is rolled back")
	_, err = tx.ExecContext(t.Context(), "PING")
	require.ErrorIs(t, err, driver.ErrBadConn)
	require.ErrorIs(t, tx.Rollback(), driver.ErrBadConn)
	require.False(t, server.Kill(1))
}

func TestDriverMemoryIsReusedByTheNextRow(t *testing.T) {
	server := NewServer()
	c, err := server.Connector(Variant{Features: All}).Connect(t.Context())
	require.NoError(t, err)
	r, err := c.(driver.QueryerContext).QueryContext(t.Context(), "SELECT x'616263'", nil)
	require.NoError(t, err)
	dest := make([]driver.Value, 1)
	require.NoError(t, r.Next(dest))
	kept := dest[0].([]byte)
	require.Equal(t, "abc", string(kept))
	require.NoError(t, r.Close())
	require.Equal(t, "###", string(kept))
	require.NoError(t, c.Close())
}

func TestMisuseIsWrittenDown(t *testing.T) {
	server := NewServer()
	c, err := server.Connector(Variant{Features: All}).Connect(t.Context())
	require.NoError(t, err)
	gate := server.Block(ConnPing)
	done := make(chan error)
	go func() { done <- c.(driver.Pinger).Ping(context.Background()) }()
	<-gate.Entered()
	_, err = c.Prepare("SELECT 1")
	require.NoError(t, err)
	gate.Open()
	require.NoError(t, <-done)
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	require.Equal(t, []string{
		"Conn.Prepare while another call runs on connection 1",
		"Conn.Close on closed connection 1",
		"connection 1 closed twice",
	}, server.Violations())
}

func TestEventsTellEveryCallInOrder(t *testing.T) {
	db, server := open(t, Variant{Features: ExecerContext})
	mustExec(t, db, "SET a = ?", 7)
	var lines []string
	for _, e := range server.Events() {
		lines = append(lines, e.String())
	}
	require.Equal(t, []string{"0 Connector.Connect", "1 Conn.ExecContext SET a = ? [7]"}, lines)
	require.Len(t, server.Events(Connect), 1)
}

func TestBusyConnectionRefusesWhileRowsAreOpen(t *testing.T) {
	db, _ := open(t, Variant{Features: All, Quirks: BusyWhileRowsOpen})
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	rows, err := tx.QueryContext(t.Context(), "SELECT * FROM numbers LIMIT 2")
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "PING")
	require.ErrorIs(t, err, ErrBusy)
	require.NoError(t, rows.Close())
	mustExec(t, tx, "PING")
	require.NoError(t, tx.Commit())
}

func TestSyntaxErrorsNameThePlace(t *testing.T) {
	for text, near := range map[string]string{
		"":                        "end of text",
		"SELEC 1":                 "SELEC",
		"SELECT 'abc":             "unterminated string",
		"SELECT 1 2":              "2",
		"CREATE TABLE t (a BLUB)": "BLUB",
		"SELECT x'0'":             "x'0'",
		"SELECT 1 /*+ dance */":   " dance ",
		"INSERT INTO t (1)":       "(",
	} {
		_, err := parse(text)
		var syntax *SyntaxError
		require.ErrorAs(t, err, &syntax, text)
		require.Equal(t, near, syntax.Near, text)
	}
}

func TestCursorIsAValueThatIsRows(t *testing.T) {
	db, server := open(t, Variant{Features: All})
	rows, err := db.QueryContext(t.Context(), "SELECT cursor(2)")
	require.NoError(t, err)
	require.True(t, rows.Next())
	var inner sql.Rows
	require.NoError(t, rows.Scan(&inner))
	require.Equal(t, 2, server.State().OpenRows())
	require.True(t, inner.Next())
	require.True(t, inner.Next())
	require.False(t, inner.Next())
	require.NoError(t, inner.Err())
	require.NoError(t, rows.Close())
	require.Zero(t, server.State().OpenRows())
}
