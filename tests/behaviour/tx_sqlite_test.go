package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/sqlite"
	"github.com/pooldriver/pooldriver/internal/task"
)

// SQLite rolls a transaction back when a write in it is interrupted, and would
// run what follows in autocommit.
func TestNothingRunsOutsideATransactionThatAnInterruptedWriteHasEnded(t *testing.T) {
	db := sql.OpenDB(pooldriver.New("sqlite:"+filepath.Join(t.TempDir(), "x.db"), quiet))
	defer db.Close()
	_, err := db.Exec("create table t (a int)")
	require.NoError(t, err)
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = tx.ExecContext(ctx, "insert into t values (1)")
	require.NoError(t, err)
	soon, cancel := context.WithCancel(ctx)
	defer cancel()
	whenAWriteRuns.Store(&cancel)
	_, err = tx.ExecContext(soon, "insert into t with recursive n(i) as (select test_write_runs() union all select i+1 from n limit 100000000) select i from n")
	require.Error(t, err)
	_, err = tx.ExecContext(ctx, "insert into t values (2)")
	require.ErrorIs(t, err, pooldriver.ErrTxLost)
	_, err = db.ExecContext(ctx, "insert into t values (3)")
	require.ErrorIs(t, err, pooldriver.ErrTxLost)
	require.ErrorIs(t, tx.Commit(), pooldriver.ErrTxLost)
	_, err = db.ExecContext(ctx, "insert into t values (4)")
	require.NoError(t, err)
	var only int
	require.NoError(t, db.QueryRow("select group_concat(a) from t").Scan(&only))
	require.Equal(t, 4, only)
}

// A connection with an interruption pending is closed at the task's end. With a
// statement left on it SQLite would keep it, and its lock, for ever.
func TestNoLockIsLeftByATaskThatEndsWhileAStatementRuns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.db")
	witness, err := sql.Open("sqlite", file+"?_pragma=journal_mode(WAL)")
	require.NoError(t, err)
	defer witness.Close()
	_, err = witness.Exec("create table t (a int)")
	require.NoError(t, err)
	db := sql.OpenDB(pooldriver.New("sqlite:"+file+"?_pragma=journal_mode(WAL)&pool_max_conns=3", quiet))
	defer db.Close()
	for i := range 20 {
		ctx, end := pooldriver.WithTask(t.Context())
		_, err := db.ExecContext(ctx, "BEGIN IMMEDIATE")
		require.NoError(t, err)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			// Not long: an interrupt that comes before SQLite has begun is lost, and it runs on.
			_, _ = db.ExecContext(ctx, "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 2e4) SELECT max(n) FROM r")
		}()
		time.Sleep(time.Duration(i%4) * time.Millisecond) // before it, in it
		end()
		_, err = witness.Exec("BEGIN IMMEDIATE; ROLLBACK")
		require.NoError(t, err)
		<-ended
	}
}

// TestAPragmaThatWasOnlyPreparedIsCleanedAway: SQLite obeys some of them when they
// are compiled.
func TestAPragmaThatWasOnlyPreparedIsCleanedAway(t *testing.T) {
	db := sql.OpenDB(pooldriver.New("sqlite:"+filepath.Join(t.TempDir(), "x.db")+"?pool_max_conns=1&_pragma=foreign_keys(1)", quiet))
	defer db.Close()
	for name, use := range map[string]func(){
		"prepared": func() {
			stmt, err := db.Prepare("PRAGMA foreign_keys=OFF")
			require.NoError(t, err)
			require.NoError(t, stmt.Close())
		},
		"with an argument that cannot be converted": func() {
			_, err := db.Exec("PRAGMA foreign_keys=OFF", make(chan int))
			require.Error(t, err)
		},
	} {
		use()
		var on int
		require.NoError(t, db.QueryRow("PRAGMA foreign_keys").Scan(&on))
		require.Equal(t, 1, on, name)
	}
}

// TestATransactionWhoseWriteWasInterruptedIsOverWhenItsTaskIs: SQLite ends it, or
// does not if the write had not begun or was done, and the error is the same.
func TestATransactionWhoseWriteWasInterruptedIsOverWhenItsTaskIs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.db") + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)"
	db := sql.OpenDB(pooldriver.New("sqlite:"+file+"&pool_max_conns=1", quiet))
	defer db.Close()
	_, err := db.Exec("create table t (a int)")
	require.NoError(t, err)
	witness, err := sql.Open("sqlite", file)
	require.NoError(t, err)
	defer witness.Close()
	interrupted := 0
	for i := range 400 {
		parent, cancel := context.WithCancel(t.Context())
		ctx, end := pooldriver.WithTask(parent)
		_, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		go func() {
			time.Sleep(time.Duration(i%20) * time.Microsecond)
			cancel()
		}()
		for err == nil {
			_, err = db.ExecContext(ctx, "insert into t values (-1)")
		}
		if errors.Is(err, context.Canceled) {
			interrupted++
		}
		end()
		_, err = db.Exec("insert into t values (1)")
		require.NoError(t, err)
		var n int
		require.NoError(t, witness.QueryRow("select sum(a) from t").Scan(&n))
		require.Equal(t, i+1, n, "a row is missing, or one of the task's is there")
	}
	require.NotZero(t, interrupted)
}

