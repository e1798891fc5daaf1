package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/task"
)

func TestAStatementOfAnImplicitTaskDoesNotWaitForItsTransactions(t *testing.T) {
	server, db, _ := openTasks(t, 4)
	ctx, end := task.WithImplicit(t.Context())
	defer end()
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	gate := held(server, "(7)")
	own := make(chan error, 1)
	go func() {
		_, err := tx.ExecContext(ctx, "INSERT INTO t VALUES (7)")
		own <- err
	}()
	<-gate.Entered()
	for range 3 {
		soon(t, "a statement separate", func() { require.NoError(t, insertTwo(ctx, db)) })
	}
	soon(t, "a transaction separate", func() {
		other, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		require.NoError(t, insertTwo(ctx, other))
		require.NoError(t, other.Commit())
	})
	gate.Open()
	require.NoError(t, <-own)
	require.NoError(t, tx.Rollback())
	require.Len(t, server.Table("t"), 4)
}

func TestAStatementOfAnImplicitTaskDoesNotNeedTheConnectionThatRawHas(t *testing.T) {
	server, db, _ := openTasks(t, 4)
	ctx, end := task.WithImplicit(t.Context())
	defer end()
	conn := takeConn(t, ctx, db)
	tx, err := conn.BeginTx(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, pooldriver.Raw(ctx, conn, func(driver.Conn) error {
		return errors.Join(insertTwo(ctx, db), insertTwo(ctx, db))
	}))
	require.NoError(t, tx.Rollback())
	require.Len(t, server.Table("t"), 2)
}

func TestATransactionByHandIsItsConnectionsOwnAlsoWhereTheSessionHasState(t *testing.T) {
	for _, mode := range []pooldriver.AmbientMode{pooldriver.AmbientJoin, pooldriver.AmbientWarn, pooldriver.AmbientStrict} {
		t.Run(mode.String(), func(t *testing.T) {
			server, db, _ := openTasks(t, 4, ambient(mode), quiet)
			ctx, end := pooldriver.WithTask(t.Context())
			defer end()
			other, conn := takeConn(t, ctx, db), takeConn(t, ctx, db)
			mustExec(t, ctx, other, "SET a = 1")
			mustExec(t, ctx, conn, "BEGIN")
			require.NoError(t, insertTwo(ctx, conn))
			mustExec(t, ctx, conn, "ROLLBACK")
			require.Empty(t, server.Table("t"))
		})
	}
}

func TestWhatRunsWithTheContextOfAnInTxInAnImplicitTaskBelongsToIt(t *testing.T) {
	server, db, _ := openTasks(t, 4)
	ctx, end := task.WithImplicit(t.Context())
	defer end()
	outer, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	mustExec(t, ctx, outer, "INSERT INTO t VALUES (1)")
	no := errors.New("no")
	for _, h := range handles {
		require.ErrorIs(t, pooldriver.InTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, insertTwo(ctx, tx))
			require.NoError(t, h.prepare(t, ctx, db)(ctx), h.name)
			require.NoError(t, pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error { return insertTwo(ctx, db) }))
			require.Equal(t, 2, server.State().InTx(), "the outer one, and this")
			return no
		}), no)
		require.Len(t, server.Table("t"), 1, h.name)
	}
	require.NoError(t, outer.Rollback())
	require.Empty(t, server.Table("t"))
}
