package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
)

func TestErrBadConnAfterTheStatementWasSentIsNotExecutedAgain(t *testing.T) {
	s, db, _ := openStub(t, dialects.Traits{BadConnUnsure: true})
	s.Sending = true
	_, err := db.Exec("INSERT /*+ badconn after */ INTO t VALUES (1)")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.NotErrorIs(t, err, driver.ErrBadConn)
	require.ErrorContains(t, err, "may or may not have executed")
	require.Len(t, s.Server.Table("t"), 1, "executed once")
	require.NoError(t, db.Ping(), "the next one has a new connection")
}

func TestAPrepareThatWasSentMayBeSentAgain(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{BadConnUnsure: true})
	s.Sending = true
	s.Server.Fail(fakedb.ConnPrepareCtx, 1, driver.ErrBadConn)
	stmt, err := db.Prepare("INSERT INTO t VALUES (?)")
	require.NoError(t, err)
	defer stmt.Close()
	require.EqualValues(t, 1, c.Stats().Retries)
}

func TestABeginOnALostConnectionMovesToAnotherOne(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{})
	s.Sending = true
	s.Server.Inject(fakedb.Fault{Call: fakedb.ConnBeginCtx, Err: errors.New("broken pipe"), Kill: true})
	tx, err := db.Begin()
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	require.EqualValues(t, 1, c.Stats().Retries)
}

func TestInsideATransactionNothingMovesToAnotherConnection(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{})
	tx, err := db.Begin()
	require.NoError(t, err)
	s.Server.KillAll()
	_, err = tx.Exec("INSERT INTO t VALUES (1)")
	require.Error(t, err)
	require.Error(t, tx.Commit())
	require.Empty(t, s.Server.Table("t"))
	require.Zero(t, c.Stats().Retries)
}

func TestAStaleStatementIsPreparedAgainOutsideATransaction(t *testing.T) {
	s, db, _ := openStub(t, dialects.Traits{})
	stmt, err := db.Prepare("INSERT INTO t VALUES (?)")
	require.NoError(t, err)
	defer stmt.Close()
	s.Server.Fail(fakedb.StmtExecCtx, 1, stubdialect.ErrStale)
	_, err = stmt.Exec(1)
	require.NoError(t, err)
	require.Len(t, s.Server.Events(fakedb.ConnPrepareCtx), 2)

	s.Server.Inject(fakedb.Fault{Call: fakedb.StmtExecCtx, Err: stubdialect.ErrStale, Times: maxRenewals})
	_, err = stmt.Exec(2)
	require.NoError(t, err, "altered before each")
	s.Server.Inject(fakedb.Fault{Call: fakedb.StmtExecCtx, Err: stubdialect.ErrStale, Times: 1 + maxRenewals})
	_, err = stmt.Exec(2)
	require.ErrorIs(t, err, stubdialect.ErrStale, "not for ever")

	tx, err := db.Begin()
	require.NoError(t, err)
	s.Server.Fail(fakedb.StmtExecCtx, 1, stubdialect.ErrStale)
	_, err = tx.Stmt(stmt).Exec(3)
	require.ErrorIs(t, err, stubdialect.ErrStale, "in a transaction it is the program's affair")
	require.NoError(t, tx.Rollback())
	require.Len(t, s.Server.Table("t"), 2)
}

// TestStatementsOfATaskThatAreStaleAtOnce is the race detector's: a statement is let go
// of in its user's turn.
func TestStatementsOfATaskThatAreStaleAtOnce(t *testing.T) {
	s, db, _ := openStub(t, dialects.Traits{PreparedAges: true})
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	mustExec(t, ctx, db, "SET a = 1")
	stmt, err := db.PrepareContext(ctx, "INSERT INTO t VALUES (?)")
	require.NoError(t, err)
	defer stmt.Close()
	for range 100 {
		s.Server.Fail(fakedb.StmtExecCtx, 1, stubdialect.ErrStale)
		errs := make(chan error)
		for i := range 3 {
			go func() {
				_, err := stmt.ExecContext(ctx, i)
				errs <- err
			}()
		}
		for range 3 {
			require.NoError(t, <-errs)
		}
	}
	require.Len(t, s.Server.Table("t"), 300)
}

