package integration

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

// once prepares a text, runs it with one argument and closes it, as ORMs do.
func once(ctx context.Context, p interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}, query string, arg any) error {
	stmt, err := p.PrepareContext(ctx, query)
	if err != nil {
		return err
	}
	defer stmt.Close()
	rows, err := stmt.QueryContext(ctx, arg)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
	}
	return rows.Err()
}

func inTx(ctx context.Context, t *testing.T, db *sql.DB, work func(*sql.Tx) error) error {
	t.Helper()
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	if err := work(tx); err != nil {
		require.NoError(t, tx.Rollback())
		return err
	}
	return tx.Commit()
}

func placeholder(engine testbed.Engine) string {
	if engine == testbed.Postgres {
		return "$1"
	}
	return "?"
}

// TestAStatementClosedAndPreparedAgainFitsTheTablesOfNow: programs close their
// statements to get rid of what the tables were when they were prepared.
func TestAStatementClosedAndPreparedAgainFitsTheTablesOfNow(t *testing.T) {
	eachFront(t, func(t *testing.T, account testbed.Account, f front) {
		engine := account.Server.Engine
		t.Run("in a transaction after ALTER", func(t *testing.T) {
			db := f.open(t, account, 1)
			mustExec(t, db, "CREATE TABLE altered (id integer)")
			use := func() error {
				return inTx(t.Context(), t, db, func(tx *sql.Tx) error {
					return once(t.Context(), tx, "SELECT * FROM altered WHERE id = "+placeholder(engine), 1)
				})
			}
			require.NoError(t, use())
			mustExec(t, db, "ALTER TABLE altered ADD COLUMN more integer")
			for range 3 {
				require.NoError(t, use())
			}
		})
		t.Run("after the table was made anew with other types", func(t *testing.T) {
			db := f.open(t, account, 1)
			mustExec(t, db, "CREATE TABLE remade (id integer)")
			query := "SELECT id FROM remade WHERE id = " + placeholder(engine)
			require.NoError(t, once(t.Context(), db, query, 1))
			mustExec(t, db, "DROP TABLE remade")
			mustExec(t, db, "CREATE TABLE remade (id varchar(10))")
			for range 3 {
				require.NoError(t, once(t.Context(), db, query, "x"))
			}
		})
	})
}

// TestAStatementOfOneTenantIsNotTheNextOnes: schemas chosen for a transaction
// may have tables of the same name and other types.
func TestAStatementOfOneTenantIsNotTheNextOnes(t *testing.T) {
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	for _, f := range fronts {
		t.Run(f.name, func(t *testing.T) {
			db := f.open(t, account, 1)
			defer db.Close()
			for _, q := range []string{
				"DROP SCHEMA IF EXISTS tenant CASCADE", "CREATE SCHEMA tenant", "DROP TABLE IF EXISTS things",
				"CREATE TABLE things (id integer)", "CREATE TABLE tenant.things (id text)",
			} {
				mustExec(t, db, q)
			}
			const query = "SELECT id FROM things WHERE id = $1"
			for _, choose := range []string{"SET LOCAL search_path = tenant", "SELECT set_config('search_path', 'tenant', true)"} {
				require.NoError(t, inTx(t.Context(), t, db, func(tx *sql.Tx) error {
					if _, err := tx.ExecContext(t.Context(), choose); err != nil {
						return err
					}
					return once(t.Context(), tx, query, "x")
				}))
				require.NoError(t, inTx(t.Context(), t, db, func(tx *sql.Tx) error {
					return once(t.Context(), tx, query, 1)
				}))
			}
		})
	}
}
