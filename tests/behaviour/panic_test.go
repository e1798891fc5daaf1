package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
)

func TestAPanicOfTheDriverInATransactionCostsThatTransactionOnly(t *testing.T) {
	for name, tc := range map[string]struct {
		fault fakedb.Fault
		run   func(ctx context.Context, db *sql.DB, tx *sql.Tx)
	}{
		"its own statement": {fakedb.Fault{Call: fakedb.ConnExecCtx}, func(ctx context.Context, _ *sql.DB, tx *sql.Tx) { _ = insertTwo(ctx, tx) }},
		"one that joins":    {fakedb.Fault{Call: fakedb.ConnExecCtx}, func(ctx context.Context, db *sql.DB, _ *sql.Tx) { _ = insertTwo(ctx, db) }},
		"a query that joins": {fakedb.Fault{Call: fakedb.ConnQueryCtx}, func(ctx context.Context, db *sql.DB, _ *sql.Tx) {
			_ = query(db.QueryContext(ctx, "SELECT 1"))
		}},
		"a prepare that joins": {fakedb.Fault{Call: fakedb.ConnPrepareCtx}, func(ctx context.Context, db *sql.DB, _ *sql.Tx) { _, _ = db.PrepareContext(ctx, "SELECT 1") }},
		"a savepoint":          {fakedb.Fault{Text: "SAVEPOINT"}, func(ctx context.Context, db *sql.DB, _ *sql.Tx) { _, _ = db.BeginTx(ctx, nil) }},
		"rows":                 {fakedb.Fault{Call: fakedb.RowsNext}, func(ctx context.Context, _ *sql.DB, tx *sql.Tx) { _ = query(tx.QueryContext(ctx, "SELECT 1")) }},
	} {
		t.Run(name, func(t *testing.T) {
			server, db, c := openTasks(t, 1)
			ctx, end := pooldriver.WithTask(t.Context())
			defer end()
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			mustExec(t, ctx, tx, "INSERT INTO t VALUES (1)")
			tc.fault.Panic = "boom"
			server.Inject(tc.fault)
			require.PanicsWithValue(t, "boom", func() { tc.run(ctx, db, tx) })
			_ = tx.Rollback()
			patient, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			require.NoError(t, insertTwo(patient, db), "the task goes on")
			require.Equal(t, [][]any{{int64(2)}}, server.Table("t"))
			require.Equal(t, 2, server.State().Opened, "the connection whose call never returned is not used again")
			end()
			require.Zero(t, lent(c))
		})
	}
}

func query(rows *sql.Rows, err error) error {
	if err != nil {
		return err
	}
	rows.Next()
	return rows.Close()
}

func TestAStatementThatJoinedAfterAPanicIsNotRunOutsideTheTransaction(t *testing.T) {
	server, db, _ := openTasks(t, 2)
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Panic: "boom"})
	require.Panics(t, func() { _ = insertTwo(ctx, db) })
	require.ErrorIs(t, insertTwo(ctx, db), pooldriver.ErrTxLost)
	require.ErrorIs(t, tx.Commit(), pooldriver.ErrTxLost)
	require.Empty(t, server.Table("t"))
}

func TestAPanicWhileRowsAreReadAheadIsTheirReadersAndStopsNobody(t *testing.T) {
	server, db, c := openTasks(t, 1)
	ctx, end := pooldriver.WithTask(t.Context())
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	rows, err := tx.QueryContext(ctx, "SELECT n FROM numbers LIMIT 5")
	require.NoError(t, err)
	server.Inject(fakedb.Fault{Call: fakedb.RowsNext, Skip: 2, Panic: "boom"})
	require.PanicsWithValue(t, "boom", func() { _ = insertTwo(ctx, db) })
	soon(t, "Rows.Close", func() { _ = rows.Close() })
	soon(t, "Rollback", func() { _ = tx.Rollback() })
	soon(t, "the end of the task", end)
	require.Zero(t, lent(c))
	require.Zero(t, c.Stats().BufferedBytes)
}