// TestAStatementEndsWithATransactionThatChangesWhatItMeans, where a server keeps the
// types of then.
func TestAStatementEndsWithATransactionThatChangesWhatItMeans(t *testing.T) {
	for _, ages := range []bool{false, true} {
		for _, byHand := range []bool{false, true} {
			s, db, _ := openStub(t, dialects.Traits{PreparedAges: ages})
			stmt, err := db.Prepare("INSERT INTO t VALUES (?)")
			require.NoError(t, err)
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			execute := func(query string) { mustExec(t, t.Context(), conn, query) }
			end := func() { execute("ROLLBACK") }
			if byHand {
				execute("BEGIN")
			} else {
				tx, err := conn.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				end = func() { require.NoError(t, tx.Rollback()) }
			}
			s.Also = dialects.ForgetPrepared
			execute("SELECT 1 /* names mean something else from here on */")
			s.Also = 0
			use := func() {
				again, err := conn.PrepareContext(t.Context(), "INSERT INTO t VALUES (?)")
				require.NoError(t, err)
				require.NoError(t, again.Close())
			}
			use()
			before := len(s.Server.Events(fakedb.ConnPrepareCtx))
			end()
			use()
			require.Equal(t, ages, len(s.Server.Events(fakedb.ConnPrepareCtx)) > before)
			before = len(s.Server.Events(fakedb.ConnPrepareCtx))
			for range 5 { // which change nothing
				tx, err := conn.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				use()
				require.NoError(t, tx.Commit())
			}
			require.Len(t, s.Server.Events(fakedb.ConnPrepareCtx), before)
			require.NoError(t, conn.Close())
			require.NoError(t, stmt.Close())
		}
	}
}

// TestAScriptThatMayHaveWrittenIsNeverExecutedAgain: the error may be of its second
// statement, and the first is committed.
func TestAScriptThatMayHaveWrittenIsNeverExecutedAgain(t *testing.T) {
	s, db, _ := openStub(t, dialects.Traits{})
	s.Also = dialects.Writes
	for text, again := range map[string]bool{
		"INSERT INTO t VALUES (1); ":                         true,
		"INSERT INTO t VALUES (2); INSERT INTO t VALUES (3)": false,
	} {
		before := len(s.Server.Events(fakedb.ConnExecCtx))
		s.Server.Fail(fakedb.ConnExecCtx, 1, stubdialect.ErrStale)
		_, err := db.Exec(text)
		if again {
			require.NoError(t, err)
			require.Len(t, s.Server.Events(fakedb.ConnExecCtx), before+2)
		} else {
			require.ErrorIs(t, err, stubdialect.ErrStale)
			require.Len(t, s.Server.Events(fakedb.ConnExecCtx), before+1)
		}
	}
}

func TestAStatementThatMayHaveCalledCodeIsNeverExecutedAgain(t *testing.T) {
	s, db, _ := openStub(t, dialects.Traits{})
	stmt, err := db.Prepare("CALL out(?)")
	require.NoError(t, err)
	defer stmt.Close()
	s.Server.Fail(fakedb.StmtExecCtx, 1, stubdialect.ErrStale)
	var out int
	_, err = stmt.Exec(sql.Out{Dest: &out})
	require.ErrorIs(t, err, stubdialect.ErrStale)
	require.Len(t, s.Server.Events(fakedb.StmtExecCtx), 1)
}

func TestAStaleStatementIsPreparedAnewAfterTheTransactionThatFoundItStale(t *testing.T) {
	s, db, _ := openStub(t, dialects.Traits{PreparedAges: true})
	use := func() error {
		tx, err := db.Begin()
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback()) }()
		stmt, err := tx.Prepare("INSERT INTO t VALUES (?)")
		require.NoError(t, err)
		_, err = stmt.Exec(1)
		return err
	}
	require.NoError(t, use())
	s.Server.Fail(fakedb.StmtExecCtx, 1, stubdialect.ErrStale)
	require.ErrorIs(t, use(), stubdialect.ErrStale)
	require.NoError(t, use())
	require.Equal(t, 1, s.Server.State().Prepared())
}

