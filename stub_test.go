package pooldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/generic"
	"github.com/pooldriver/pooldriver/internal/fakedb"
)

// stub is a dialect over the fake database that knows what a real one would:
// the transaction's state, the bytes sent, how to clean.
type stub struct {
	generic.Dialect
	dialects.Template
	server *fakedb.Server
	traits dialects.Traits
	also   dialects.Effect // of every text

	peek    func() dialects.Liveness
	clean   func() (bool, error)
	begun   func(context.Context) // told what the driver's BeginTx gets
	pings   atomic.Int32
	sending bool // every operation counts as sent
	blind   bool // nobody counts under sessions dialled from now on
	dialing sync.Mutex
}

var (
	errLeaving  = errors.New("stub: server is leaving")
	errStale    = errors.New("stub: stale statement")
	errConflict = errors.New("stub: another transaction is in the way")
	errTooMany  = errors.New("stub: too many prepared statements")
)

func (s *stub) Name() string                    { return "stub" }
func (s *stub) Effect(q string) dialects.Effect { return s.Dialect.Effect(q) | s.also }
func (s *stub) Traits() dialects.Traits         { return s.traits }

func (s *stub) Diagnose(err error) dialects.Diagnosis {
	switch {
	case errors.Is(err, errLeaving):
		return dialects.ServerLeaving
	case errors.Is(err, errStale):
		return dialects.StaleStatement
	case errors.Is(err, errConflict):
		return dialects.Conflict
	case errors.Is(err, errTooMany):
		return dialects.TooManyPrepared
	}
	return 0
}

func (s *stub) Dial(ctx context.Context, cred *dialects.Credential) (dialects.Session, error) {
	s.dialing.Lock() // the last session opened is this one
	defer s.dialing.Unlock()
	inner, err := s.Template.Dial(ctx, cred)
	if err != nil {
		return nil, err
	}
	return &stubSession{Session: inner, stub: s, id: s.server.State().Opened, blind: s.blind}, nil
}

type stubSession struct {
	dialects.Session
	stub *stub
	id   int
	sent uint64

	blind bool
}

func (s *stubSession) Conn() driver.Conn {
	conn := s.Session.Conn()
	if s.stub.begun == nil {
		return conn
	}
	return &tellingConn{conn.(fullConn), s.stub.begun}
}

type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
}

type tellingConn struct {
	fullConn
	begun func(context.Context)
}

func (c *tellingConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.begun(ctx)
	return c.fullConn.BeginTx(ctx, opts)
}

func (s *stubSession) TxStatus() dialects.TxStatus {
	for _, session := range s.stub.server.State().Sessions {
		if session.ID != s.id {
			continue
		}
		if session.InTx {
			return dialects.TxOpen
		}
		return dialects.TxNone
	}
	return dialects.TxLost
}

func (s *stubSession) Sent() (uint64, bool) {
	if s.blind {
		return 0, false
	}
	if s.stub.sending {
		s.sent++
	}
	return s.sent, true
}

func (s *stubSession) Peek() dialects.Liveness {
	if s.stub.peek == nil {
		return dialects.Alive
	}
	return s.stub.peek()
}

func (s *stubSession) Ping(ctx context.Context) error {
	s.stub.pings.Add(1)
	return s.Session.Ping(ctx)
}

func (s *stubSession) Clean(ctx context.Context, e dialects.Effect) (bool, error) {
	if s.stub.clean == nil {
		return s.Session.Clean(ctx, e)
	}
	return s.stub.clean()
}

// openStub opens a database of the stub dialect with one connection.
func openStub(t *testing.T, traits dialects.Traits, options ...Option) (*stub, *sql.DB, *Connector) {
	t.Helper()
	server := fakedb.NewServer()
	template, err := generic.Dialect{}.Wrap(server.Connector(fakedb.Variant{Name: "everything", Features: fakedb.All}))
	require.NoError(t, err)
	traits.StatusKnown = true
	s := &stub{Template: template, server: server, traits: traits}
	c := &Connector{core: core{config: defaultConfig()}}
	c.config.MaxConns = 1
	require.NoError(t, c.use(s, s, append([]Option{quiet}, options...)))
	db := sql.OpenDB(c)
	t.Cleanup(func() {
		require.NoError(t, db.Close())
		require.Empty(t, server.Violations())
	})
	_, err = db.Exec("CREATE TABLE t (a INT)")
	require.NoError(t, err)
	return s, db, c
}