// TestASecondTransactionIsRefusedWhereNobodyTellsOfTheFirst: an answer that is put
// off to the next statement would be the first transaction's.
func TestASecondTransactionIsRefusedWhereNobodyTellsOfTheFirst(t *testing.T) {
	for name, adopt := range map[string]func(context.Context) (context.Context, func()){
		"no task":          func(ctx context.Context) (context.Context, func()) { return ctx, func() {} },
		"an implicit task": task.WithImplicit,
	} {
		t.Run(name, func(t *testing.T) {
			dsn := "sqlite:" + filepath.Join(t.TempDir(), "x.db") + "?pool_lazy_begin=true"
			db := sql.OpenDB(pooldriver.New(dsn, quiet))
			defer db.Close()
			_, err := db.Exec("create table t (a int)")
			require.NoError(t, err)
			ctx, end := adopt(t.Context())
			defer end()
			conn, err := db.Conn(ctx)
			require.NoError(t, err)
			defer conn.Close()
			first, err := conn.BeginTx(ctx, nil)
			require.NoError(t, err)
			_, err = first.ExecContext(ctx, "insert into t values (1)")
			require.NoError(t, err)
			defer func() { _ = first.Rollback() }()
			second, err := conn.BeginTx(ctx, nil)
			if err == nil { // conn.Close would wait for it
				require.NoError(t, second.Rollback())
			}
			require.ErrorContains(t, err, "within a transaction")
			_, err = first.ExecContext(ctx, "insert into t values (2)")
			require.NoError(t, err)
			require.NoError(t, first.Commit())
			var n int
			require.NoError(t, db.QueryRow("select count(*) from t").Scan(&n))
			require.Equal(t, 2, n)
		})
	}
}

// TestAConnectionThatRawHasClosedIsNamed where the driver itself was told to close.
func TestAConnectionThatRawHasClosedIsNamed(t *testing.T) {
	db := sql.OpenDB(pooldriver.New("sqlite:"+filepath.Join(t.TempDir(), "x.db"), quiet))
	defer db.Close()
	task, end := pooldriver.WithTask(t.Context())
	defer end()
	for _, ctx := range []context.Context{t.Context(), task} {
		conn, err := db.Conn(ctx)
		require.NoError(t, err)
		require.NoError(t, pooldriver.Raw(ctx, conn, func(dc driver.Conn) error { return dc.Close() }))
		_, err = conn.ExecContext(ctx, "SELECT 1")
		require.ErrorContains(t, err, "the function of Raw has closed the connection")
		require.ErrorIs(t, conn.Close(), sql.ErrConnDone)
		_, err = db.ExecContext(ctx, "SELECT 1")
		require.NoError(t, err)
	}
}

// whenAWriteRuns is called by SQLite's function test_write_runs, in the midst of the statement.
var whenAWriteRuns atomic.Pointer[context.CancelFunc]

func init() {
	sqlite.MustRegisterScalarFunction("test_write_runs", 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		(*whenAWriteRuns.Load())()
		return int64(1), nil
	})
}

// TestATransactionWithoutATaskThatACancelledWriteHasEndedIsLost: over the bare driver its next statements
// run in autocommit, and its COMMIT fails.
func TestATransactionWithoutATaskThatACancelledWriteHasEndedIsLost(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.db")
	bare, err := sql.Open("sqlite", file)
	require.NoError(t, err)
	defer bare.Close()
	_, err = bare.Exec("create table t (a int)")
	require.NoError(t, err)
	stored := func() (n int) {
		require.NoError(t, bare.QueryRow("select count(*) from t").Scan(&n))
		return n
	}
	cancelled := func(db *sql.DB) *sql.Tx {
		tx, err := db.Begin()
		require.NoError(t, err)
		_, err = tx.Exec("insert into t values (1)")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		whenAWriteRuns.Store(&cancel)
		_, err = tx.ExecContext(ctx, "insert into t with recursive n(i) as (select test_write_runs() union all select i+1 from n limit 100000000) select i from n")
		require.Error(t, err)
		return tx
	}

	tx := cancelled(bare)
	_, err = tx.Exec("insert into t values (2)")
	require.NoError(t, err)
	require.ErrorContains(t, tx.Commit(), "no transaction is active")
	require.Equal(t, 1, stored(), "in autocommit")

	for _, lazy := range []bool{false, true} {
		db := sql.OpenDB(pooldriver.New("sqlite:"+file, quiet, func(c *pooldriver.Config) { c.LazyBegin = lazy }))
		defer db.Close()
		tx = cancelled(db)
		for range 2 {
			_, err = tx.Exec("insert into t values (2)")
			require.ErrorIs(t, err, pooldriver.ErrTxLost)
			require.EqualError(t, err, "pooldriver: a transaction is gone: the server rolled it back after an error; end it, and begin a new one")
			require.ErrorIs(t, tx.QueryRow("select 1").Scan(new(int)), pooldriver.ErrTxLost)
		}
		require.ErrorIs(t, tx.Commit(), pooldriver.ErrTxLost)
		require.ErrorIs(t, cancelled(db).Commit(), pooldriver.ErrTxLost)
		require.Error(t, cancelled(db).Rollback(), "the driver's: none is active")
		require.Equal(t, 1, stored())

		tx, err = db.Begin()
		require.NoError(t, err)
		_, err = tx.Exec("insert into t values (3)")
		require.NoError(t, err)
		_, err = tx.Exec("insert into no_such_table values (3)")
		require.Error(t, err, "it rolls nothing back")
		_, err = tx.Exec("insert into t values (4)")
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		require.Equal(t, 3, stored())
		_, err = bare.Exec("delete from t where a > 2")
		require.NoError(t, err)
	}
}
