package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// above is a connector whose connections are those of c, wrapped.
type above struct {
	driver.Connector
	wrap func(usual) driver.Conn
}

func (a above) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := a.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return a.wrap(c.(usual)), nil
}

// usual is what wrappers usually pass on: all but driver.Validator.
type usual interface {
	driver.Conn
	driver.Pinger
	driver.ExecerContext
	driver.QueryerContext
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.SessionResetter
	driver.NamedValueChecker
}

// The wrappers. None has an exported field.
type (
	careless  struct{ usual } // hides driver.Validator
	thorough  struct{ usual } // and shows nothing either
	unwraps   struct{ thorough }
	secretive struct{ conn usual } // has driver.Conn and nothing else
)

func (w thorough) IsValid() bool {
	v, ok := w.usual.(driver.Validator)
	return !ok || v.IsValid()
}

func (w unwraps) Unwrap() driver.Conn                         { return w.usual }
func (w secretive) Prepare(query string) (driver.Stmt, error) { return w.conn.Prepare(query) }
func (w secretive) Close() error                              { return w.conn.Close() }
func (w secretive) Begin() (driver.Tx, error)                 { return w.conn.Begin() }

// openAbove opens c beneath a wrapper.
func openAbove(t *testing.T, c *pooldriver.Connector, wrap func(usual) driver.Conn) *sql.DB {
	t.Helper()
	db := sql.OpenDB(above{c, wrap})
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func TestRawFindsItsConnectionBeneathAWrapper(t *testing.T) {
	for name, wrap := range map[string]func(usual) driver.Conn{
		"hides Validator":             func(c usual) driver.Conn { return careless{c} },
		"shows nothing":               func(c usual) driver.Conn { return thorough{c} },
		"unwraps":                     func(c usual) driver.Conn { return unwraps{thorough{c}} },
		"shows one that shows naught": func(c usual) driver.Conn { return unwraps{thorough{careless{c}}} },
		"twice":                       func(c usual) driver.Conn { return thorough{unwraps{thorough{c}}} },
	} {
		t.Run(name, func(t *testing.T) {
			server, _, c := openTasks(t, 1)
			db := openAbove(t, c, wrap)
			ctx, end := pooldriver.WithTask(t.Context())
			defer end()
			conn, err := db.Conn(ctx)
			require.NoError(t, err)
			defer conn.Close()
			require.NoError(t, pooldriver.Raw(ctx, conn, func(dc driver.Conn) error {
				_, err := conn.ExecContext(ctx, "SET a = 1")
				require.ErrorContains(t, err, saysLent)
				return rawly(ctx, dc, "SET a = 2")
			}))
			require.EqualValues(t, 2, show(t, ctx, db, "a"))
			require.Empty(t, server.Events(fakedb.ConnPing), "the question is answered here")
			boom := errors.New("boom")
			require.Equal(t, boom, pooldriver.Raw(ctx, conn, func(driver.Conn) error { return boom }))
			require.NoError(t, conn.PingContext(ctx))
			require.Len(t, server.Events(fakedb.ConnPing), 1)
		})
	}
}

func TestRawSaysWhatToDoWhereItFindsNoConnection(t *testing.T) {
	server, _, c := openTasks(t, 1)
	for want, connector := range map[string]driver.Connector{
		"is a behaviour.secretive: use":             above{c, func(c usual) driver.Conn { return secretive{c} }},
		"use a *sql.DB over a pooldriver.Connector": server.Connector(fakedb.Variant{Name: "another", Features: fakedb.All}),
	} {
		db := sql.OpenDB(connector)
		defer db.Close()
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		err = pooldriver.Raw(t.Context(), conn, nothing)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "give it a method Unwrap() driver.Conn")
		_, err = conn.ExecContext(t.Context(), "INSERT INTO t VALUES (1)")
		require.NoError(t, err, "it is as it was")

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, pooldriver.Raw(ended, conn, nothing), context.Canceled)
	}
}

func TestInTxWorksBeneathAWrapperAndNamesAHandleThatIsNotOurs(t *testing.T) {
	server, _, c := openTasks(t, 2)
	db := openAbove(t, c, func(c usual) driver.Conn { return careless{c} })
	err := pooldriver.InTx(t.Context(), db, nil, func(ctx context.Context, _ *sql.Tx) error {
		mustExec(t, ctx, db, "INSERT INTO t VALUES (1)")
		return errors.New("no")
	})
	require.EqualError(t, err, "no")
	require.Empty(t, server.Table("t"))

	other := sql.OpenDB(server.Connector(fakedb.Variant{Name: "another", Features: fakedb.All}))
	defer other.Close()
	err = pooldriver.InTx(t.Context(), other, nil, func(context.Context, *sql.Tx) error { panic("not reached") })
	require.ErrorContains(t, err, "use a *sql.DB over a pooldriver.Connector")
}