func TestStatementsArePreparedAnewAfterAChangeOfWhatTheyMean(t *testing.T) {
	s, db, _ := openStub(t, dialects.Traits{})
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	stmt, err := conn.PrepareContext(t.Context(), "INSERT INTO t VALUES (?)")
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(), "USE other")
	require.Error(t, err, "the fake has no databases; the text's effect counts all the same")
	_, err = stmt.Exec(1)
	require.NoError(t, err)
	require.Len(t, s.Server.Events(fakedb.ConnPrepareCtx), 2)
	require.NoError(t, stmt.Close())
	require.Equal(t, 1, s.Server.State().Prepared())
	require.NoError(t, conn.Close())
}

func TestAnAfterConnectThatLeavesATransactionOpenIsRefused(t *testing.T) {
	leave := false
	_, db, c := openStub(t, dialects.Traits{}, func(c *pooldriver.Config) {
		c.AfterConnect = func(ctx context.Context, conn driver.Conn) (err error) {
			if leave {
				_, err = conn.(driver.ExecerContext).ExecContext(ctx, "BEGIN", nil)
			}
			return err
		}
	})
	leave = true
	c.Flush()
	require.ErrorContains(t, db.Ping(), "AfterConnect left a transaction open")
}

func TestAFailedStatementThatMayHaveBegunATransactionIsFollowedByARollback(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{}, func(c *pooldriver.Config) { c.Reset = pooldriver.ResetOff })
	_, err := db.Exec("CALL /*+ error 'no' */ out(1)")
	require.ErrorContains(t, err, "no")
	require.NoError(t, db.Ping())
	require.Len(t, s.Server.Events(fakedb.ConnExecCtx), 3, "the table, the call, the rollback")
	require.Equal(t, 1, s.Server.State().Opened)
	require.Zero(t, c.Stats().Rollbacks, "none was seen open")
}

func TestAStatementWithOpenRowsIsNotExecutedAgainASecondHandleIs(t *testing.T) {
	s, db, _ := openStub(t, dialects.Traits{})
	for range 3 {
		_, err := db.Exec("INSERT INTO t VALUES (1)")
		require.NoError(t, err)
	}
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	stmt, err := conn.PrepareContext(t.Context(), "SELECT a FROM t")
	require.NoError(t, err)
	outer, err := stmt.Query()
	require.NoError(t, err)
	rows := 0
	for outer.Next() {
		inner, err := stmt.Query()
		require.NoError(t, err)
		for inner.Next() {
			rows++
		}
		require.NoError(t, inner.Close())
	}
	require.NoError(t, outer.Err())
	require.Equal(t, 9, rows)
	require.NoError(t, stmt.Close())
	require.NoError(t, conn.Close())
	require.Equal(t, 1, s.Server.State().Prepared(), "the second handle was closed after its use")
}

func TestStatementsBeyondTheCacheAreClosed(t *testing.T) {
	s, db, _ := openStub(t, dialects.Traits{}, func(c *pooldriver.Config) { c.StmtCache = 2 })
	for _, q := range []string{"SELECT 1", "SELECT 2", "SELECT 3", "SELECT 1"} {
		stmt, err := db.Prepare(q)
		require.NoError(t, err)
		require.NoError(t, stmt.Close())
		require.LessOrEqual(t, s.Server.State().Prepared(), 2)
	}
	require.Len(t, s.Server.Events(fakedb.ConnPrepareCtx), 4)
}

func TestAnIdleConnectionFoundDeadIsReplaced(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{})
	dead := true
	s.OnPeek = func() dialects.Liveness {
		if dead {
			dead = false
			return dialects.Dead
		}
		return dialects.Alive
	}
	require.NoError(t, db.Ping())
	require.EqualValues(t, 1, c.Stats().FoundDead)
	require.Equal(t, 2, s.Server.State().Opened)
}

func TestAnUnsureLookIsFollowedByAPing(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{})
	s.OnPeek = func() dialects.Liveness { return dialects.Unsure }
	_, err := db.Exec("SELECT 1")
	require.NoError(t, err)
	require.EqualValues(t, 1, s.Pings.Load())
	s.Server.Fail(fakedb.ConnPing, 1, errors.New("gone"))
	_, err = db.Exec("SELECT 1")
	require.NoError(t, err)
	require.EqualValues(t, 1, c.Stats().FoundDead)
}