func TestAPanicWhileRowsAreTakenBackCostsTheirConnectionOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, db, c := openTasks(t, 1)
		rows, err := db.QueryContext(t.Context(), "SELECT n FROM numbers LIMIT 50")
		require.NoError(t, err)
		server.Inject(fakedb.Fault{Call: fakedb.RowsNext, Skip: 3, Panic: "boom"})
		impatient, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, db.PingContext(impatient), context.DeadlineExceeded)
		require.NoError(t, rows.Close())
		require.Zero(t, c.Stats().BufferedBytes)
		require.NoError(t, db.PingContext(t.Context()))
		require.Equal(t, 2, server.State().Opened)
	})
}

func TestAPanicOfCommitCostsNoPlaceInThePool(t *testing.T) {
	server, db, _ := openTasks(t, 1)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	server.Inject(fakedb.Fault{Call: fakedb.TxCommit, Panic: "boom"})
	require.PanicsWithValue(t, "boom", func() { _ = tx.Commit() })
	soon(t, "a ping", func() { require.NoError(t, db.PingContext(t.Context())) })
	require.Equal(t, 2, server.State().Opened)
}

func TestNothingJoinsATransactionWhoseCommitHasPanicked(t *testing.T) {
	server, db, c := openTasks(t, 2)
	ctx, end := pooldriver.WithTask(t.Context())
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	mustExec(t, ctx, tx, "INSERT INTO t VALUES (1)")
	server.Inject(fakedb.Fault{Call: fakedb.TxCommit, Panic: "boom"})
	require.PanicsWithValue(t, "boom", func() { _ = tx.Commit() })
	told := insertTwo(ctx, db)
	end()
	atRest(t, c) // also what ends behind the program
	if told == nil {
		require.Equal(t, [][]any{{int64(2)}}, server.Table("t"), "what was reported as executed")
	} else {
		require.Empty(t, server.Table("t"))
	}
}

func TestAPanicAtTheEndOfATaskCostsItsConnectionAndNotTheProgram(t *testing.T) {
	for call, leave := range map[fakedb.Call]func(ctx context.Context, db *sql.DB) func(){
		fakedb.TxRollback: func(ctx context.Context, db *sql.DB) func() {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			return func() { _ = tx.Rollback() }
		},
		fakedb.RowsClose: func(ctx context.Context, db *sql.DB) func() {
			rows, err := db.QueryContext(ctx, "SELECT n FROM numbers LIMIT 100")
			require.NoError(t, err)
			return func() { _ = rows.Close() }
		},
		fakedb.ConnValid: func(ctx context.Context, db *sql.DB) func() {
			mustExec(t, ctx, db, "SET a = 1")
			return func() {}
		},
	} {
		t.Run(string(call), func(t *testing.T) {
			server, db, c := openTasks(t, 1)
			ctx, end := pooldriver.WithTask(t.Context())
			late := leave(context.WithoutCancel(ctx), db)
			server.Inject(fakedb.Fault{Call: call, Panic: "boom"})
			end()
			late()
			atRest(t, c)
			require.NoError(t, insertTwo(t.Context(), db))
			require.Equal(t, 2, server.State().Opened)
		})
	}
}

// TestAPanicOfRowsCloseCostsTheirConnectionOnly: database/sql never gives such a
// checkout back, nor does it let the *sql.Conn of the rows end (or their *sql.Tx, whose
// goroutine would stay behind here).
func TestAPanicOfRowsCloseCostsTheirConnectionOnly(t *testing.T) {
	type queryer interface {
		QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	}
	for name, of := range map[string]func(ctx context.Context, db *sql.DB) queryer{
		"of the pool": func(_ context.Context, db *sql.DB) queryer { return db },
		"of a connection": func(ctx context.Context, db *sql.DB) queryer {
			conn, err := db.Conn(ctx)
			require.NoError(t, err)
			return conn
		},
	} {
		for _, task := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, task: %t", name, task), func(t *testing.T) {
				server, db, c := openTasks(t, 1)
				ctx, end := t.Context(), func() {}
				if task {
					ctx, end = pooldriver.WithTask(ctx)
				}
				on := of(context.WithoutCancel(ctx), db)
				rows, err := on.QueryContext(ctx, "SELECT n FROM numbers LIMIT 5")
				require.NoError(t, err)
				server.Inject(fakedb.Fault{Call: fakedb.RowsClose, Panic: "boom"})
				require.PanicsWithValue(t, "boom", func() { _ = rows.Close() })
				atRest(t, c) // at once
				if conn, ok := on.(*sql.Conn); ok {
					require.ErrorContains(t, conn.PingContext(ctx), saysPanicked, "it would never give back another one")
				}
				soon(t, "the end of the task", end)
				atRest(t, c)
				require.NoError(t, insertTwo(t.Context(), db))
				require.Equal(t, 2, server.State().Opened)
			})
		}
	}
}