func TestErrBadConnAfterTheStatementWasSentIsNotExecutedAgain(t *testing.T) {
	s, db, _ := openStub(t, dialects.Traits{BadConnUnsure: true})
	s.sending = true
	_, err := db.Exec("INSERT /*+ badconn after */ INTO t VALUES (1)")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.NotErrorIs(t, err, driver.ErrBadConn)
	require.ErrorContains(t, err, "may or may not have executed")
	require.Len(t, s.server.Table("t"), 1, "executed once")
	require.NoError(t, db.Ping(), "the next one has a new connection")
}

func TestAPrepareThatWasSentMayBeSentAgain(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{BadConnUnsure: true})
	s.sending = true
	s.server.Fail(fakedb.ConnPrepareCtx, 1, driver.ErrBadConn)
	stmt, err := db.Prepare("INSERT INTO t VALUES (?)")
	require.NoError(t, err)
	defer stmt.Close()
	require.EqualValues(t, 1, c.Stats().Retries)
}

func TestABeginOnALostConnectionMovesToAnotherOne(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{})
	s.sending = true
	s.server.Inject(fakedb.Fault{Call: fakedb.ConnBeginCtx, Err: errors.New("broken pipe"), Kill: true})
	tx, err := db.Begin()
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	require.EqualValues(t, 1, c.Stats().Retries)
}

func TestInsideATransactionNothingMovesToAnotherConnection(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{})
	tx, err := db.Begin()
	require.NoError(t, err)
	s.server.KillAll()
	_, err = tx.Exec("INSERT INTO t VALUES (1)")
	require.Error(t, err)
	require.Error(t, tx.Commit())
	require.Empty(t, s.server.Table("t"))
	require.Zero(t, c.Stats().Retries)
}

func TestAStaleStatementIsPreparedAgainOutsideATransaction(t *testing.T) {
	s, db, _ := openStub(t, dialects.Traits{})
	stmt, err := db.Prepare("INSERT INTO t VALUES (?)")
	require.NoError(t, err)
	defer stmt.Close()
	s.server.Fail(fakedb.StmtExecCtx, 1, errStale)
	_, err = stmt.Exec(1)
	require.NoError(t, err)
	require.Len(t, s.server.Events(fakedb.ConnPrepareCtx), 2)

	s.server.Inject(fakedb.Fault{Call: fakedb.StmtExecCtx, Err: errStale, Times: maxRenewals})
	_, err = stmt.Exec(2)
	require.NoError(t, err, "altered before each")
	s.server.Inject(fakedb.Fault{Call: fakedb.StmtExecCtx, Err: errStale, Times: 1 + maxRenewals})
	_, err = stmt.Exec(2)
	require.ErrorIs(t, err, errStale, "not for ever")

	tx, err := db.Begin()
	require.NoError(t, err)
	s.server.Fail(fakedb.StmtExecCtx, 1, errStale)
	_, err = tx.Stmt(stmt).Exec(3)
	require.ErrorIs(t, err, errStale, "in a transaction it is the program's affair")
	require.NoError(t, tx.Rollback())
	require.Len(t, s.server.Table("t"), 2)
}

// TestStatementsOfATaskThatAreStaleAtOnce is the race detector's: a statement is let go
// of in its user's turn.
func TestStatementsOfATaskThatAreStaleAtOnce(t *testing.T) {
	s, db, _ := openStub(t, dialects.Traits{PreparedAges: true})
	ctx, end := WithTask(t.Context())
	defer end()
	mustExec(t, ctx, db, "SET a = 1")
	stmt, err := db.PrepareContext(ctx, "INSERT INTO t VALUES (?)")
	require.NoError(t, err)
	defer stmt.Close()
	for range 100 {
		s.server.Fail(fakedb.StmtExecCtx, 1, errStale)
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
	require.Len(t, s.server.Table("t"), 300)
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
			s.also = dialects.ForgetPrepared
			execute("SELECT 1 /* names mean something else from here on */")
			s.also = 0
			use := func() {
				again, err := conn.PrepareContext(t.Context(), "INSERT INTO t VALUES (?)")
				require.NoError(t, err)
				require.NoError(t, again.Close())
			}
			use()
			before := len(s.server.Events(fakedb.ConnPrepareCtx))
			end()
			use()
			require.Equal(t, ages, len(s.server.Events(fakedb.ConnPrepareCtx)) > before)
			before = len(s.server.Events(fakedb.ConnPrepareCtx))
			for range 5 { // which change nothing
				tx, err := conn.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				use()
				require.NoError(t, tx.Commit())
			}
			require.Len(t, s.server.Events(fakedb.ConnPrepareCtx), before)
			require.NoError(t, conn.Close())
			require.NoError(t, stmt.Close())
		}
	}
}

