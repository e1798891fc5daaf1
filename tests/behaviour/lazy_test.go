package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
)

var begins = []fakedb.Call{fakedb.ConnBeginCtx, fakedb.TxCommit, fakedb.TxRollback}

func TestALazyTransactionBeginsWithItsFirstStatement(t *testing.T) {
	server, db, c := openTasks(t, 1, lazily)
	tx, err := db.Begin()
	require.NoError(t, err)
	require.Zero(t, lent(c), "it has no connection")
	mustExec(t, t.Context(), db, "INSERT INTO t VALUES (1)") // on the only one
	require.Empty(t, server.Events(begins...))
	_, err = tx.Exec("INSERT INTO t VALUES (2)")
	require.NoError(t, err)
	require.Equal(t, 1, server.State().InTx())
	require.Equal(t, 1, lent(c))
	_, err = tx.Exec("INSERT INTO t VALUES (3)")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	require.Len(t, server.Events(begins...), 2, "one BEGIN, one COMMIT")
	require.Len(t, server.Table("t"), 3)

	tx, err = db.Begin()
	require.NoError(t, err)
	stmt, err := tx.Prepare(insertOne)
	require.NoError(t, err)
	_, err = stmt.Exec(4)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback())
	require.Len(t, server.Table("t"), 3)
	require.Zero(t, lent(c))
}

func TestALazyTransactionWithoutStatementsSendsNothing(t *testing.T) {
	for name, use := range map[string]func(ctx context.Context, db *sql.DB) error{
		"commit": func(ctx context.Context, db *sql.DB) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			return tx.Commit()
		},
		"rollback": func(ctx context.Context, db *sql.DB) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			return tx.Rollback()
		},
		"InTx": func(ctx context.Context, db *sql.DB) error {
			return pooldriver.InTx(ctx, db, nil, func(context.Context, *sql.Tx) error { return nil })
		},
		"its context ends": func(ctx context.Context, db *sql.DB) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			cancel()
			if err := tx.Commit(); !errors.Is(err, context.Canceled) && !errors.Is(err, sql.ErrTxDone) {
				return errors.New("it was committed")
			}
			return nil
		},
		"the task ends": func(ctx context.Context, db *sql.DB) error {
			ctx, end := pooldriver.NewTask(ctx)
			_, err := db.BeginTx(ctx, nil)
			end()
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, inTask := range []bool{false, true} {
				server, db, c := openTasks(t, 1, lazily, quiet)
				ctx, end := t.Context(), func() {}
				if inTask {
					ctx, end = pooldriver.WithTask(ctx)
				}
				require.NoError(t, use(ctx, db))
				end()
				atRest(t, c)
				require.Empty(t, server.Events(begins...))
				mustExec(t, t.Context(), db, "INSERT INTO t VALUES (1)")
				require.Len(t, server.Table("t"), 1)
			}
		})
	}
}