// TestWhatIsCountedAsFoundDeadIsClosedAsThat: also where the driver's own look finds it. Where the
// statement's context ends first, nobody knows whether the connection was dead.
func TestWhatIsCountedAsFoundDeadIsClosedAsThat(t *testing.T) {
	for name, tc := range map[string]struct {
		look func(s *stubdialect.Stub, cancel context.CancelFunc)
		why  pooldriver.CloseReason
	}{
		"the socket is closed": {func(s *stubdialect.Stub, _ context.CancelFunc) {
			s.OnPeek = func() dialects.Liveness { s.OnPeek = nil; return dialects.Dead }
		}, pooldriver.CloseFoundDead},
		"the driver gives it up": {func(s *stubdialect.Stub, _ context.CancelFunc) {
			s.Server.Fail(fakedb.ConnReset, 1, driver.ErrBadConn)
		}, pooldriver.CloseFoundDead},
		"the statement's context ends": {func(s *stubdialect.Stub, cancel context.CancelFunc) {
			s.OnPeek = func() dialects.Liveness { s.OnPeek = nil; return dialects.Unsure }
			s.OnPing = func(ctx context.Context) error { cancel(); return ctx.Err() }
		}, pooldriver.CloseLost},
	} {
		t.Run(name, func(t *testing.T) {
			s, db, c := openStub(t, dialects.Traits{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tc.look(s, cancel)
			_, err := db.ExecContext(ctx, "SELECT 1")
			require.Equal(t, ctx.Err() != nil, err != nil)
			s.OnPing = nil
			require.NoError(t, db.Ping(), "its place is free")
			require.EqualValues(t, 1, c.Stats().Closed[tc.why])
			require.Equal(t, c.Stats().Closed[pooldriver.CloseFoundDead], c.Stats().FoundDead)
		})
	}
}

// TestACleaningThatFindsTheConnectionLostIsNotToBlame: what statements leave behind closes no such connection.
func TestACleaningThatFindsTheConnectionLostIsNotToBlame(t *testing.T) {
	for why, killed := range map[pooldriver.CloseReason]bool{pooldriver.CloseLost: true, pooldriver.CloseResetFailed: false} {
		t.Run(string(why), func(t *testing.T) {
			s, db, c := openStub(t, dialects.Traits{})
			s.OnClean = func() (bool, error) {
				if killed {
					s.Server.KillAll()
				}
				return false, errors.New("no answer")
			}
			_, err := db.Exec("SET a = 1")
			require.NoError(t, err)
			require.NoError(t, db.Ping(), "its place is free")
			require.EqualValues(t, 1, c.Stats().Closed[why])
		})
	}
}

func TestAServerThatLeavesFlushesThePoolOnceHoweverManySeeIt(t *testing.T) {
	s, db, _ := openStub(t, dialects.Traits{}, func(c *pooldriver.Config) { c.MaxConns = 5 })
	conns := make([]*sql.Conn, 4)
	for i := range conns {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, conn.PingContext(t.Context()))
		conns[i] = conn
	}
	s.Server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Err: stubdialect.ErrLeaving, Times: 4})
	for i, conn := range conns {
		_, err := conn.ExecContext(t.Context(), "SELECT 1")
		require.ErrorIs(t, err, stubdialect.ErrLeaving)
		if i == 0 {
			require.NoError(t, db.Ping(), "a connection of after the flush")
		}
	}
	for _, conn := range conns {
		require.NoError(t, conn.Close())
	}
	require.NoError(t, db.Ping())
	require.Equal(t, 5, s.Server.State().Opened, "the new one is not flushed again")
	require.Eventually(t, func() bool { return s.Server.State().Open() == 1 }, patience, time.Millisecond, "all four are closed as they come back")
}

func TestCleaningIsFollowedByAfterConnectAndForgetsStatementsThatAreGone(t *testing.T) {
	var connects atomic.Int32
	s, db, c := openStub(t, dialects.Traits{}, func(c *pooldriver.Config) {
		c.AfterConnect = func(context.Context, driver.Conn) error { connects.Add(1); return nil }
	})
	s.OnClean = func() (bool, error) { return false, nil }
	stmt, err := db.Prepare("SELECT 1")
	require.NoError(t, err)
	defer stmt.Close()
	_, err = db.Exec("SET a = 1")
	require.NoError(t, err)
	require.NoError(t, db.Ping())
	require.EqualValues(t, 2, connects.Load())
	require.EqualValues(t, 1, c.Stats().Cleanings)
	_, err = stmt.Exec()
	require.NoError(t, err)
	require.Len(t, s.Server.Events(fakedb.ConnPrepareCtx), 2)
	require.Equal(t, 1, s.Server.State().Opened, "cleaned in place")
}

