package behaviour

import (
	"context"
	"database/sql"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/task"
)

// TestATransactionBegunByHandOnADBEndsWithItsStatement: nothing tells a *sql.DB from a *sql.Conn when the
// statement runs, so it succeeds. The log says what has become of the transaction, where, and the three
// ways. The server's word counts, not the text.
func TestATransactionBegunByHandOnADBEndsWithItsStatement(t *testing.T) {
	for name, in := range map[string]func(context.Context) (context.Context, func()){
		"no task":          func(ctx context.Context) (context.Context, func()) { return ctx, func() {} },
		"an implicit task": task.WithImplicit,
	} {
		for _, text := range []string{"BEGIN", "SELECT 1; BEGIN; INSERT INTO t VALUES (1)"} {
			t.Run(name+"/"+text, func(t *testing.T) {
				log := &detailed{}
				server, db, c := openTasks(t, 1, func(c *pooldriver.Config) { c.Logger = slog.New(log) })
				ctx, end := in(t.Context())
				defer end()
				mustExec(t, ctx, db, text)
				mustExec(t, ctx, db, "INSERT INTO t VALUES (2)")
				require.Zero(t, server.State().InTx(), "the next borrower is not in it")
				require.Len(t, server.Table("t"), 1)
				require.Equal(t, 1, server.State().Opened, "the connection is used again")
				require.EqualValues(t, 1, c.Stats().Rollbacks)
				// The line is written when the connection has been given on.
				require.Eventually(t, func() bool { return log.count("was rolled back") == 1 }, 10*time.Second, time.Millisecond)
				for _, part := range []string{"BeginTx", "*sql.Conn", "WithTask", "at=", "byhand_test.go"} {
					require.Equal(t, 1, log.count(part), part)
				}
				atRest(t, c)
			})
		}
	}
}

// TestATransactionBegunByHandMayBeWherever its statements stay together.
func TestATransactionBegunByHandIsServedWhereItsStatementsStayTogether(t *testing.T) {
	ways := map[string]func(t *testing.T, db *sql.DB) (on execer, ctx context.Context, end func()){
		"a *sql.Conn": func(t *testing.T, db *sql.DB) (execer, context.Context, func()) {
			conn := takeConn(t, t.Context(), db)
			return conn, t.Context(), func() {}
		},
		"a task": func(t *testing.T, db *sql.DB) (execer, context.Context, func()) {
			ctx, end := pooldriver.WithTask(t.Context())
			return db, ctx, end
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			server, db, _ := openTasks(t, 2)
			on, ctx, end := way(t, db)
			defer end()
			mustExec(t, ctx, on, "BEGIN")
			mustExec(t, ctx, on, "INSERT INTO t VALUES (1)")
			require.Equal(t, 1, server.State().InTx())
			mustExec(t, ctx, on, "COMMIT")
			require.Len(t, server.Table("t"), 1)
			mustExec(t, ctx, db, "BEGIN; INSERT INTO t VALUES (2); COMMIT")
			require.Len(t, server.Table("t"), 2, "a text that ends what it begins")
		})
	}
}

type execer interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}