// TestALazyTransactionThatCannotBeginFailsItsStatements: none of them runs in
// autocommit.
func TestALazyTransactionThatCannotBeginFailsItsStatements(t *testing.T) {
	for _, inTask := range []bool{false, true} {
		server, db, c := openTasks(t, 1, lazily)
		ctx, end := t.Context(), func() {}
		if inTask {
			ctx, end = pooldriver.WithTask(ctx)
		}
		no := errors.New("cannot begin")
		server.Fail(fakedb.ConnBeginCtx, 1, no)
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		for range 3 {
			_, err = tx.ExecContext(ctx, "INSERT INTO t VALUES (1)")
			require.ErrorIs(t, err, no)
			require.ErrorIs(t, tx.QueryRowContext(ctx, "SELECT 1").Scan(new(int)), no)
			_, err = tx.PrepareContext(ctx, insertOne)
			require.ErrorIs(t, err, no)
		}
		if inTask {
			_, err = db.ExecContext(ctx, "INSERT INTO t VALUES (1)")
			require.ErrorIs(t, err, no, "it belongs to the transaction")
			_, err = db.BeginTx(ctx, nil)
			require.ErrorIs(t, err, no, "so would the savepoint")
		}
		require.ErrorIs(t, tx.Commit(), no)
		mustExec(t, ctx, db, "INSERT INTO t VALUES (2)")
		tx, err = db.BeginTx(ctx, nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(ctx, "INSERT INTO t VALUES (3)")
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		require.Equal(t, [][]any{{int64(2)}, {int64(3)}}, server.Table("t"))
		end()
		atRest(t, c)
	}
}

func TestALazyTransactionOnADeadConnectionBeginsOnAnother(t *testing.T) {
	server, db, c := openTasks(t, 1, lazily)
	mustExec(t, t.Context(), db, "INSERT INTO t VALUES (1)")
	server.Inject(fakedb.Fault{Call: fakedb.ConnBeginCtx, Kill: true, Err: driver.ErrBadConn})
	tx, err := db.Begin()
	require.NoError(t, err)
	for i := range 2 {
		_, err = tx.Exec(insertOne, i+2)
		require.NoError(t, err)
	}
	require.Equal(t, 2, server.State().Opened)
	require.Equal(t, 1, server.State().InTx())
	require.NoError(t, tx.Rollback())
	require.Len(t, server.Table("t"), 1)
	require.EqualValues(t, 1, c.Stats().Retries)

	// Once it has begun, nothing moves.
	tx, err = db.Begin()
	require.NoError(t, err)
	_, err = tx.Exec("INSERT INTO t VALUES (5)")
	require.NoError(t, err)
	server.KillAll()
	_, err = tx.Exec("INSERT INTO t VALUES (6)")
	require.Error(t, err)
	require.Error(t, tx.Commit())
	require.Len(t, server.Table("t"), 1)
}

// A transaction that was begun outside of tasks stays there: its statements are
// its own, whatever their contexts say.
func TestALazyTransactionKeepsOutOfTheTaskOfItsStatements(t *testing.T) {
	server, db, c := openTasks(t, 2, lazily)
	tx, err := db.Begin()
	require.NoError(t, err)
	ctx, end := pooldriver.WithTask(t.Context())
	_, err = tx.ExecContext(ctx, "INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	mustExec(t, ctx, db, "INSERT INTO t VALUES (2)")
	require.Len(t, server.Table("t"), 2)
	require.Equal(t, 1, server.State().InTx())
	end()
	require.Equal(t, 1, lent(c), "it goes on")
	require.NoError(t, tx.Rollback())
	require.Len(t, server.Table("t"), 1)
}

func TestALazyTransactionOfATaskBeginsWithAnybodysStatement(t *testing.T) {
	server, db, c := openTasks(t, 1, lazily)
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, server.Events(begins...))
	mustExec(t, ctx, db, "INSERT INTO t VALUES (1)")
	require.Equal(t, 1, server.State().InTx())
	inner, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	mustExec(t, ctx, db, "INSERT INTO t VALUES (2)")
	require.NoError(t, inner.Rollback())
	require.NoError(t, tx.Commit())
	require.Equal(t, [][]any{{int64(1)}}, server.Table("t"))

	// A savepoint may be the first to come.
	tx, err = db.BeginTx(ctx, nil)
	require.NoError(t, err)
	inner, err = db.BeginTx(ctx, nil)
	require.NoError(t, err)
	mustExec(t, ctx, db, "INSERT INTO t VALUES (3)")
	require.NoError(t, inner.Commit())
	require.NoError(t, tx.Rollback())
	require.Len(t, server.Table("t"), 1)

	// And the connection may die before anything has come.
	tx, err = db.BeginTx(ctx, nil)
	require.NoError(t, err)
	server.KillAll()
	_, err = db.ExecContext(ctx, "INSERT INTO t VALUES (4)")
	require.Error(t, err)
	_, err = db.ExecContext(ctx, "INSERT INTO t VALUES (5)")
	require.ErrorIs(t, err, pooldriver.ErrTxLost)
	require.ErrorIs(t, tx.Commit(), pooldriver.ErrTxLost)
	mustExec(t, ctx, db, "INSERT INTO t VALUES (6)")
	require.Equal(t, [][]any{{int64(1)}, {int64(6)}}, server.Table("t"))
	require.Zero(t, lent(c))
}

func TestRawInALazyTransactionBelongsToIt(t *testing.T) {
	for _, inTask := range []bool{false, true} {
		server, db, c := openTasks(t, 2, lazily)
		ctx, end := t.Context(), func() {}
		if inTask {
			ctx, end = pooldriver.WithTask(ctx)
		}
		conn, err := db.Conn(ctx)
		require.NoError(t, err)
		tx, err := conn.BeginTx(ctx, nil)
		require.NoError(t, err)
		require.NoError(t, pooldriver.Raw(ctx, conn, func(dc driver.Conn) error { return rawly(ctx, dc, "INSERT INTO t VALUES (3)") }))
		require.Equal(t, 1, server.State().InTx())
		require.NoError(t, tx.Rollback())
		require.Empty(t, server.Table("t"))
		require.NoError(t, conn.Close())
		end()
		atRest(t, c)
	}
}

// carryingStub is a stub whose sessions send BEGIN with the next statement, if they can.
type carryingStub struct {
	*stubdialect.Stub
	can     bool
	carried int
}

func (s *carryingStub) Dial(ctx context.Context, cred *dialects.Credential) (dialects.Session, error) {
	inner, err := s.Stub.Dial(ctx, cred)
	if err != nil {
		return nil, err
	}
	return carrying{inner.(*stubdialect.Session), s}, nil
}

type carrying struct {
	*stubdialect.Session
	stub *carryingStub
}

func (s carrying) BeginWithNext(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	s.stub.carried++
	if !s.stub.can {
		return nil, errors.ErrUnsupported
	}
	return s.Conn().(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (s carrying) BeginNow(context.Context) error { return nil }

func TestAStatementCarriesBeginWhereTheDriverCanAndNotForRaw(t *testing.T) {
	s := &carryingStub{Stub: stubdialect.New(dialects.Traits{}), can: true}
	db, _ := openDatabase(t, s, s.Server, lazily)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	use := func(raw bool) {
		tx, err := conn.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		if raw {
			require.NoError(t, pooldriver.Raw(t.Context(), conn, func(dc driver.Conn) error { return rawly(t.Context(), dc, "INSERT INTO t VALUES (3)") }))
		} else {
			_, err = tx.Exec("INSERT INTO t VALUES (1)")
			require.NoError(t, err)
		}
		require.NoError(t, tx.Commit())
	}
	use(false)
	require.Equal(t, 1, s.carried)
	use(true)
	require.Equal(t, 1, s.carried)
	s.can = false
	use(false)
	require.Equal(t, 2, s.carried)
	require.Len(t, s.Server.Events(fakedb.ConnBeginCtx), 3)
	require.Len(t, s.Server.Table("t"), 3)
}

func TestBeginningLazilyDoesNotWaitForAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db, _ := openTasks(t, 1, lazily)
		holder, err := db.Begin()
		require.NoError(t, err)
		_, err = holder.Exec("INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		begun := time.Now()
		var all []*sql.Tx
		for range 50 {
			tx, err := db.Begin()
			require.NoError(t, err)
			all = append(all, tx)
		}
		require.Less(t, time.Since(begun), time.Second)
		require.NoError(t, holder.Commit())
		for _, tx := range all {
			_, err := tx.Exec("INSERT INTO t VALUES (2)")
			require.NoError(t, err)
			require.NoError(t, tx.Rollback())
		}
	})
}

// TestATransactionByHandIsNotAnsweredLazily: what BeginTx is inside of it is the
// driver's affair, and its commit must be one.
func TestATransactionByHandIsNotAnsweredLazily(t *testing.T) {
	server, db, _ := openTasks(t, 1, lazily)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "BEGIN")
	require.NoError(t, err)
	_, err = conn.BeginTx(t.Context(), nil)
	require.ErrorContains(t, err, "open already", "the driver's word")
	require.Len(t, server.Events(fakedb.ConnBeginCtx), 1)
}

