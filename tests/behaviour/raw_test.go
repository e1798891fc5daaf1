package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

func TestRawInATransactionBelongsToIt(t *testing.T) {
	for _, commit := range []bool{false, true} {
		server, db, c := openTasks(t, 2)
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		require.NoError(t, insertTwo(ctx, tx))
		conn, err := db.Conn(ctx)
		require.NoError(t, err)
		require.NoError(t, pooldriver.Raw(ctx, conn, func(dc driver.Conn) error { return rawly(ctx, dc, "INSERT INTO t VALUES (3)") }))
		require.NoError(t, conn.Close())
		require.NoError(t, insertTwo(ctx, db))
		require.Equal(t, 1, server.State().Opened)
		if commit {
			require.NoError(t, tx.Commit())
			require.Len(t, server.Table("t"), 3)
		} else {
			require.NoError(t, tx.Rollback())
			require.Empty(t, server.Table("t"))
		}
		atRest(t, c) // what Raw did is cleaned away behind the program
	}
}

func TestRawSeesTheSessionOfItsTaskAndLeavesNothingToTheNextBorrower(t *testing.T) {
	_, db, c := openTasks(t, 1)
	ctx, end := pooldriver.WithTask(t.Context())
	mustExec(t, ctx, db, "SET a = 1")
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	require.NoError(t, pooldriver.Raw(ctx, conn, func(dc driver.Conn) error { return rawly(ctx, dc, "SET b = 2") }))
	require.NoError(t, conn.Close())
	require.EqualValues(t, 1, show(t, ctx, db, "a"))
	require.EqualValues(t, 2, show(t, ctx, db, "b"), "one session")
	end()
	require.Zero(t, lent(c))
	require.Nil(t, show(t, t.Context(), db, "a"))
	require.Nil(t, show(t, t.Context(), db, "b"))
}

func TestAStatementThatNeedsTheSessionWaitsUntilRawHasReturned(t *testing.T) {
	for name, use := range map[string]func(ctx context.Context, db *sql.DB, tx *sql.Tx) error{
		"a statement that joins":        func(ctx context.Context, db *sql.DB, _ *sql.Tx) error { return insertTwo(ctx, db) },
		"the transaction's own":         func(ctx context.Context, _ *sql.DB, tx *sql.Tx) error { return insertTwo(ctx, tx) },
		"a savepoint":                   func(ctx context.Context, db *sql.DB, _ *sql.Tx) error { return rolledBack(db.BeginTx(ctx, nil)) },
		"a query of another sql.Conn":   func(ctx context.Context, db *sql.DB, _ *sql.Tx) error { return onConn(ctx, db, insertTwoOn) },
		"another Raw of another handle": func(ctx context.Context, db *sql.DB, _ *sql.Tx) error { return onConn(ctx, db, rawTwoOn) },
	} {
		t.Run(name, func(t *testing.T) {
			_, db, _ := openTasks(t, 2)
			ctx, end := pooldriver.WithTask(t.Context())
			defer end()
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			done := inRaw(ctx, takeConn(t, ctx, db), nothing)
			used := make(chan error, 1)
			go func() { used <- use(ctx, db, tx) }()
			select {
			case err := <-used:
				t.Fatalf("it did not wait: %v", err)
			case <-time.After(20 * time.Millisecond):
			}
			require.NoError(t, done())
			require.NoError(t, <-used)
			require.NoError(t, tx.Rollback())
		})
	}
}

func rolledBack(tx *sql.Tx, err error) error {
	if err != nil {
		return err
	}
	return tx.Rollback()
}

func onConn(ctx context.Context, db *sql.DB, use func(context.Context, *sql.Conn) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	return errors.Join(use(ctx, conn), conn.Close())
}

func insertTwoOn(ctx context.Context, conn *sql.Conn) error { return insertTwo(ctx, conn) }

