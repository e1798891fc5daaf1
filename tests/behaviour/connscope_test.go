package behaviour

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// TestASqlConnIsInTheInTxWhoseContextItIsUsedWith, wherever it was used first,
// and in none with the task's.
func TestASqlConnIsInTheInTxWhoseContextItIsUsedWith(t *testing.T) {
	no := errors.New("no")
	for _, mode := range []pooldriver.AmbientMode{pooldriver.AmbientAuto, pooldriver.AmbientJoin, pooldriver.AmbientWarn, pooldriver.AmbientStrict} {
		for _, before := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/used before=%t", mode, before), func(t *testing.T) {
				server, db, c := openTasks(t, 4, ambient(mode), quiet)
				ctx, end := pooldriver.WithTask(t.Context())
				defer end()
				conn, err := db.Conn(ctx)
				require.NoError(t, err)
				want := 0
				if before {
					require.NoError(t, insertTwo(ctx, conn))
					want++
				}
				for _, ending := range []error{no, nil, no} {
					var late context.Context
					require.Equal(t, ending, pooldriver.InTx(ctx, db, nil, func(inside context.Context, tx *sql.Tx) error {
						late = inside
						require.NoError(t, insertTwo(inside, conn))
						require.NoError(t, insertTwo(inside, tx))
						require.Equal(t, 1, server.State().InTx())
						require.ErrorIs(t, pooldriver.InTx(inside, db, nil, func(deeper context.Context, _ *sql.Tx) error {
							return errors.Join(insertTwo(deeper, conn), no)
						}), no)
						require.NoError(t, insertTwo(inside, conn), "the inner one has ended")
						return ending
					}))
					if ending == nil {
						want += 3
					}
					require.Len(t, server.Table("t"), want, "it was in the transaction")
					for _, after := range []context.Context{t.Context(), ctx, t.Context()} {
						require.NoError(t, insertTwo(after, conn), "the transaction is over")
						require.ErrorIs(t, insertTwo(late, conn), sql.ErrTxDone)
						want++
					}
					require.Len(t, server.Table("t"), want)
				}
				require.NoError(t, conn.Close())
				atRest(t, c)
				require.Zero(t, lent(c))
			})
		}
	}
}

// TestAStatementOfASqlConnIsInTheInTxWhoseContextItIsUsedWith: it goes where its
// connection goes.
func TestAStatementOfASqlConnIsInTheInTxWhoseContextItIsUsedWith(t *testing.T) {
	no := errors.New("no")
	for _, mode := range []pooldriver.AmbientMode{pooldriver.AmbientJoin, pooldriver.AmbientStrict} {
		t.Run(mode.String(), func(t *testing.T) {
			server, db, _ := openTasks(t, 4, ambient(mode))
			ctx, end := pooldriver.WithTask(t.Context())
			defer end()
			stmt, err := takeConn(t, ctx, db).PrepareContext(ctx, "INSERT INTO t VALUES (?)")
			require.NoError(t, err)
			for n := range 3 {
				require.ErrorIs(t, pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error {
					_, err := stmt.ExecContext(ctx, 1)
					return errors.Join(err, no)
				}), no)
				require.Len(t, server.Table("t"), n)
				_, err := stmt.ExecContext(ctx, 1)
				require.NoError(t, err)
			}
			require.NoError(t, stmt.Close())
		})
	}
}