func TestACleaningThatFailsOrPanicsClosesTheConnection(t *testing.T) {
	for name, clean := range map[string]func() (bool, error){
		"fails":  func() (bool, error) { return false, errors.New("no") },
		"panics": func() (bool, error) { panic("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			s, db, c := openStub(t, dialects.Traits{})
			s.OnClean = clean
			_, err := db.Exec("SET a = 1")
			require.NoError(t, err)
			require.NoError(t, db.Ping())
			require.Equal(t, 2, s.Server.State().Opened)
			require.EqualValues(t, 1, c.Stats().Discards)
		})
	}
}

func TestARawTransactionIsRolledBackAtTheEndOfItsCheckoutAndTheConnectionKept(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{})
	leaveOpen(t, db)
	_, err := db.Exec("INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	require.EqualValues(t, 1, c.Stats().Rollbacks)
	require.Equal(t, 1, s.Server.State().Opened)
	require.Zero(t, s.Server.State().InTx())
	require.Len(t, s.Server.Table("t"), 1, "the insert ran outside the transaction that was rolled back")
}

func TestACancelledTransactionKeepsItsConnectionIfTheRollbackWorked(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		s, db, _ := openStub(t, dialects.Traits{TxKeepsContext: keeps})
		ctx, cancel := context.WithCancel(t.Context())
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		_, err = tx.Exec("INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		cancel()
		require.NoError(t, s.Server.Await(t.Context(), func(s fakedb.State) bool { return s.InTx() == 0 }))
		require.NoError(t, db.Ping())
		require.Equal(t, 1, s.Server.State().Opened)
		require.Empty(t, s.Server.Table("t"))
	}
}

func TestRawGivesTheDriversConnectionAndCleansUpBehindIt(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{})
	s.OnClean = func() (bool, error) { return false, dialects.ErrCannotClean }
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	no := errors.New("no")
	require.ErrorIs(t, pooldriver.Raw(t.Context(), conn, func(dc driver.Conn) error {
		_, err := dc.(driver.ExecerContext).ExecContext(t.Context(), "SET a = 1", nil)
		require.NoError(t, err)
		return no
	}), no)
	var a any
	require.NoError(t, conn.QueryRowContext(t.Context(), "SHOW a").Scan(&a))
	require.EqualValues(t, 1, a, "it was this connection")
	require.NoError(t, conn.Close())
	require.NoError(t, db.QueryRow("SHOW a").Scan(&a))
	require.Nil(t, a)
	require.EqualValues(t, 1, c.Stats().Discards)

	plain := sql.OpenDB(s.Server.Connector(fakedb.Variant{Features: fakedb.All}))
	defer plain.Close()
	other, err := plain.Conn(t.Context())
	require.NoError(t, err)
	defer other.Close()
	require.ErrorContains(t, pooldriver.Raw(t.Context(), other, func(driver.Conn) error { return nil }), "found no connection of pooldriver")
}

// countsCloses is a stub whose sessions send something only when a statement is closed.
type countsCloses struct{ *stubdialect.Stub }

func (c countsCloses) Dial(ctx context.Context, cred *dialects.Credential) (dialects.Session, error) {
	s, err := c.Stub.Dial(ctx, cred)
	return countsClosesSession{s, c.Server}, err
}

type countsClosesSession struct {
	dialects.Session
	server *fakedb.Server
}

func (s countsClosesSession) Sent() (uint64, bool) {
	return uint64(len(s.server.Events(fakedb.StmtClose))), true
}

// TestTheCloseOfAStatementIsNotItsExecution: nothing of the execution was sent, so it is tried again.
func TestTheCloseOfAStatementIsNotItsExecution(t *testing.T) {
	s := countsCloses{stubdialect.New(dialects.Traits{Reprepares: true})}
	db, _ := openDatabase(t, s, s.Server)
	s.Server.Fail(fakedb.StmtExecCtx, 1, driver.ErrBadConn)
	mustExec(t, t.Context(), db, "INSERT INTO t VALUES (?)", 1)
	require.Equal(t, [][]any{{int64(1)}}, s.Server.Table("t"))
}