func rawTwoOn(ctx context.Context, conn *sql.Conn) error {
	return pooldriver.Raw(ctx, conn, func(dc driver.Conn) error { return rawly(ctx, dc, "INSERT INTO t VALUES (2)") })
}

func TestAFunctionOfRawThatUsesItsTaskIsToldWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, db, c := openTasks(t, 2)
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		conn := takeConn(t, ctx, db)
		for range 2 {
			require.NoError(t, pooldriver.Raw(ctx, conn, func(dc driver.Conn) error {
				began := time.Now()
				err := insertTwo(ctx, db)
				require.ErrorContains(t, err, "lent to a function of Raw")
				require.Less(t, time.Since(began), time.Second)
				return rawly(ctx, dc, "INSERT INTO t VALUES (1)")
			}))
		}
		require.NoError(t, insertTwo(ctx, db), "the transaction is as it was")
		require.NoError(t, tx.Commit())
		require.Len(t, server.Table("t"), 3)
		require.Equal(t, 1, c.Stats().Pool.Count)
	})
}

func TestAFunctionOfRawMayUseItsTaskWhereThereAreOtherConnections(t *testing.T) {
	server, db, _ := openTasks(t, 2)
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	require.NoError(t, pooldriver.Raw(ctx, takeConn(t, ctx, db), func(dc driver.Conn) error {
		return errors.Join(insertTwo(ctx, db), rawly(ctx, dc, "INSERT INTO t VALUES (1)"))
	}))
	require.Len(t, server.Table("t"), 2)
}

func TestATransactionDoesNotEndWhileRawHasItsConnection(t *testing.T) {
	for name, finish := range map[string]func(*sql.Tx) error{"rollback": (*sql.Tx).Rollback, "commit": (*sql.Tx).Commit} {
		t.Run(name, func(t *testing.T) {
			server, db, c := openTasks(t, 2)
			ctx, end := pooldriver.WithTask(t.Context())
			defer end()
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			conn, err := db.Conn(ctx)
			require.NoError(t, err)
			gate := held(server, "(7)")
			raw, ended := make(chan error, 1), make(chan error, 1)
			go func() {
				raw <- pooldriver.Raw(ctx, conn, func(dc driver.Conn) error { return rawly(ctx, dc, "INSERT INTO t VALUES (7)") })
			}()
			<-gate.Entered()
			go func() { ended <- finish(tx) }()
			select {
			case err := <-ended:
				t.Error("it did not wait", err)
			case <-time.After(20 * time.Millisecond):
			}
			gate.Open()
			require.NoError(t, <-raw)
			require.NoError(t, <-ended)
			require.NoError(t, conn.Close())
			require.Zero(t, server.State().InTx())
			atRest(t, c)
		})
	}
}

func TestTheWaitForRawEndsWithTheContext(t *testing.T) {
	_, db, _ := openTasks(t, 1)
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	mustExec(t, ctx, db, "SET a = 1")
	done := inRaw(ctx, takeConn(t, ctx, db), nothing)
	impatient, cancel := context.WithCancel(ctx)
	used := make(chan error, 1)
	go func() { used <- insertTwo(impatient, db) }()
	cancel()
	require.ErrorIs(t, <-used, context.Canceled)
	require.NoError(t, done())
	require.NoError(t, insertTwo(ctx, db))
}

func TestRowsInTheWayOfRawAreReadIntoMemoryFirst(t *testing.T) {
	server, db, c := openTasks(t, 1)
	require.NoError(t, inTransaction(t.Context(), db, func(ctx context.Context) error {
		rows, err := db.QueryContext(ctx, "SELECT n FROM numbers LIMIT 5")
		require.NoError(t, err)
		seen := 0
		for ; rows.Next(); seen++ {
			require.NoError(t, onConn(ctx, db, rawTwoOn))
		}
		require.Equal(t, 5, seen)
		return rows.Close()
	}))
	require.Len(t, server.Table("t"), 5)
	require.Zero(t, c.Stats().BufferedBytes)
}