// TestALazyTransactionThatGetsNoConnectionDoesNotCommit what comes after the
// statement that was lost.
func TestALazyTransactionThatGetsNoConnectionDoesNotCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, db, _ := openTasks(t, 1, lazily, func(c *pooldriver.Config) { c.AcquireTimeout = 50 * time.Millisecond })
		holder, err := db.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, holder.PingContext(t.Context()))
		tx, err := db.Begin()
		require.NoError(t, err)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = tx.ExecContext(ended, "INSERT INTO t VALUES (0)")
		require.ErrorIs(t, err, context.Canceled, "which was not even tried")
		_, err = tx.Exec("INSERT INTO t VALUES (1)")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, holder.Close())
		_, err = tx.Exec("INSERT INTO t VALUES (2)")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, tx.Commit(), context.DeadlineExceeded)
		require.Empty(t, server.Table("t"))
	})
}

// TestBothContextsEndTheWaitOfALazyTransaction: the statement's, and that of
// BeginTx.
func TestBothContextsEndTheWaitOfALazyTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, whose := range []string{"the statement's", "BeginTx's"} {
			for _, waiting := range []string{"for a connection", "for BEGIN"} {
				server, db, c := openTasks(t, 1, lazily)
				mustExec(t, t.Context(), db, "INSERT INTO t VALUES (1)")
				var free func()
				if waiting == "for BEGIN" {
					gate := server.Block(fakedb.ConnBeginCtx)
					free = gate.Open
				} else {
					holder, err := db.Conn(t.Context())
					require.NoError(t, err)
					require.NoError(t, holder.PingContext(t.Context()))
					free = func() { require.NoError(t, holder.Close()) }
				}
				of := map[string]context.Context{"the statement's": t.Context(), "BeginTx's": t.Context()}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				of[whose] = ctx
				tx, err := db.BeginTx(of["BeginTx's"], nil)
				require.NoError(t, err)
				begun := time.Now()
				_, err = tx.ExecContext(of["the statement's"], "INSERT INTO t VALUES (2)")
				require.ErrorIs(t, err, context.DeadlineExceeded, whose+" "+waiting)
				require.Less(t, time.Since(begun), 5*time.Second, whose+" "+waiting)
				_ = tx.Rollback()
				cancel()
				free()
				atRest(t, c)
				require.Len(t, server.Table("t"), 1)
			}
		}
	})
}

