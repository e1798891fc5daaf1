package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	sqlitedriver "modernc.org/sqlite"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// serverCode is the server's own word for an error; "" if it is none of its.
func serverCode(err error) any {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return int(e.Number)
	}
	if e, ok := errors.AsType[*sqlitedriver.Error](err); ok {
		return e.Code()
	}
	return ""
}

// snapshot has the options of a transaction that sees one state of the data throughout.
// SQLite's always do.
func (s stage) snapshot() *sql.TxOptions {
	if s.name == "sqlite" {
		return nil
	}
	return &sql.TxOptions{Isolation: sql.LevelRepeatableRead}
}

// eachDriver is eachStage without ODBC, whose errors are one type for all databases.
func eachDriver(t *testing.T, test func(t *testing.T, s stage)) {
	t.Helper()
	testbed.Each(t, func(t *testing.T, account testbed.Account) { test(t, serverStage(t, account)) })
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, stage{name: "sqlite"}.fresh(t))
	})
}

// TestATransactionIsRepeatedWhoseRowHasChanged: somebody else commits a change to a row
// after the transaction has read it.
func TestATransactionIsRepeatedWhoseRowHasChanged(t *testing.T) {
	eachDriver(t, func(t *testing.T, s stage) {
		if s.name == "mysql" && testbed.MySQL == testbed.OracleMySQL {
			t.Skip("MySQL takes the row as it is now: only MariaDB says that it has changed (error 1020)")
		}
		db := s.open(t, 4)
		db.mustExec(t.Context(), t, insertInto(1))
		var met []any
		err := pooldriver.InTx(t.Context(), db.DB, s.snapshot(), func(ctx context.Context, tx *sql.Tx) error {
			var id int
			if err := tx.QueryRowContext(ctx, "SELECT id FROM ledger").Scan(&id); err != nil {
				return err
			}
			if len(met) < 2 { // which somebody else does
				mustExec(t, s.witness, "UPDATE ledger SET id = id + 1")
			}
			_, err := tx.ExecContext(ctx, "UPDATE ledger SET id = id + 10")
			if err != nil {
				met = append(met, serverCode(err))
			}
			return err
		}, pooldriver.Retry{})
		require.NoError(t, err)
		code := map[string]any{"postgres": "40001", "mysql": 1020, "sqlite": 517}[s.name]
		require.Equal(t, []any{code, code}, met)
		require.EqualValues(t, 2, db.connector.Stats().TxRetries)
		require.Equal(t, []int{13}, s.stored(t), "each change once")
		db.requireNothingLeft(t)
	})
}

// TestTransactionsInADeadlockAreRepeated: each has locked the row that the other one
// wants.
func TestTransactionsInADeadlockAreRepeated(t *testing.T) {
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		s := serverStage(t, account)
		db := s.open(t, 4)
		db.mustExec(t.Context(), t, "CREATE TABLE account (id integer PRIMARY KEY, n integer)")
		db.mustExec(t.Context(), t, "INSERT INTO account VALUES (1, 0), (2, 0)")
		var both, done sync.WaitGroup
		both.Add(2)
		var lock sync.Mutex
		var met []any
		for first := 1; first <= 2; first++ {
			done.Go(func() {
				attempts := 0
				err := pooldriver.InTx(t.Context(), db.DB, nil, func(ctx context.Context, tx *sql.Tx) error {
					attempts++
					if _, err := tx.ExecContext(ctx, "UPDATE account SET n = n + 1 WHERE id = "+s.placeholder(), first); err != nil {
						return err
					}
					if attempts == 1 {
						both.Done()
						both.Wait()
					}
					_, err := tx.ExecContext(ctx, "UPDATE account SET n = n + 1 WHERE id = "+s.placeholder(), 3-first)
					if err != nil {
						lock.Lock()
						defer lock.Unlock()
						met = append(met, serverCode(err))
					}
					return err
				}, pooldriver.Retry{})
				if err != nil {
					t.Error(err)
				}
			})
		}
		done.Wait()
		require.NotEmpty(t, met)
		require.Subset(t, []any{"40P01", 1213}, met)
		require.EqualValues(t, len(met), db.connector.Stats().TxRetries)
		var n, each int
		require.NoError(t, s.witness.QueryRow("SELECT sum(n), min(n) FROM account").Scan(&n, &each))
		require.Equal(t, []int{4, 2}, []int{n, each}, "each change once")
		db.requireNothingLeft(t)
	})
}

func (s stage) placeholder() string { return s.say("$1", "?", "?") }

// TestATransactionIsRepeatedWhoseCommitIsRefused: PostgreSQL finds only at COMMIT that no
// order of the two transactions gives what they have seen.
func TestATransactionIsRepeatedWhoseCommitIsRefused(t *testing.T) {
	t.Parallel()
	s := serverStage(t, testbed.Shared(t, testbed.Postgres).NewAccount(t))
	db := s.open(t, 4)
	serializable := &sql.TxOptions{Isolation: sql.LevelSerializable}
	// writeSkew adds a row for as long as there are none.
	writeSkew := func(ctx context.Context, tx *sql.Tx, id int) error {
		var n int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM ledger").Scan(&n); err != nil || n > 0 {
			return err
		}
		_, err := tx.ExecContext(ctx, insertInto(id))
		return err
	}
	attempts := 0
	err := pooldriver.InTx(t.Context(), db.DB, serializable, func(ctx context.Context, tx *sql.Tx) error {
		if err := writeSkew(ctx, tx, 1); err != nil {
			return err
		}
		if attempts++; attempts > 1 {
			return nil
		}
		separate, end := pooldriver.NewTask(ctx)
		defer end()
		return pooldriver.InTx(separate, db.DB, serializable, func(ctx context.Context, tx *sql.Tx) error {
			return writeSkew(ctx, tx, 2)
		})
	}, pooldriver.Retry{})
	require.NoError(t, err)
	require.Equal(t, 2, attempts)
	require.EqualValues(t, 1, db.connector.Stats().TxRetries)
	require.Equal(t, []int{2}, s.stored(t))
}

// TestATransactionIsRepeatedThatFindsSQLiteBusy, at BEGIN IMMEDIATE and at COMMIT.
func TestATransactionIsRepeatedThatFindsSQLiteBusy(t *testing.T) {
	for name, tc := range map[string]struct{ parameters, other string }{
		"BEGIN":  {"_txlock=immediate", "BEGIN IMMEDIATE"},
		"COMMIT": {"_pragma=journal_mode(DELETE)", "BEGIN; SELECT count(*) FROM ledger"},
	} {
		t.Run(name, func(t *testing.T) {
			s := stage{name: "sqlite"}.fresh(t)
			mustExec(t, s.witness, "PRAGMA journal_mode = DELETE")
			busy := randomtest.Rounds(200, 5000) // ms, in each of the tries; 5 s is the dialect's own
			db := s.openURL(t, fmt.Sprintf("sqlite:%s?%s&_pragma=busy_timeout(%d)", s.file, tc.parameters, busy))
			mustExec(t, s.witness, tc.other)
			go func() { // it ends when the transaction was refused twice
				for db.connector.Stats().TxRetries < 2 {
					time.Sleep(time.Millisecond)
				}
				_, _ = s.witness.Exec("ROLLBACK")
			}()
			err := pooldriver.InTx(t.Context(), db.DB, nil, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, insertInto(1))
				return err
			}, pooldriver.Retry{})
			require.NoError(t, err)
			require.Equal(t, []int{1}, s.stored(t))
		})
	}
}