func TestAPanicInRawCostsItsConnectionAndGoesOn(t *testing.T) {
	for _, inTx := range []bool{false, true} {
		server, db, c := openTasks(t, 1)
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		var tx *sql.Tx
		if inTx {
			var err error
			tx, err = db.BeginTx(ctx, nil)
			require.NoError(t, err)
			require.NoError(t, insertTwo(ctx, db))
		}
		conn, err := db.Conn(ctx)
		require.NoError(t, err)
		require.PanicsWithValue(t, "boom", func() { _ = pooldriver.Raw(ctx, conn, func(driver.Conn) error { panic("boom") }) })
		require.ErrorIs(t, conn.Close(), sql.ErrConnDone, "database/sql has closed it")
		if inTx {
			require.ErrorIs(t, insertTwo(ctx, db), pooldriver.ErrTxLost)
			require.ErrorIs(t, tx.Commit(), pooldriver.ErrTxLost)
			require.Empty(t, server.Table("t"))
		}
		require.NoError(t, insertTwo(ctx, db))
		require.Equal(t, 2, server.State().Opened)
		end()
		require.Zero(t, lent(c))
	}
}

func TestAnErrBadConnOfRawEndsItsConnection(t *testing.T) {
	server, db, c := openTasks(t, 1)
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	require.ErrorIs(t, pooldriver.Raw(ctx, conn, func(driver.Conn) error { return driver.ErrBadConn }), driver.ErrBadConn)
	require.ErrorIs(t, conn.Close(), sql.ErrConnDone)
	require.NoError(t, insertTwo(ctx, db))
	require.Equal(t, 2, server.State().Opened)
	require.Zero(t, lent(c))
}

func TestTheEndOfATaskLetsAFunctionOfRawReturn(t *testing.T) {
	server, db, c := openTasks(t, 1)
	ctx, end := pooldriver.WithTask(t.Context())
	tx, err := db.BeginTx(context.WithoutCancel(ctx), nil)
	require.NoError(t, err)
	conn, err := db.Conn(context.WithoutCancel(ctx))
	require.NoError(t, err)
	done := inRaw(context.WithoutCancel(ctx), conn, func(dc driver.Conn) error {
		return rawly(context.Background(), dc, "INSERT INTO t VALUES (1)")
	})
	ended := make(chan struct{})
	go func() { end(); close(ended) }()
	<-ctx.Done()
	require.NoError(t, done(), "nobody touches its connection before it returns")
	<-ended
	require.Empty(t, server.Table("t"))
	require.Zero(t, server.State().InTx())
	require.Zero(t, lent(c))
	require.NoError(t, tx.Rollback(), "it is what has happened")
	require.NoError(t, conn.Close())
}

func TestNothingSpinsWhileAFunctionOfRawOutlivesItsTask(t *testing.T) {
	defer randomtest.Watch(t, time.Minute)()
	synctest.Test(t, func(t *testing.T) {
		_, db, c := openTasks(t, 1)
		ctx, end := pooldriver.WithTask(t.Context())
		conn, err := db.Conn(ctx)
		require.NoError(t, err)
		done := inRaw(context.WithoutCancel(ctx), conn, nothing)
		end()                   // gives up waiting for it
		time.Sleep(time.Second) // passes when nothing runs
		require.Equal(t, 1, lent(c))
		require.NoError(t, done())
		synctest.Wait()
		require.Zero(t, lent(c))
		require.NoError(t, conn.Close())
	})
}

func TestRawOfAnEndedTaskIsRefused(t *testing.T) {
	_, db, _ := openTasks(t, 1)
	ctx, end := pooldriver.WithTask(t.Context())
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	end()
	late := context.WithoutCancel(ctx)
	require.ErrorIs(t, pooldriver.Raw(late, conn, func(driver.Conn) error { panic("not reached") }), pooldriver.ErrTaskEnded)
	require.NoError(t, conn.Close())
}

