package behaviour

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

func TestAStatementInTheQueueLearnsThatItsTaskHasAConnectionNow(t *testing.T) {
	_, db, c := openTasks(t, 1)
	holder, err := db.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, holder.PingContext(t.Context()))
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	begun := make(chan *sql.Tx, 1)
	go func() {
		tx, err := db.BeginTx(ctx, nil)
		assert.NoError(t, err)
		begun <- tx
	}()
	waiting(t, c, 1)
	inserted := make(chan error, 1)
	go func() { inserted <- insertTwo(ctx, db) }()
	waiting(t, c, 2)
	require.NoError(t, holder.Close())
	tx := <-begun
	require.NotNil(t, tx)
	soon(t, "the statement", func() { require.NoError(t, <-inserted) })
	require.NoError(t, tx.Commit())
	require.Zero(t, lent(c))
}

// waiting returns when so many wait for a connection.
func TestAStatementReturnsThoughACheckoutOfAnotherConnectionWaitsToLeave(t *testing.T) {
	server, db, c := openTasks(t, 2)
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	conns := map[int]*sql.Conn{}
	for range 2 {
		conn, err := db.Conn(ctx)
		require.NoError(t, err)
		var id int
		require.NoError(t, conn.QueryRowContext(ctx, "SHOW connection_id").Scan(&id))
		conns[id] = conn
	}
	require.Equal(t, 2, lent(c))
	gate := held(server, "(7)")
	shares := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (7)")
		shares <- err
	}()
	<-gate.Entered()
	events := server.Events(fakedb.ConnExecCtx)
	busy := events[len(events)-1].Session
	require.NoError(t, conns[busy].Close(), "whoever has the lock counts it out")
	delete(conns, busy)
	for _, conn := range conns {
		soon(t, "a statement on the other connection", func() { require.NoError(t, insertTwo(ctx, conn)) })
		require.NoError(t, conn.Close())
	}
	gate.Open()
	require.NoError(t, <-shares)
	require.Zero(t, lent(c))
}

func TestWhatIsLeftOfAnEndedTaskDoesNotWaitForTheNextBorrower(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, ctx context.Context, db *sql.DB) func(){
		"rows that are closed": func(t *testing.T, ctx context.Context, db *sql.DB) func() {
			rows, err := db.QueryContext(ctx, "SELECT n FROM numbers LIMIT 100")
			require.NoError(t, err)
			return func() { _ = rows.Close() }
		},
		"rows that are read": func(t *testing.T, ctx context.Context, db *sql.DB) func() {
			rows, err := db.QueryContext(ctx, "SELECT n FROM numbers LIMIT 100")
			require.NoError(t, err)
			return func() {
				require.False(t, rows.Next())
				require.ErrorIs(t, rows.Err(), pooldriver.ErrTaskEnded)
				_ = rows.Close()
			}
		},
		"a rollback": func(t *testing.T, ctx context.Context, db *sql.DB) func() {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			return func() { require.NoError(t, tx.Rollback()) }
		},
		"a commit": func(t *testing.T, ctx context.Context, db *sql.DB) func() {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			return func() { require.ErrorIs(t, tx.Commit(), pooldriver.ErrTaskEnded) }
		},
		"a sql.Conn": func(t *testing.T, ctx context.Context, db *sql.DB) func() {
			conn, err := db.Conn(ctx)
			require.NoError(t, err)
			require.NoError(t, conn.PingContext(ctx))
			return func() {
				require.ErrorIs(t, insertTwo(ctx, conn), pooldriver.ErrTaskEnded)
				require.NoError(t, conn.Close())
			}
		},
	} {
		for _, next := range []string{"task", "no task"} {
			t.Run(name+", then "+next, func(t *testing.T) {
				server, db, c := openTasks(t, 1)
				ctx, end := pooldriver.WithTask(t.Context())
				late := leave(t, context.WithoutCancel(ctx), db)
				end()
				ctx, end = t.Context(), func() {}
				if next == "task" {
					ctx, end = pooldriver.WithTask(ctx)
				}
				gate := held(server, "(7)")
				inserted := make(chan error, 1)
				go func() {
					_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (7)")
					inserted <- err
				}()
				<-gate.Entered()
				soon(t, name, late)
				gate.Open()
				require.NoError(t, <-inserted)
				end()
				require.Zero(t, lent(c))
			})
		}
	}
}
