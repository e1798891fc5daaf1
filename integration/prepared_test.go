package integration

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
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
	t.Parallel()
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
	t.Parallel()
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

// TestAStatementOfATemporaryTableIsNotTheNextBorrowers: it hides another one of its
// name, whose columns have other types. Somebody has the same text prepared meanwhile,
// so that it is not prepared anew for having been closed; and where the driver keeps
// plain texts, it keeps their types.
func TestAStatementOfATemporaryTableIsNotTheNextBorrowers(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	db := openPool(t, account, "pool_max_conns=2")
	mustExec(t, db, "CREATE TABLE hidden (a integer)")
	const query = "SELECT a FROM hidden WHERE a = $1"
	holder, err := db.Conn(t.Context()) // keeps the connection on which it is prepared
	require.NoError(t, err)
	kept, err := holder.PrepareContext(t.Context(), query)
	require.NoError(t, err)
	defer kept.Close()
	on := func(p interface {
		ExecContext(context.Context, string, ...any) (sql.Result, error)
	}, query string, args ...any) {
		_, err := p.ExecContext(t.Context(), query, args...)
		require.NoError(t, err, query)
	}
	for _, drop := range []string{"DROP TABLE hidden", "SELECT 1"} {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		on(conn, "CREATE TEMP TABLE hidden (a text)")
		require.NoError(t, once(t.Context(), conn, query, "x"))
		on(conn, query, "x")
		on(conn, drop)
		require.NoError(t, conn.Close())
		for range 2 {
			require.NoError(t, once(t.Context(), db, query, 5))
			on(db, query, 5)
		}
	}
	require.NoError(t, holder.Close())
}

// TestAStatementOfAnotherSearchPathEndsWithIt, on the same *sql.Conn.
func TestAStatementOfAnotherSearchPathEndsWithIt(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	db := openPool(t, account, "pool_max_conns=2")
	for _, q := range []string{
		"CREATE SCHEMA other", "CREATE TABLE things (id integer)", "CREATE TABLE other.things (id text)",
	} {
		mustExec(t, db, q)
	}
	const query = "SELECT id FROM things WHERE id = $1"
	kept, err := db.PrepareContext(t.Context(), query)
	require.NoError(t, err)
	defer kept.Close()
	for _, end := range []func(*sql.Tx) error{(*sql.Tx).Commit, (*sql.Tx).Rollback} {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		tx, err := conn.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), "SET LOCAL search_path = other")
		require.NoError(t, err)
		require.NoError(t, once(t.Context(), tx, query, "x"))
		require.NoError(t, end(tx))
		require.NoError(t, once(t.Context(), conn, query, 1))
		require.NoError(t, conn.Close())
	}
}

// TestAPlainTextIsNotRunByAStatementThatTheProgramHasClosed: the driver finds a kept one
// by its text, whoever has closed it.
func TestAPlainTextIsNotRunByAStatementThatTheProgramHasClosed(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	db := openPool(t, account, "pool_max_conns=1")
	mustExec(t, db, "CREATE TABLE altered (id integer)")
	plain := func(query string, arg any) {
		t.Helper()
		rows, err := db.QueryContext(t.Context(), query, arg)
		require.NoError(t, err)
		require.NoError(t, rows.Close())
		_, err = db.ExecContext(t.Context(), query, arg)
		require.NoError(t, err)
	}
	const query = "SELECT * FROM altered WHERE id = $1"
	require.NoError(t, once(t.Context(), db, query, 1))
	mustExec(t, db, "ALTER TABLE altered ADD COLUMN more integer")
	plain(query, 1)
	const other = "SELECT id FROM altered WHERE id = $1"
	require.NoError(t, once(t.Context(), db, other, 1))
	mustExec(t, db, "ALTER TABLE altered ALTER COLUMN id TYPE text")
	plain(other, "x")

	// While it is prepared, the text is run by it, with what ALTER does to it.
	const kept = "SELECT more, id FROM altered WHERE id = $1"
	stmt, err := db.PrepareContext(t.Context(), kept)
	require.NoError(t, err)
	defer stmt.Close()
	mustExec(t, db, "ALTER TABLE altered ALTER COLUMN more TYPE bigint")
	plain(kept, "x")

	mustExec(t, db, "CREATE SCHEMA other")
	mustExec(t, db, "CREATE TABLE other.altered (id integer, more integer)")
	const third = "SELECT 3, id FROM altered WHERE id = $1"
	require.NoError(t, inTx(t.Context(), t, db, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(t.Context(), "SET LOCAL search_path = other"); err != nil {
			return err
		}
		return once(t.Context(), tx, third, 1)
	}))
	plain(third, "x")
}