// TestAStatementBesideRawLooksForAnotherConnection: what the function does with
// its own is not seen before it returns, a BEGIN among it.
func TestAStatementBesideRawLooksForAnotherConnection(t *testing.T) {
	for of := range 3 {
		server, db, _ := openTasks(t, 3)
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		var conns [3]*sql.Conn
		for i := range conns {
			conns[i] = takeConn(t, ctx, db)
			require.NoError(t, conns[i].PingContext(ctx))
		}
		begun, leave, result := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			result <- pooldriver.Raw(ctx, conns[of], func(dc driver.Conn) error {
				err := rawly(ctx, dc, "BEGIN")
				close(begun)
				<-leave
				return errors.Join(err, rawly(ctx, dc, "COMMIT"))
			})
		}()
		<-begun
		leaves := sync.OnceFunc(func() { close(leave) })
		defer leaves()
		for range 3 {
			require.NoError(t, insertTwo(ctx, db))
		}
		for i, conn := range conns {
			if i != of {
				require.NoError(t, insertTwo(ctx, conn))
			}
		}
		require.NoError(t, onConn(ctx, db, insertTwoOn))
		leaves()
		require.NoError(t, <-result)
		require.Len(t, server.Table("t"), 6)
		require.NoError(t, insertTwo(ctx, conns[of]))
		require.Equal(t, 3, server.State().Opened)
	}
}

func TestTheEndOfATaskDoesNotWaitForAFunctionOfRaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logged{}
		server, db, c := openTasks(t, 2, func(c *pooldriver.Config) { c.Logger = slog.New(log) })
		ctx, end := pooldriver.WithTask(t.Context())
		late := context.WithoutCancel(ctx)
		tx, err := db.BeginTx(late, nil)
		require.NoError(t, err)
		require.NoError(t, insertTwo(ctx, db))
		conn, err := db.Conn(late)
		require.NoError(t, err)
		done := inRaw(late, conn, func(dc driver.Conn) error { return rawly(late, dc, "INSERT INTO t VALUES (1)") })
		began := time.Now()
		soon(t, "the end of the task", end)
		require.Less(t, time.Since(began), time.Second)
		require.Equal(t, 1, log.count("a function of Raw"))
		require.Equal(t, 1, lent(c))
		require.NoError(t, insertTwo(t.Context(), db), "others have the rest of the pool")
		require.NoError(t, done())
		require.Zero(t, lent(c))
		require.Zero(t, server.State().InTx())
		require.Len(t, server.Table("t"), 1)
		require.NoError(t, tx.Rollback(), "it is what has happened")
		require.NoError(t, conn.Close())
	})
}

func TestNothingIsAnErrorWhereSomethingIsNeeded(t *testing.T) {
	_, db, _ := openTasks(t, 1)
	conn := takeConn(t, t.Context(), db)
	for want, err := range map[string]error{
		"Raw was given no *sql.Conn": pooldriver.Raw(t.Context(), nil, nothing),
		"Raw was given no function":  pooldriver.Raw(t.Context(), conn, nil),
		"InTx was given no *sql.DB":  pooldriver.InTx(t.Context(), nil, nil, func(context.Context, *sql.Tx) error { return nil }),
		"InTx was given no function": pooldriver.InTx(t.Context(), db, nil, nil),
		"Do was given no function":   pooldriver.Do(t.Context(), nil),
		"Wrap was given no connector": func() error {
			_, err := pooldriver.Wrap(nil).Connect(t.Context())
			return err
		}(),
	} {
		require.ErrorContains(t, err, "pooldriver: "+want)
	}
	require.NoError(t, pooldriver.Raw(t.Context(), conn, nothing))
}

