package behaviour

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// While the first statement of a task is on its way to a connection, another one may get a connection and
// change what the task has. That holds for the first one, too.

// ways are a text that warm makes known, and a new one.
var ways = map[string]string{"known": "INSERT INTO t VALUES (7)", "new": "INSERT INTO t VALUES (8)"}

// onItsWay begins a statement, and holds it in the driver's ResetSession. arrive lets it go on, and returns
// its error.
func onItsWay(t *testing.T, ctx context.Context, server *fakedb.Server, db *sql.DB, text string) (arrive func() error) {
	t.Helper()
	gate, done := server.Block(fakedb.ConnReset), make(chan error, 1)
	go func() { _, err := db.ExecContext(ctx, text); done <- err }()
	<-gate.Entered()
	return func() error {
		gate.Open()
		return <-done
	}
}

// overtaken: a statement of a task is on its way to a connection (ResetSession of the driver waits)
// when the task begins a transaction. insert's text decides the way.
func overtaken(t *testing.T, text string, opts ...pooldriver.Option) (*fakedb.Server, error) {
	server, db, _ := openTasks(t, 2, opts...)
	warm(t, db)
	mustExec(t, t.Context(), db, "DELETE FROM t")
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	arrive := onItsWay(t, ctx, server, db, text)
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	mustExec(t, ctx, tx, "INSERT INTO t VALUES (2)")
	err = arrive()
	require.NoError(t, tx.Rollback())
	return server, err
}

func TestAStatementJoinsATransactionThatBeganWhileItWaited(t *testing.T) {
	for name, text := range ways {
		t.Run(name, func(t *testing.T) {
			server, err := overtaken(t, text)
			require.NoError(t, err)
			require.Empty(t, server.Table("t"), "the statement joins the transaction")
		})
	}
}

func TestAStatementIsRefusedIfATransactionBeganWhileItWaited(t *testing.T) {
	for name, text := range ways {
		t.Run(name, func(t *testing.T) {
			_, err := overtaken(t, text, ambient(pooldriver.AmbientStrict))
			require.ErrorContains(t, err, "pool_ambient=strict")
		})
	}
}

func TestAStatementHearsOfALossWhileItWaited(t *testing.T) {
	for name, text := range ways {
		t.Run(name, func(t *testing.T) {
			server, db, _ := openTasks(t, 2)
			warm(t, db)
			mustExec(t, t.Context(), db, "DELETE FROM t")
			ctx, end := pooldriver.WithTask(t.Context())
			defer end()
			arrive := onItsWay(t, ctx, server, db, text)
			mustExec(t, ctx, db, "SET x = 1") // state of the task
			server.Inject(fakedb.Fault{Text: "SELECT", Kill: true})
			_, err := db.ExecContext(ctx, "SELECT a FROM t")
			require.Error(t, err)
			_, err = db.ExecContext(ctx, "INSERT INTO t VALUES (9)")
			require.Error(t, err, "the barrier")
			require.Error(t, arrive())
			require.Empty(t, server.Table("t"))
		})
	}
}

func TestAStatementFindsStateThatWasSetWhileItWaited(t *testing.T) {
	for name, first := range map[string]int{"known": 1, "new": 0} {
		t.Run(name, func(t *testing.T) {
			server, db, _ := openTasks(t, 2)
			warm(t, db)
			for range first * 2 {
				show(t, t.Context(), db, "connection_id")
			}
			ctx, end := pooldriver.WithTask(t.Context())
			defer end()
			gate := server.Block(fakedb.ConnReset)
			done := make(chan any, 1)
			go func() { done <- show(t, ctx, db, "connection_id") }()
			<-gate.Entered()
			mustExec(t, ctx, db, "SET x = 1") // state of the task
			id := show(t, ctx, db, "connection_id ")
			gate.Open()
			require.Equal(t, id, <-done)
		})
	}
}

// warm opens two connections, and makes the text of an insert known.
func warm(t *testing.T, db *sql.DB) {
	for range 2 {
		a, err := db.Conn(t.Context())
		require.NoError(t, err)
		b, err := db.Conn(t.Context())
		require.NoError(t, err)
		mustExec(t, t.Context(), a, "INSERT INTO t VALUES (7)")
		mustExec(t, t.Context(), b, "INSERT INTO t VALUES (7)")
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}

func TestAWriteReadsRowsIntoMemoryThatWereOpenedWhileItWaited(t *testing.T) {
	for name, text := range ways {
		t.Run(name, func(t *testing.T) {
			s, db, c := openStub(t, dialects.Traits{WritesAlone: true}, maxConns(2))
			s.Also = dialects.Writes
			warm(t, db)
			ctx, end := pooldriver.WithTask(t.Context())
			defer end()
			arrive := onItsWay(t, ctx, s.Server, db, text)
			rows, err := db.QueryContext(ctx, "SELECT n FROM numbers LIMIT 5")
			require.NoError(t, err)
			defer rows.Close()
			require.True(t, rows.Next())
			require.NoError(t, arrive())
			require.EqualValues(t, 1, c.Stats().ReadAheads)
		})
	}
}
