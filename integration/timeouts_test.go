package integration

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// cross takes hours. MySQL's sleep ends at a timeout without an error.
const cross = "SELECT count(*) FROM information_schema.collations a, information_schema.collations b, information_schema.collations c, information_schema.collations d"

// serverTimeouts are what docs/recipes.md says of each server: the parameter of the DSN, a statement that
// takes too long, and the server's error.
var serverTimeouts = map[testbed.Engine]struct {
	parameter, slow, code string
	is                    func(error) bool
}{
	testbed.Postgres: {"statement_timeout=3000", "SELECT pg_sleep(60)", "57014", func(err error) bool {
		var said *pgconn.PgError
		return errors.As(err, &said) && said.Code == "57014"
	}},
	testbed.MariaDB:     {"max_statement_time=3", cross, "1969", mysqlSays(1969)},
	testbed.OracleMySQL: {"max_execution_time=3000", cross, "3024", mysqlSays(3024)},
}

func mysqlSays(number uint16) func(error) bool {
	return func(err error) bool {
		var said *mysql.MySQLError
		return errors.As(err, &said) && said.Number == number
	}
}

// TestAServerThatCancelsAStatementKeepsTheConnection: by its own timeout. And what is left of a transaction.
func TestAServerThatCancelsAStatementKeepsTheConnection(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/recipes.md")
	require.NoError(t, err)
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		engine, ctx := account.Server.Engine, t.Context()
		is := serverTimeouts[engine]
		name, _, _ := strings.Cut(is.parameter, "=")
		require.Regexp(t, "\\| `"+name+"=.*\\| "+is.code, string(page))

		db := openPool(t, account, "pool_max_conns=1", is.parameter)
		mustExec(t, db, "CREATE TABLE orders (id integer)")
		number := "SELECT connection_id()"
		if engine == testbed.Postgres {
			number = "SELECT pg_backend_pid()"
		}
		var before, after, stored int
		require.NoError(t, db.QueryRowContext(ctx, number).Scan(&before))
		_, err := db.ExecContext(ctx, is.slow)
		require.True(t, is.is(err), "%v", err)
		require.NoError(t, db.QueryRowContext(ctx, number).Scan(&after))
		require.Equal(t, before, after, "the connection stays")

		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		mustExec(t, tx, "INSERT INTO orders VALUES (1)")
		_, err = tx.ExecContext(ctx, is.slow)
		require.True(t, is.is(err), "%v", err)
		_, err = tx.ExecContext(ctx, "INSERT INTO orders VALUES (2)")
		want := 2
		if engine == testbed.Postgres {
			require.ErrorContains(t, err, "25P02", "the transaction has failed")
			require.Error(t, tx.Commit())
			want = 0
		} else {
			require.NoError(t, err, "the transaction goes on")
			require.NoError(t, tx.Commit())
		}
		require.NoError(t, db.QueryRowContext(ctx, "SELECT count(*) FROM orders").Scan(&stored))
		require.Equal(t, want, stored)
	})
}

// TestAContextThatCancelsAStatementEndsItsTransaction: but on SQLite, whose connection stays.
func TestAContextThatCancelsAStatementEndsItsTransaction(t *testing.T) {
	t.Parallel()
	cancels := func(t *testing.T, db *sql.DB, slow string) (stored int, committed error) {
		t.Helper()
		ctx := t.Context()
		mustExec(t, db, "CREATE TABLE orders (id integer)")
		stop := func(on querier) {
			ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
			_, err := on.ExecContext(ctx, slow)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		stop(db)
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		mustExec(t, tx, "INSERT INTO orders VALUES (1)")
		stop(tx)
		committed = tx.Commit()
		require.NoError(t, db.QueryRowContext(ctx, "SELECT count(*) FROM orders").Scan(&stored))
		return stored, committed
	}
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		stored, err := cancels(t, openPool(t, account, "pool_max_conns=1"), serverTimeouts[account.Server.Engine].slow)
		require.Error(t, err)
		require.Zero(t, stored)
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		db, err := pooldriver.Open("sqlite:"+filepath.Join(t.TempDir(), "shop.db")+"?pool_max_conns=1", quiet)
		require.NoError(t, err)
		defer db.Close()
		stored, err := cancels(t, db, "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r")
		require.NoError(t, err)
		require.Equal(t, 1, stored)

		// A write that is stopped ends the transaction. Over the bare driver, what comes after it is in
		// no transaction.
		bare, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "shop.db"))
		require.NoError(t, err)
		defer bare.Close()
		mustExec(t, bare, "CREATE TABLE orders (id integer)")
		for name, db := range map[string]*sql.DB{"pooldriver": db, "bare": bare} {
			mustExec(t, db, "DELETE FROM orders")
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			mustExec(t, tx, "INSERT INTO orders VALUES (1)")
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			_, err = tx.ExecContext(ctx, "INSERT INTO orders WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r")
			cancel()
			require.Error(t, err)
			_, err = tx.Exec("INSERT INTO orders VALUES (2)")
			want := 2
			if name == "bare" {
				require.NoError(t, err)
				require.ErrorContains(t, tx.Commit(), "no transaction is active")
			} else {
				require.ErrorIs(t, err, pooldriver.ErrTxLost)
				require.ErrorIs(t, tx.Commit(), pooldriver.ErrTxLost)
				want = 0
			}
			require.NoError(t, db.QueryRowContext(t.Context(), "SELECT coalesce(sum(id), 0) FROM orders").Scan(&stored))
			require.Equal(t, want, stored, name)
		}
	})
}