// besides are ways to use a *sql.Conn, those that a function of Raw may try.
var besides = map[string]func(context.Context, *sql.Conn) error{
	"exec":  func(ctx context.Context, conn *sql.Conn) error { return insertTwo(ctx, conn) },
	"ping":  func(ctx context.Context, conn *sql.Conn) error { return conn.PingContext(ctx) },
	"begin": func(ctx context.Context, conn *sql.Conn) error { return rolledBack(conn.BeginTx(ctx, nil)) },
	"raw":   func(ctx context.Context, conn *sql.Conn) error { return pooldriver.Raw(ctx, conn, nothing) },
	"query": func(ctx context.Context, conn *sql.Conn) error {
		return conn.QueryRowContext(ctx, "SELECT 1").Scan(new(any))
	},
	"prepare": func(ctx context.Context, conn *sql.Conn) error {
		stmt, err := conn.PrepareContext(ctx, "SELECT 1")
		if err == nil {
			err = stmt.Close()
		}
		return err
	},
}

// eachWay runs a test without a task, and in one, with and without a transaction of its
// own, and with lazy begin. In bubbles: a machine that stands still makes nothing late.
func eachWay(t *testing.T, test func(t *testing.T, ctx context.Context, server *fakedb.Server, db *sql.DB, c *pooldriver.Connector)) {
	for _, lazy := range []bool{false, true} {
		option := func(c *pooldriver.Config) { c.LazyBegin = lazy }
		t.Run("without a task", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, db, c := openTasks(t, 2, option)
				test(t, t.Context(), server, db, c)
			})
		})
		t.Run("in a task", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, db, c := openTasks(t, 2, option)
				ctx, end := pooldriver.WithTask(t.Context())
				defer end()
				test(t, ctx, server, db, c)
			})
		})
	}
}

// TestAFunctionOfRawThatUsesItsConnIsTold at once: database/sql's own lock would have it
// wait for itself.
func TestAFunctionOfRawThatUsesItsConnIsTold(t *testing.T) {
	defer randomtest.Watch(t, time.Minute)()
	eachWay(t, func(t *testing.T, ctx context.Context, server *fakedb.Server, db *sql.DB, c *pooldriver.Connector) {
		conn, err := db.Conn(ctx)
		require.NoError(t, err)
		began := time.Now()
		for name, use := range besides {
			require.NoError(t, pooldriver.Raw(ctx, conn, func(dc driver.Conn) error {
				require.ErrorContains(t, use(ctx, conn), saysLent, name)
				inOther := make(chan error)
				go func() { inOther <- use(ctx, conn) }()
				require.ErrorContains(t, <-inOther, saysLent, name)
				return rawly(ctx, dc, "INSERT INTO t VALUES (1)")
			}), name)
			require.NoError(t, use(ctx, conn), name)
		}
		require.Less(t, time.Since(began), rawPatience)
		require.NoError(t, conn.Close())
		atRest(t, c)
		require.Equal(t, 1, server.State().Opened)
	})
}

// TestATransactionThatEndsInsideRawIsRolledBackAfterIt, whoever ends it.
func TestATransactionThatEndsInsideRawIsRolledBackAfterIt(t *testing.T) {
	defer randomtest.Watch(t, time.Minute)()
	for name, finish := range map[string]func(*sql.Tx, func()) error{
		"commit":   func(tx *sql.Tx, _ func()) error { return tx.Commit() },
		"rollback": func(tx *sql.Tx, _ func()) error { return tx.Rollback() },
		"context":  func(_ *sql.Tx, cancel func()) error { cancel(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			server, db, c := openTasks(t, 1)
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tx, err := conn.BeginTx(ctx, nil)
			require.NoError(t, err)
			require.NoError(t, insertTwo(t.Context(), tx))
			require.NoError(t, pooldriver.Raw(t.Context(), conn, func(dc driver.Conn) error {
				_, err := tx.Exec("INSERT INTO t VALUES (2)")
				require.ErrorContains(t, err, saysLent)
				err = finish(tx, cancel)
				if name == "commit" {
					require.ErrorContains(t, err, saysEndInRaw)
				} else {
					require.NoError(t, err)
				}
				return rawly(t.Context(), dc, "INSERT INTO t VALUES (3)")
			}))
			require.Eventually(t, func() bool { return tx.Rollback() == sql.ErrTxDone && server.State().InTx() == 0 }, patience, time.Millisecond)
			require.Empty(t, server.Table("t"))
			require.NoError(t, conn.Close())
			atRest(t, c)
			require.Equal(t, 1, server.State().Opened)
		})
	}
}