// TestAfterAPanicOfRowsCloseATransactionDoesNotGoOnInAutocommit has no database/sql
// above: its transaction could not be ended, nor its goroutine.
func TestAfterAPanicOfRowsCloseATransactionDoesNotGoOnInAutocommit(t *testing.T) {
	for _, lazy := range []bool{false, true} {
		server, _, c := openTasks(t, 1, func(c *pooldriver.Config) { c.LazyBegin = lazy })
		virtual, err := c.Connect(t.Context())
		require.NoError(t, err)
		conn := virtual.(stubdialect.FullConn)
		_, err = conn.BeginTx(t.Context(), driver.TxOptions{})
		require.NoError(t, err)
		rows, err := conn.QueryContext(t.Context(), "SELECT n FROM numbers LIMIT 5", nil)
		require.NoError(t, err)
		server.Inject(fakedb.Fault{Call: fakedb.RowsClose, Panic: "boom"})
		require.PanicsWithValue(t, "boom", func() { _ = rows.Close() })
		_, err = conn.ExecContext(t.Context(), "INSERT INTO t VALUES (2)", nil)
		require.ErrorContains(t, err, saysPanicked)
		_, err = conn.BeginTx(t.Context(), driver.TxOptions{})
		require.ErrorContains(t, err, saysPanicked)
		require.Empty(t, server.Table("t"))
		atRest(t, c)
	}
}

func TestAPanicOfRowsCloseThatJoinedATransactionEndsThatTransaction(t *testing.T) {
	server, db, c := openTasks(t, 1)
	ctx, end := pooldriver.WithTask(t.Context())
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	rows, err := db.QueryContext(ctx, "SELECT n FROM numbers LIMIT 5")
	require.NoError(t, err)
	server.Inject(fakedb.Fault{Call: fakedb.RowsClose, Panic: "boom"})
	require.PanicsWithValue(t, "boom", func() { _ = rows.Close() })
	require.ErrorIs(t, insertTwo(ctx, db), pooldriver.ErrTxLost)
	soon(t, "Rollback", func() { _ = tx.Rollback() })
	require.NoError(t, insertTwo(ctx, db))
	require.Equal(t, 2, server.State().Opened)
	end()
	atRest(t, c)
}

func TestRowsWhoseClosingPanickedWhileTheyWereReadAheadEndWithAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, taken := range []bool{false, true} { // back for others, or for its own task
			server, db, c := openTasks(t, 1)
			ctx, end := t.Context(), func() {}
			if !taken {
				ctx, end = pooldriver.WithTask(ctx)
			}
			rows, err := db.QueryContext(ctx, "SELECT n FROM numbers LIMIT 50")
			require.NoError(t, err)
			server.Inject(fakedb.Fault{Call: fakedb.RowsClose, Panic: "boom"})
			impatient, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			if taken {
				require.ErrorIs(t, db.PingContext(impatient), context.DeadlineExceeded)
			} else {
				require.PanicsWithValue(t, "boom", func() { _ = db.PingContext(impatient) })
			}
			n := 0
			for n < 100 && rows.Next() {
				n++
			}
			require.ErrorIs(t, rows.Err(), session.ErrRowsLost)
			require.NoError(t, rows.Close())
			require.Zero(t, c.Stats().BufferedBytes)
			require.NoError(t, insertTwo(ctx, db))
			require.Equal(t, 2, server.State().Opened)
			end()
			atRest(t, c)
		}
	})
}

func TestRowsOfAConnectionThatPanickedElsewhereAreNotTheDriversAnyMore(t *testing.T) {
	server, db, c := openTasks(t, 1)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	first, err := conn.QueryContext(t.Context(), "SELECT n FROM numbers LIMIT 5")
	require.NoError(t, err)
	second, err := conn.QueryContext(t.Context(), "SELECT n FROM numbers LIMIT 5")
	require.NoError(t, err)
	server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Panic: "boom"})
	require.Panics(t, func() { _ = insertTwo(t.Context(), conn) })
	for _, rows := range []*sql.Rows{first, second} {
		require.False(t, rows.Next())
		require.ErrorIs(t, rows.Err(), session.ErrRowsLost)
		require.NoError(t, rows.Close())
	}
	require.NoError(t, insertTwo(t.Context(), conn))
	require.NoError(t, conn.Close())
	require.Equal(t, 2, server.State().Opened)
	atRest(t, c)
}