// TestAScriptThatMayHaveWrittenIsNeverExecutedAgain: the error may be of its second
// statement, and the first is committed.
func TestAScriptThatMayHaveWrittenIsNeverExecutedAgain(t *testing.T) {
	s, db, _ := openStub(t, dialects.Traits{})
	s.also = dialects.Writes
	for text, again := range map[string]bool{
		"INSERT INTO t VALUES (1); ":                         true,
		"INSERT INTO t VALUES (2); INSERT INTO t VALUES (3)": false,
	} {
		before := len(s.server.Events(fakedb.ConnExecCtx))
		s.server.Fail(fakedb.ConnExecCtx, 1, errStale)
		_, err := db.Exec(text)
		if again {
			require.NoError(t, err)
			require.Len(t, s.server.Events(fakedb.ConnExecCtx), before+2)
		} else {
			require.ErrorIs(t, err, errStale)
			require.Len(t, s.server.Events(fakedb.ConnExecCtx), before+1)
		}
	}
}

func TestAStatementThatMayHaveCalledCodeIsNeverExecutedAgain(t *testing.T) {
	s, db, _ := openStub(t, dialects.Traits{})
	stmt, err := db.Prepare("CALL out(?)")
	require.NoError(t, err)
	defer stmt.Close()
	s.server.Fail(fakedb.StmtExecCtx, 1, errStale)
	var out int
	_, err = stmt.Exec(sql.Out{Dest: &out})
	require.ErrorIs(t, err, errStale)
	require.Len(t, s.server.Events(fakedb.StmtExecCtx), 1)
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
	s.server.Fail(fakedb.StmtExecCtx, 1, errStale)
	require.ErrorIs(t, use(), errStale)
	require.NoError(t, use())
	require.Equal(t, 1, s.server.State().Prepared())
}

func TestAStatementClosedAndPreparedAgainIsOfNowWherePreparedStatementsAge(t *testing.T) {
	for _, ages := range []bool{false, true} {
		s, db, c := openStub(t, dialects.Traits{PreparedAges: ages})
		prepares := func() int { return len(s.server.Events(fakedb.ConnPrepareCtx)) }
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
		require.Equal(t, 1, s.server.State().Prepared())
		require.Zero(t, c.generations.Len())
	}
}

func TestEditionsEndWithTheirStatementsHoweverThoseEnd(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{PreparedAges: true})
	s.server.Inject(fakedb.Fault{Call: fakedb.ConnPrepareCtx, Panic: "boom"})
	require.Panics(t, func() { _, _ = db.Prepare("SELECT 1") })
	require.Zero(t, c.generations.Len())
	s.server.Fail(fakedb.ConnPrepareCtx, 1, errors.New("no"))
	_, err := db.Prepare("SELECT 1")
	require.Error(t, err)
	require.Zero(t, c.generations.Len())
	tx, err := db.Begin()
	require.NoError(t, err)
	_, err = tx.Prepare("SELECT 1")
	require.NoError(t, err)
	s.server.Fail(fakedb.TxCommit, 1, driver.ErrBadConn)
	require.ErrorIs(t, tx.Commit(), driver.ErrBadConn)
	require.Zero(t, c.generations.Len())
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
	require.Len(t, s.server.Events(fakedb.ConnPrepareCtx), 2)
	require.NoError(t, stmt.Close())
	require.Equal(t, 1, s.server.State().Prepared())
	require.NoError(t, conn.Close())
}

func TestAnAfterConnectThatLeavesATransactionOpenIsRefused(t *testing.T) {
	_, db, c := openStub(t, dialects.Traits{})
	c.config.AfterConnect = func(ctx context.Context, conn driver.Conn) error {
		_, err := conn.(driver.ExecerContext).ExecContext(ctx, "BEGIN", nil)
		return err
	}
	c.Flush()
	require.ErrorContains(t, db.Ping(), "AfterConnect left a transaction open")
}

func TestAFailedStatementThatMayHaveBegunATransactionIsFollowedByARollback(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{}, func(c *Config) { c.Reset = ResetOff })
	_, err := db.Exec("CALL /*+ error 'no' */ out(1)")
	require.ErrorContains(t, err, "no")
	require.NoError(t, db.Ping())
	require.Len(t, s.server.Events(fakedb.ConnExecCtx), 3, "the table, the call, the rollback")
	require.Equal(t, 1, s.server.State().Opened)
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
	require.Equal(t, 1, s.server.State().Prepared(), "the second handle was closed after its use")
}

