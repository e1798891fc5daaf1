package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// TestATaskThatHoldsTheConnectionClosesAStatementWhoeverWaits: database/sql
// closes a statement under the lock of the virtual connection on which it was
// prepared, and that one may be used by somebody who waits for this very task.
func TestATaskThatHoldsTheConnectionClosesAStatementWhoeverWaits(t *testing.T) {
	for name, hold := range map[string]func(t *testing.T, ctx context.Context, db *sql.DB) (done func() error){
		"in a transaction": func(t *testing.T, ctx context.Context, db *sql.DB) func() error {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			return tx.Commit
		},
		"with a connection": func(t *testing.T, ctx context.Context, db *sql.DB) func() error {
			conn, err := db.Conn(ctx)
			require.NoError(t, err)
			require.NoError(t, conn.PingContext(ctx))
			return conn.Close
		},
		"with session state": func(t *testing.T, ctx context.Context, db *sql.DB) func() error {
			mustExec(t, ctx, db, "SET a = 1")
			return func() error { return nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			server, db, c := openTasks(t, 1)
			ctx, end := pooldriver.WithTask(t.Context())
			done := hold(t, ctx, db)
			stmt, err := db.PrepareContext(ctx, "INSERT INTO t VALUES (?)")
			require.NoError(t, err)
			for i := range 3 {
				_, err = stmt.ExecContext(ctx, i)
				require.NoError(t, err)
			}
			others := make(chan error, 3)
			for range cap(others) {
				go func() {
					_, err := db.ExecContext(t.Context(), "INSERT INTO t VALUES (9)")
					others <- err
				}()
			}
			require.Eventually(t, func() bool { return c.Stats().Pool.Waiting == cap(others) }, patience, time.Millisecond)

			closed := make(chan error, 1)
			go func() { closed <- stmt.Close() }()
			select {
			case err := <-closed:
				require.NoError(t, err)
			case <-time.After(patience):
				t.Error("Stmt.Close waits for somebody who waits for its task")
			}
			require.NoError(t, done())
			end()
			for range cap(others) {
				require.NoError(t, <-others)
			}
			require.Len(t, server.Table("t"), 6)
		})
	}
}

// TestATaskThatHoldsTheConnectionAsksItsResultsWhoeverWaits: database/sql asks a result, and closes a
// statement, under the lock of the virtual connection that gave it. Nobody may use that virtual
// connection meanwhile who waits for this very task.
func TestATaskThatHoldsTheConnectionAsksItsResultsWhoeverWaits(t *testing.T) {
	asks := func(ask func(sql.Result) (int64, error), res sql.Result, err error) func() error {
		return func() error {
			if err != nil {
				return err
			}
			_, err := ask(res)
			return err
		}
	}
	for name, prepare := range map[string]func(ctx context.Context, db *sql.DB, begin func()) (ask func() error){
		"RowsAffected of a joined statement": func(ctx context.Context, db *sql.DB, begin func()) func() error {
			begin()
			res, err := db.ExecContext(ctx, "INSERT INTO t VALUES (2)")
			return asks(sql.Result.RowsAffected, res, err)
		},
		"LastInsertId of a joined statement": func(ctx context.Context, db *sql.DB, begin func()) func() error {
			begin()
			res, err := db.ExecContext(ctx, "INSERT INTO t VALUES (2)")
			return asks(sql.Result.LastInsertId, res, err)
		},
		"RowsAffected of a statement before the transaction": func(ctx context.Context, db *sql.DB, begin func()) func() error {
			rows, err := db.QueryContext(ctx, "SELECT * FROM t") // its virtual connection comes back last
			if err != nil {
				return func() error { return err }
			}
			res, err := db.ExecContext(ctx, "INSERT INTO t VALUES (2)")
			_ = rows.Close()
			begin()
			return asks(sql.Result.RowsAffected, res, err)
		},
		"RowsAffected of a savepoint": func(ctx context.Context, db *sql.DB, begin func()) func() error {
			begin()
			inner, err := db.BeginTx(ctx, nil)
			if err != nil {
				return func() error { return err }
			}
			res, err := inner.ExecContext(ctx, "INSERT INTO t VALUES (2)")
			return asks(sql.Result.RowsAffected, res, errors.Join(err, inner.Commit()))
		},
		"RowsAffected of a *sql.Conn that is closed": func(ctx context.Context, db *sql.DB, begin func()) func() error {
			begin()
			conn, err := db.Conn(ctx)
			if err != nil {
				return func() error { return err }
			}
			res, err := conn.ExecContext(ctx, "INSERT INTO t VALUES (2)")
			return asks(sql.Result.RowsAffected, res, errors.Join(err, conn.Close()))
		},
		"Stmt.Close of a *sql.Conn that is closed": func(ctx context.Context, db *sql.DB, begin func()) func() error {
			begin()
			conn, err := db.Conn(ctx)
			if err != nil {
				return func() error { return err }
			}
			stmt, err := conn.PrepareContext(ctx, "INSERT INTO t VALUES (2)")
			err = errors.Join(err, conn.Close())
			return func() error { return errors.Join(err, stmt.Close()) }
		},
		"Stmt.Close after executions": func(ctx context.Context, db *sql.DB, begin func()) func() error {
			begin()
			stmt, err := db.PrepareContext(ctx, "INSERT INTO t VALUES (2)")
			if err != nil {
				return func() error { return err }
			}
			for range 2 {
				_, more := stmt.ExecContext(ctx)
				err = errors.Join(err, more)
			}
			return func() error { return errors.Join(err, stmt.Close()) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, db, c := openTasks(t, 1)
			ctx, end := pooldriver.WithTask(t.Context())
			defer end()
			var tx *sql.Tx
			ask := prepare(ctx, db, func() {
				var err error
				tx, err = db.BeginTx(ctx, nil)
				require.NoError(t, err)
			})
			others := make(chan error, 3)
			for i := range cap(others) {
				go func() {
					var err error
					switch i {
					case 0:
						_, err = db.ExecContext(t.Context(), "INSERT INTO t VALUES (9)")
					case 1:
						var conn *sql.Conn
						if conn, err = db.Conn(t.Context()); err == nil {
							_, err = conn.ExecContext(t.Context(), "INSERT INTO t VALUES (9)")
							err = errors.Join(err, conn.Close())
						}
					default:
						err = pooldriver.Do(t.Context(), func(ctx context.Context) error {
							_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (9)")
							return err
						})
					}
					others <- err
				}()
			}
			require.Eventually(t, func() bool { return c.Stats().Pool.Waiting == cap(others) }, patience, time.Millisecond)

			asked := make(chan error, 1)
			go func() { asked <- ask() }()
			select {
			case err := <-asked:
				require.NoError(t, err)
			case <-time.After(patience):
				t.Error("the answer waits for somebody who waits for this task")
			}
			require.NoError(t, tx.Commit())
			for range cap(others) {
				require.NoError(t, <-others)
			}
		})
	}
}