func TestRowsOfAConnectionThatPanickedElsewhereLeaveNothingInMemory(t *testing.T) {
	server, db, c := openTasks(t, 1, func(c *pooldriver.Config) { c.NestedBuffer = 100 })
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	rows, err := conn.QueryContext(t.Context(), "SELECT n FROM numbers LIMIT 500")
	require.NoError(t, err)
	impatient, cancel := context.WithCancel(t.Context())
	refused := make(chan error)
	go func() { refused <- db.PingContext(impatient) }()
	require.Eventually(t, func() bool { return c.Stats().BufferedBytes > 0 }, patience, time.Millisecond, "what was read before the limit")
	cancel()
	require.Error(t, <-refused)
	server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Panic: "boom"})
	require.Panics(t, func() { _ = insertTwo(t.Context(), conn) })
	require.NoError(t, rows.Close())
	require.Zero(t, c.Stats().BufferedBytes)
	require.NoError(t, conn.Close())
	atRest(t, c)
}

type moody struct{ driver.Rows }

func (moody) Value() (driver.Value, error) { panic("boom") }
func (moody) Columns() []string            { panic("boom") }

func TestAPanicOfAValuerCostsNoPlaceInThePool(t *testing.T) {
	_, db, c := openTasks(t, 1)
	require.PanicsWithValue(t, "boom", func() { _, _ = db.ExecContext(t.Context(), "INSERT INTO t VALUES (?)", moody{}) })
	atRest(t, c)
	require.NoError(t, insertTwo(t.Context(), db))
}

// TestAPanicOfAValuerLeavesAConnItsSession: nothing was sent, and what is open goes on.
func TestAPanicOfAValuerLeavesAConnItsSession(t *testing.T) {
	server, db, c := openTasks(t, 2)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	mustExec(t, t.Context(), conn, "BEGIN")
	mustExec(t, t.Context(), conn, "INSERT INTO t VALUES (1)")
	rows, err := conn.QueryContext(t.Context(), "SELECT n FROM numbers LIMIT 5")
	require.NoError(t, err)
	require.PanicsWithValue(t, "boom", func() { _, _ = conn.ExecContext(t.Context(), "INSERT INTO t VALUES (?)", moody{}) })
	for range 5 {
		require.True(t, rows.Next())
	}
	require.NoError(t, rows.Close())
	mustExec(t, t.Context(), conn, "INSERT INTO t VALUES (2)")
	require.Equal(t, 1, server.State().InTx(), "the same one")
	mustExec(t, t.Context(), conn, "COMMIT")
	require.NoError(t, conn.Close())
	require.Len(t, server.Table("t"), 2)
	require.Equal(t, 1, server.State().Opened)
	atRest(t, c)
}

// TestAPanicOfAValuerInAQueryOfAConnCostsNoPlaceInThePool: database/sql does not let the
// *sql.Conn end then.
func TestAPanicOfAValuerInAQueryOfAConnCostsNoPlaceInThePool(t *testing.T) {
	for name, run := range map[string]func(conn *sql.Conn, stmt *sql.Stmt){
		"query":               func(conn *sql.Conn, _ *sql.Stmt) { _ = query(conn.QueryContext(t.Context(), "SELECT ?", moody{})) },
		"exec of a statement": func(_ *sql.Conn, stmt *sql.Stmt) { _, _ = stmt.Exec(moody{}) },
	} {
		for _, reprepares := range []bool{false, true} {
			_, db, c := openStub(t, dialects.Traits{Reprepares: reprepares})
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			mustExec(t, t.Context(), conn, "SET a = 1")
			stmt, err := conn.PrepareContext(t.Context(), "INSERT INTO t VALUES (?)")
			require.NoError(t, err)
			require.PanicsWithValue(t, "boom", func() { run(conn, stmt) }, name)
			atRest(t, c)
			require.NoError(t, insertTwo(t.Context(), db))
			require.ErrorContains(t, insertTwo(t.Context(), conn), saysPanicked)
		}
	}
}