func TestStatementsBeyondTheCacheAreClosed(t *testing.T) {
	s, db, _ := openStub(t, dialects.Traits{}, func(c *Config) { c.StmtCache = 2 })
	for _, q := range []string{"SELECT 1", "SELECT 2", "SELECT 3", "SELECT 1"} {
		stmt, err := db.Prepare(q)
		require.NoError(t, err)
		require.NoError(t, stmt.Close())
		require.LessOrEqual(t, s.server.State().Prepared(), 2)
	}
	require.Len(t, s.server.Events(fakedb.ConnPrepareCtx), 4)
}

func TestAnIdleConnectionFoundDeadIsReplaced(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{})
	dead := true
	s.peek = func() dialects.Liveness {
		if dead {
			dead = false
			return dialects.Dead
		}
		return dialects.Alive
	}
	require.NoError(t, db.Ping())
	require.EqualValues(t, 1, c.Stats().FoundDead)
	require.Equal(t, 2, s.server.State().Opened)
}

func TestAnUnsureLookIsFollowedByAPing(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{})
	s.peek = func() dialects.Liveness { return dialects.Unsure }
	_, err := db.Exec("SELECT 1")
	require.NoError(t, err)
	require.EqualValues(t, 1, s.pings.Load())
	s.server.Fail(fakedb.ConnPing, 1, errors.New("gone"))
	_, err = db.Exec("SELECT 1")
	require.NoError(t, err)
	require.EqualValues(t, 1, c.Stats().FoundDead)
}

func TestAServerThatLeavesFlushesThePoolOnceHoweverManySeeIt(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{}, func(c *Config) { c.MaxConns = 4 })
	conns := make([]*sql.Conn, 4)
	for i := range conns {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, conn.PingContext(t.Context()))
		conns[i] = conn
	}
	s.server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Err: errLeaving, Times: 4})
	for _, conn := range conns {
		_, err := conn.ExecContext(t.Context(), "SELECT 1")
		require.ErrorIs(t, err, errLeaving)
	}
	require.EqualValues(t, 1, c.poolGeneration.Load())
	for _, conn := range conns {
		require.NoError(t, conn.Close())
	}
	require.NoError(t, db.Ping())
	require.EqualValues(t, 5, s.server.State().Opened, "all four were replaced as they came back")
}

func TestCleaningIsFollowedByAfterConnectAndForgetsStatementsThatAreGone(t *testing.T) {
	var connects atomic.Int32
	s, db, c := openStub(t, dialects.Traits{}, func(c *Config) {
		c.AfterConnect = func(context.Context, driver.Conn) error { connects.Add(1); return nil }
	})
	s.clean = func() (bool, error) { return false, nil }
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
	require.Len(t, s.server.Events(fakedb.ConnPrepareCtx), 2)
	require.Equal(t, 1, s.server.State().Opened, "cleaned in place")
}

func TestACleaningThatFailsOrPanicsClosesTheConnection(t *testing.T) {
	for name, clean := range map[string]func() (bool, error){
		"fails":  func() (bool, error) { return false, errors.New("no") },
		"panics": func() (bool, error) { panic("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			s, db, c := openStub(t, dialects.Traits{})
			s.clean = clean
			_, err := db.Exec("SET a = 1")
			require.NoError(t, err)
			require.NoError(t, db.Ping())
			require.Equal(t, 2, s.server.State().Opened)
			require.EqualValues(t, 1, c.Stats().Discards)
		})
	}
}

func TestARawTransactionIsRolledBackAtTheEndOfItsCheckoutAndTheConnectionKept(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{})
	_, err := db.Exec("BEGIN")
	require.NoError(t, err)
	_, err = db.Exec("INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	require.EqualValues(t, 1, c.Stats().Rollbacks)
	require.Equal(t, 1, s.server.State().Opened)
	require.Zero(t, s.server.State().InTx())
	require.Len(t, s.server.Table("t"), 1, "the insert ran outside the transaction that was rolled back")
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
		require.NoError(t, s.server.Await(t.Context(), func(s fakedb.State) bool { return s.InTx() == 0 }))
		require.NoError(t, db.Ping())
		require.Equal(t, 1, s.server.State().Opened)
		require.Empty(t, s.server.Table("t"))
	}
}

func TestRawGivesTheDriversConnectionAndCleansUpBehindIt(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{})
	s.clean = func() (bool, error) { return false, dialects.ErrCannotClean }
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	no := errors.New("no")
	require.ErrorIs(t, Raw(t.Context(), conn, func(dc driver.Conn) error {
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

	plain := sql.OpenDB(s.server.Connector(fakedb.Variant{Features: fakedb.All}))
	defer plain.Close()
	other, err := plain.Conn(t.Context())
	require.NoError(t, err)
	defer other.Close()
	require.ErrorContains(t, Raw(t.Context(), other, func(driver.Conn) error { return nil }), "found no connection of pooldriver")
}