// TestAStatementPreparedAgainInATaskFitsTheTablesOfNow: the task's session locks
// none of them, so others change them.
func TestAStatementPreparedAgainInATaskFitsTheTablesOfNow(t *testing.T) {
	t.Parallel()
	s := stage{name: "postgres", account: testbed.Shared(t, testbed.Postgres).NewAccount(t)}
	s.witness = s.account.Witness(t)
	p := s.open(t, 2)
	for _, nested := range []bool{false, true} {
		mustExec(t, p.DB, "DROP TABLE IF EXISTS altered")
		mustExec(t, p.DB, "CREATE TABLE altered (id integer)")
		ctx, end := pooldriver.WithTask(t.Context())
		use := func(arg any) {
			t.Helper()
			if nested {
				require.NoError(t, pooldriver.InTx(ctx, p.DB, nil, func(ctx context.Context, _ *sql.Tx) error {
					return once(ctx, p, "SELECT * FROM altered WHERE id = $1", arg)
				}))
			}
			require.NoError(t, once(ctx, p, "SELECT * FROM altered WHERE id = $1", arg))
		}
		p.mustExec(ctx, t, "SET app.tenant = 'alice'")
		session := p.backend(ctx, t)
		use(1)
		mustExec(t, s.witness, "ALTER TABLE altered ALTER COLUMN id TYPE text")
		use("x")
		mustExec(t, s.witness, "ALTER TABLE altered ADD COLUMN more integer")
		use("x")
		require.Equal(t, session, p.backend(ctx, t))
		end()
	}
}

// TestAStatementPreparedAgainInATasksTransactionFitsTheTablesOfNow: the transaction
// may have altered them itself, or a savepoint may have let go of what locked them.
func TestAStatementPreparedAgainInATasksTransactionFitsTheTablesOfNow(t *testing.T) {
	t.Parallel()
	s := stage{name: "postgres", account: testbed.Shared(t, testbed.Postgres).NewAccount(t)}
	s.witness = s.account.Witness(t)
	p := s.open(t, 2)
	const text = "SELECT * FROM altered WHERE id = $1"
	for name, alter := range map[string]func(context.Context, func(any) error) error{
		"altered itself": func(ctx context.Context, use func(any) error) error {
			if err := use(1); err != nil {
				return err
			}
			_, err := p.ExecContext(ctx, "ALTER TABLE altered ALTER COLUMN id TYPE text")
			return err
		},
		"altered by another after a savepoint": func(ctx context.Context, use func(any) error) error {
			inner, err := p.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if err := use(1); err != nil {
				return err
			}
			if err := inner.Rollback(); err != nil {
				return err
			}
			_, err = s.witness.Exec("ALTER TABLE altered ALTER COLUMN id TYPE text")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			mustExec(t, p.DB, "DROP TABLE IF EXISTS altered")
			mustExec(t, p.DB, "CREATE TABLE altered (id integer)")
			require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error {
				tx, err := p.BeginTx(ctx, nil)
				require.NoError(t, err)
				require.NoError(t, alter(ctx, func(arg any) error { return once(ctx, p, text, arg) }))
				require.NoError(t, once(ctx, p, text, "x"))
				require.NoError(t, once(ctx, tx, text, "x"))
				return tx.Commit()
			}))
		})
	}
}

// TestAStatementIsPreparedOnceInATasksTransaction, however often the program
// does it.
func TestAStatementIsPreparedOnceInATasksTransaction(t *testing.T) {
	t.Parallel()
	s := stage{name: "postgres", account: testbed.Shared(t, testbed.Postgres).NewAccount(t)}
	p := s.open(t, 2)
	mustExec(t, p.DB, "CREATE TABLE prepared (id integer)")
	const text = "SELECT * FROM prepared WHERE id = $1"
	var last time.Time
	for range 2 {
		require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error {
			tx, err := p.BeginTx(ctx, nil)
			require.NoError(t, err)
			var first time.Time
			for n := range 6 {
				require.NoError(t, once(ctx, p, text, n))
				require.NoError(t, once(ctx, tx, text, n))
				var prepared time.Time
				require.NoError(t, p.QueryRowContext(ctx, "SELECT prepare_time FROM pg_prepared_statements WHERE statement = '"+text+"'").Scan(&prepared))
				if n == 0 {
					first = prepared
				}
				require.Equal(t, first, prepared, "it was prepared again")
			}
			require.True(t, first.After(last), "the next transaction's is of then")
			last = first
			return tx.Commit()
		}))
	}
}