// TestAPanicOfAValuerLeavesNoStatementBehind, where each query is prepared.
func TestAPanicOfAValuerLeavesNoStatementBehind(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{Reprepares: true})
	for i := range 5 {
		tx, err := db.Begin()
		require.NoError(t, err)
		query := fmt.Sprintf("INSERT INTO t VALUES (?) /* %d */", i)
		require.PanicsWithValue(t, "boom", func() { _, _ = tx.ExecContext(t.Context(), query, moody{}) })
		require.NoError(t, tx.Rollback())
	}
	atRest(t, c)
	require.Len(t, s.Server.Events(fakedb.ConnPrepareCtx), 5)
	require.Zero(t, s.Server.State().Prepared())
	require.Equal(t, 1, s.Server.State().Opened)
}

// TestAConnWhoseSessionEndedByAPanicDoesNotGoOnOnAnotherOne: what comes next would be
// outside the transaction, and without the session's state.
func TestAConnWhoseSessionEndedByAPanicDoesNotGoOnOnAnotherOne(t *testing.T) {
	for _, state := range []string{"BEGIN", "SET a = 1"} {
		server, db, c := openTasks(t, 1)
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		mustExec(t, t.Context(), conn, state)
		server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Panic: "boom"})
		require.PanicsWithValue(t, "boom", func() { _ = insertTwo(t.Context(), conn) })
		require.ErrorContains(t, insertTwo(t.Context(), conn), saysPanicked)
		_, err = conn.BeginTx(t.Context(), nil)
		require.ErrorContains(t, err, saysPanicked)
		require.NoError(t, conn.Close())
		require.Empty(t, server.Table("t"))
		require.NoError(t, insertTwo(t.Context(), db))
		require.Equal(t, 2, server.State().Opened)
		atRest(t, c)
	}
}

// TestAConnOfATaskWhoseOwnTransactionEndedByAPanicDoesNotGoOn, where it is not the task's.
func TestAConnOfATaskWhoseOwnTransactionEndedByAPanicDoesNotGoOn(t *testing.T) {
	server, db, c := openTasks(t, 3)
	ctx, end := task.WithImplicit(t.Context())
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	mustExec(t, ctx, conn, "BEGIN")
	server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Panic: "boom"})
	require.PanicsWithValue(t, "boom", func() { _ = insertTwo(ctx, conn) })
	require.ErrorContains(t, insertTwo(ctx, conn), saysPanicked)
	require.NoError(t, conn.Close())
	mustExec(t, ctx, tx, "INSERT INTO t VALUES (1)")
	require.NoError(t, tx.Commit())
	require.Len(t, server.Table("t"), 1)
	end()
	atRest(t, c)
}

// TestAStatementThatCouldNotBeClosedEndsWithItsCheckout where a driver would find it.
func TestAStatementThatCouldNotBeClosedEndsWithItsCheckout(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{PreparedAges: true})
	cleaned := 0
	s.OnClean = func() (bool, error) { cleaned++; return false, nil }
	stmt, err := db.Prepare("SELECT 1")
	require.NoError(t, err)
	require.NoError(t, stmt.Close())
	s.Server.Inject(fakedb.Fault{Call: fakedb.StmtClose, Err: errors.New("busy")})
	require.NoError(t, query(db.Query("SELECT 1")))
	atRest(t, c)
	require.Equal(t, 1, cleaned)
	require.NoError(t, query(db.Query("SELECT 1")))
	atRest(t, c)
	require.Equal(t, 1, cleaned)
}

// TestAPanicWhileAnOldStatementIsClosedCostsNoPlaceInThePool: before its text is sent.
func TestAPanicWhileAnOldStatementIsClosedCostsNoPlaceInThePool(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{PreparedAges: true})
	stmt, err := db.Prepare("SELECT 1")
	require.NoError(t, err)
	require.NoError(t, stmt.Close())
	s.Server.Inject(fakedb.Fault{Call: fakedb.StmtClose, Panic: "boom"})
	require.PanicsWithValue(t, "boom", func() { _ = query(db.Query("SELECT 1")) })
	atRest(t, c)
	require.NoError(t, query(db.Query("SELECT 1")))
	require.Equal(t, 2, s.Server.State().Opened)
}