// TestALazyTransactionsCommitOutlivesItsFirstStatementsContext, with a driver that
// keeps BeginTx's context for it (pgx).
func TestALazyTransactionsCommitOutlivesItsFirstStatementsContext(t *testing.T) {
	s, db, _ := openStub(t, dialects.Traits{TxKeepsContext: true}, lazily)
	for _, wait := range []bool{false, true} {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		_, err = tx.ExecContext(ctx, "INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		cancel()
		if wait {
			_, err = tx.Exec("INSERT INTO t VALUES (2)")
			require.NoError(t, err)
		}
		require.NoError(t, tx.Commit())
	}
	require.Len(t, s.Server.Table("t"), 3)
}

// TestALazyTransactionsDriverMayWatchItsContext for as long as it lasts, as lib/pq does:
// its first statement's context bounds the beginning alone.
func TestALazyTransactionsDriverMayWatchItsContext(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{}, lazily)
	var given context.Context
	s.OnBegin = func(ctx context.Context) { given = ctx }
	c.Flush() // a connection that tells
	begin := func(ctx context.Context) *sql.Tx {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		first, cancel := context.WithCancel(t.Context())
		mustExec(t, first, tx, "INSERT INTO t VALUES (1)")
		require.NoError(t, given.Err())
		cancel()
		select {
		case <-given.Done():
			require.Fail(t, "ended with the first statement's context")
		case <-time.After(20 * time.Millisecond):
		}
		return tx
	}
	for _, end := range []func(*sql.Tx) error{(*sql.Tx).Commit, (*sql.Tx).Rollback} {
		require.NoError(t, end(begin(t.Context())))
		require.Error(t, given.Err(), "let go of")
	}
	ctx, cancel := context.WithCancel(t.Context())
	tx := begin(ctx)
	cancel()
	<-given.Done()
	_ = tx.Rollback()
}

// TestAnEndedContextDoesNotBeginALazyTransaction on a connection that is there already:
// neither BeginTx's nor that of a first statement, after which it is what it was.
func TestAnEndedContextDoesNotBeginALazyTransaction(t *testing.T) {
	server, db, _ := openTasks(t, 1, lazily)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.PingContext(t.Context()))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = conn.BeginTx(ended, nil)
	require.ErrorIs(t, err, context.Canceled)
	tx, err := conn.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = conn.ExecContext(ended, "INSERT INTO t VALUES (1)")
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, server.Events(fakedb.ConnBeginCtx))
	mustExec(t, t.Context(), tx, "INSERT INTO t VALUES (2)")
	require.NoError(t, tx.Commit())
	require.Len(t, server.Events(fakedb.ConnBeginCtx), 1)
	require.Len(t, server.Table("t"), 1)
}

// TestStatementsAtOnceBeginALazyTransactionOnce is the race detector's, too.
func TestStatementsAtOnceBeginALazyTransactionOnce(t *testing.T) {
	server, db, _ := openTasks(t, 1, lazily)
	for range 50 {
		err := pooldriver.InTx(t.Context(), db, nil, func(ctx context.Context, _ *sql.Tx) error {
			errs := make(chan error)
			for range 2 {
				go func() { errs <- insertTwo(ctx, db) }()
			}
			return errors.Join(<-errs, <-errs)
		})
		require.NoError(t, err)
	}
	require.Len(t, server.Table("t"), 100)
	require.Len(t, server.Events(begins...), 100, "one BEGIN, one COMMIT")
}