// TestAResultThatIsAskedLateMayWait: without a task, nobody knows who may ask a result.
func TestAResultThatIsAskedLateMayWait(t *testing.T) {
	_, db, c := openTasks(t, 1)
	res, err := db.ExecContext(t.Context(), "INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	held, err := db.Conn(t.Context()) // has the virtual connection of the result
	require.NoError(t, err)
	other, err := db.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, other.PingContext(t.Context()))
	waits := make(chan error, 1)
	go func() { waits <- held.PingContext(t.Context()) }()
	require.Eventually(t, func() bool { return c.Stats().Pool.Waiting == 1 }, patience, time.Millisecond)
	asked := make(chan error, 1)
	go func() {
		_, err := res.RowsAffected()
		asked <- err
	}()
	select {
	case err := <-asked:
		t.Errorf("the result does not wait (%v): docs/transparency.md says that it may", err)
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, other.Close())
	require.NoError(t, <-waits)
	require.NoError(t, <-asked)
	require.NoError(t, held.Close())
}

// TestNobodyIsRefusedWhereVirtualConnectionsAreFew: with SetMaxOpenConns, database/sql gives a virtual
// connection that comes back to whoever waits for one, and tries again twice at most.
func TestNobodyIsRefusedWhereVirtualConnectionsAreFew(t *testing.T) {
	const rounds = 300
	_, db, _ := openTasks(t, 10)
	db.SetMaxOpenConns(3)
	var all sync.WaitGroup
	defer all.Wait()
	for range 6 {
		all.Go(func() {
			for range rounds {
				if _, err := db.ExecContext(t.Context(), "INSERT INTO t VALUES (1)"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	require.NoError(t, pooldriver.InTx(t.Context(), db, nil, func(ctx context.Context, _ *sql.Tx) error {
		for range rounds {
			if _, err := db.ExecContext(ctx, "INSERT INTO t VALUES (1)"); err != nil {
				return err
			}
		}
		return nil
	}))
}

// TestADeadConnectionLeavesItsTask although a *sql.Conn still has it: it is of
// no use to anybody, and the task's next statement needs a place.
func TestADeadConnectionLeavesItsTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, db, c := openTasks(t, 1)
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		conn, err := db.Conn(ctx)
		require.NoError(t, err)
		_, err = conn.ExecContext(ctx, "INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		died := errors.New("the connection died")
		server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Kill: true, Err: died})
		_, err = conn.ExecContext(ctx, "INSERT INTO t VALUES (2)")
		require.ErrorIs(t, err, died)
		require.Eventually(t, func() bool { return lent(c) == 0 }, patience, time.Millisecond)

		begun := time.Now()
		mustExec(t, ctx, db, "INSERT INTO t VALUES (3)")
		require.Less(t, time.Since(begun), time.Second)
		_, err = conn.ExecContext(ctx, "INSERT INTO t VALUES (4)")
		require.ErrorIs(t, err, driver.ErrBadConn, "it does not go on in another session")
		require.ErrorIs(t, conn.Close(), sql.ErrConnDone)
		mustExec(t, ctx, db, "INSERT INTO t VALUES (5)")
		require.Equal(t, [][]any{{int64(1)}, {int64(3)}, {int64(5)}}, server.Table("t"))
		require.Zero(t, lent(c))
	})
}

func TestADialectSaysHowSavepointsBeginAndEnd(t *testing.T) {
	texts := dialects.Savepoints{Begin: "savepoint", RollBack: "rollback  to savepoint"} // and no release
	s, db, _ := openStub(t, dialects.Traits{Savepoints: texts})
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	for _, finish := range []func(*sql.Tx) error{(*sql.Tx).Commit, (*sql.Tx).Rollback} {
		inner, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		mustExec(t, ctx, inner, "INSERT INTO t VALUES (1)")
		require.NoError(t, finish(inner))
	}
	require.NoError(t, tx.Commit())
	require.Len(t, s.Server.Table("t"), 1)
	var sent []string
	for _, e := range s.Server.Events(fakedb.ConnExecCtx) {
		if !strings.HasPrefix(e.Text, "INSERT") && !strings.HasPrefix(e.Text, "CREATE") {
			sent = append(sent, e.Text)
		}
	}
	require.Equal(t, []string{"savepoint pooldriver_1", "savepoint pooldriver_1", "rollback  to savepoint pooldriver_1"}, sent)
}