// TestRowsOfAConnAreNotReadWhileRawHasIt, and are closed.
func TestRowsOfAConnAreNotReadWhileRawHasIt(t *testing.T) {
	for _, first := range []bool{true, false} {
		server, db, c := openTasks(t, 1)
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		if !first {
			require.NoError(t, insertTwo(t.Context(), conn))
		}
		var all []*sql.Rows
		for range 3 {
			rows, err := conn.QueryContext(t.Context(), "SELECT n FROM numbers LIMIT 5")
			require.NoError(t, err)
			require.True(t, rows.Next())
			all = append(all, rows)
		}
		require.NoError(t, pooldriver.Raw(t.Context(), conn, func(driver.Conn) error {
			require.False(t, all[0].Next())
			require.ErrorContains(t, all[0].Err(), saysLent)
			require.NoError(t, all[1].Close())
			return nil
		}))
		seen := 1
		for ; all[2].Next(); seen++ {
		}
		require.Equal(t, 5, seen, "who has waited misses nothing")
		require.NoError(t, insertTwo(t.Context(), conn))
		require.NoError(t, conn.Close())
		atRest(t, c)
		require.Equal(t, 1, server.State().Opened)
	}
}

func TestAConnThatIsClosedInsideRawGivesItsConnectionBackAfterIt(t *testing.T) {
	defer randomtest.Watch(t, time.Minute)()
	eachWay(t, func(t *testing.T, ctx context.Context, _ *fakedb.Server, db *sql.DB, c *pooldriver.Connector) {
		conn, err := db.Conn(ctx)
		require.NoError(t, err)
		mustExec(t, ctx, conn, "INSERT INTO t VALUES (1)")
		require.NoError(t, pooldriver.Raw(ctx, conn, func(dc driver.Conn) error {
			require.NoError(t, conn.Close())
			require.Equal(t, 1, lent(c), "the function has it")
			return rawly(ctx, dc, "INSERT INTO t VALUES (1)")
		}))
		require.ErrorIs(t, pooldriver.Raw(ctx, conn, nothing), sql.ErrConnDone)
		atRest(t, c)
		require.NoError(t, insertTwo(ctx, db))
	})
}

func TestAConnectionThatRawHasClosedIsNamedByTheNextStatement(t *testing.T) {
	for name, use := range besides {
		eachWay(t, func(t *testing.T, ctx context.Context, server *fakedb.Server, db *sql.DB, c *pooldriver.Connector) {
			conn, err := db.Conn(ctx)
			require.NoError(t, err)
			require.NoError(t, pooldriver.Raw(ctx, conn, func(driver.Conn) error { server.KillAll(); return nil }))
			require.ErrorContains(t, use(ctx, conn), "the function of Raw has closed the connection", name)
			require.ErrorIs(t, conn.Close(), sql.ErrConnDone)
			atRest(t, c)
			require.NoError(t, insertTwo(ctx, db))
		})
	}
}

func TestATransactionWhoseConnectionRawHasClosedIsToldSo(t *testing.T) {
	server, db, c := openTasks(t, 1)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	tx, err := conn.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, pooldriver.Raw(t.Context(), conn, func(driver.Conn) error { server.KillAll(); return nil }))
	require.ErrorContains(t, tx.Commit(), "the function of Raw has closed the connection")
	atRest(t, c)
}