// TestACheckoutEndsAtItsNextUseWhereAWrapperHidesItsEnd: of its connection, and of the task.
func TestACheckoutEndsAtItsNextUseWhereAWrapperHidesItsEnd(t *testing.T) {
	log := &detailed{}
	server, _, c := openTasks(t, 4, func(c *pooldriver.Config) { c.Logger = slog.New(log) })
	db := openAbove(t, c, func(c usual) driver.Conn { return careless{c} })
	log.during = func() { require.NoError(t, db.Ping(), "nothing is held") }
	mustExec(t, t.Context(), db, "SET a = 1")
	require.Nil(t, show(t, t.Context(), db, "a"), "the next borrower has another session, or a clean one")

	ctx, end := pooldriver.WithTask(t.Context())
	mustExec(t, ctx, db, "SET a = 2")
	require.EqualValues(t, 2, show(t, ctx, db, "a"))
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	mustExec(t, ctx, db, "INSERT INTO t VALUES (1)")
	require.NoError(t, tx.Commit())
	end()
	for range 3 {
		require.Nil(t, show(t, t.Context(), db, "a"), "a statement after the task, on a connection of the task")
	}
	require.Len(t, server.Table("t"), 1)
	require.Equal(t, 1, log.count("hides the interface driver.Validator"), "said once")
	require.NoError(t, db.Close())
	atRest(t, c)
}

// TestCheckoutsEndEarlyWhereAWrapperHidesTheirEnd: nested queries complete with one
// connection, and no idle *sql.DB holds it.
func TestCheckoutsEndEarlyWhereAWrapperHidesTheirEnd(t *testing.T) {
	server, _, c := openTasks(t, 1)
	db := openAbove(t, c, func(c usual) driver.Conn { return careless{c} })
	mustExec(t, t.Context(), db, "CREATE TABLE seen (a INT)")
	require.Equal(t, 1, lent(c), "nobody has told")
	mustExec(t, t.Context(), db, "INSERT INTO t VALUES (1), (2), (3)")
	require.Zero(t, lent(c), "known by now")

	rows, err := db.Query("SELECT a FROM t")
	require.NoError(t, err)
	for rows.Next() {
		var a int
		require.NoError(t, rows.Scan(&a))
		mustExec(t, t.Context(), db, "INSERT INTO seen VALUES (?)", a)
	}
	require.NoError(t, rows.Err())
	require.NoError(t, rows.Close())
	require.Len(t, server.Table("seen"), 3)
	require.Zero(t, lent(c))

	for _, end := range []func(*sql.Tx) error{(*sql.Tx).Commit, (*sql.Tx).Rollback} {
		tx, err := db.Begin()
		require.NoError(t, err)
		require.NoError(t, insertTwo(t.Context(), tx))
		require.Equal(t, 1, lent(c), "a transaction keeps its session")
		require.NoError(t, end(tx))
		require.Zero(t, lent(c))
	}

	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	mustExec(t, t.Context(), conn, "SET a = 1")
	require.Equal(t, 1, lent(c), "state keeps its session")
	var a any
	require.NoError(t, conn.QueryRowContext(t.Context(), "SHOW a").Scan(&a))
	require.EqualValues(t, 1, a)
	require.NoError(t, conn.Close())
	require.Nil(t, show(t, t.Context(), db, "a"))
	require.Zero(t, lent(c))
}

// TestOuterRowsOfAConnStayOpenWhereInnerOnesAreClosed: SQLite has several rows open on one
// connection, and a wrapper hides when a checkout ends.
func TestOuterRowsOfAConnStayOpenWhereInnerOnesAreClosed(t *testing.T) {
	for _, wrap := range []bool{false, true} {
		_, c := openSQLite(t, wrap, filepath.Join(t.TempDir(), "x.db"), 2)
		db := openAbove(t, c, func(c usual) driver.Conn { return careless{c} })
		mustExec(t, t.Context(), db, "CREATE TABLE t (a INT)")
		mustExec(t, t.Context(), db, "INSERT INTO t VALUES (1), (2), (3)") // known by now
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		outer, err := conn.QueryContext(t.Context(), "SELECT a FROM t")
		require.NoError(t, err)
		read := 0
		for ; outer.Next(); read++ {
			var n int
			require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT count(*) FROM t").Scan(&n))
			require.Equal(t, 3, n)
		}
		require.NoError(t, outer.Err())
		require.Equal(t, 3, read)
		require.NoError(t, conn.Close())
		require.Zero(t, lent(c))
	}
}

func TestAConnectionThatRefusesIsReplacedWhereAWrapperHidesThat(t *testing.T) {
	server, _, c := openTasks(t, 2)
	db := openAbove(t, c, func(c usual) driver.Conn { return careless{c} })
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	mustExec(t, t.Context(), conn, "SET a = 1")
	server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Panic: "boom"})
	require.Panics(t, func() { _, _ = conn.ExecContext(t.Context(), "INSERT INTO t VALUES (1)") })
	_, err = conn.ExecContext(t.Context(), "INSERT INTO t VALUES (1)")
	require.ErrorContains(t, err, saysPanicked)
	require.NoError(t, conn.Close())
	mustExec(t, t.Context(), db, "INSERT INTO t VALUES (1)")
}
