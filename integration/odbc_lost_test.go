//go:build odbc && cgo

package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// overODBC runs the test per server over ODBC, by the drivers' defaults.
func overODBC(t *testing.T, test func(t *testing.T, s stage)) {
	t.Helper()
	eachServerOverODBC(t, test)
}

// dialODBC opens one session by the dialect alone.
func dialODBC(t *testing.T, s stage) dialects.Session {
	t.Helper()
	d, err := dialects.Find(s.url())
	require.NoError(t, err)
	tmpl, err := d.Parse(s.url())
	require.NoError(t, err)
	session, err := tmpl.Dial(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close(context.Background()) })
	return session
}

func TestOverODBCAConnectionKilledWhileIdleIsReplacedBeforeAStatementIsSent(t *testing.T) {
	overODBC(t, func(t *testing.T, s stage) {
		p := s.open(t, 1)
		for id := range 5 {
			s.kill(t, p.backend(t.Context(), t))
			time.Sleep(20 * time.Millisecond) // longer than it counts as having just answered
			p.mustExec(t.Context(), t, insertInto(id))
		}
		require.Equal(t, []int{0, 1, 2, 3, 4}, s.stored(t))
		require.EqualValues(t, 5, p.connector.Stats().FoundDead)
	})
}

func TestOverODBCAConnectionKilledInATransactionFailsItsCommit(t *testing.T) {
	overODBC(t, func(t *testing.T, s stage) {
		p := s.open(t, 1)
		for _, statement := range []bool{true, false} {
			tx, err := p.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = tx.Exec(insertInto(1))
			require.NoError(t, err)
			var id int64
			require.NoError(t, tx.QueryRow(s.self()).Scan(&id))
			s.kill(t, id)
			if statement {
				_, err = tx.Exec(insertInto(2))
				require.Error(t, err)
			}
			err = tx.Commit()
			require.Error(t, err, "nothing was committed; after a statement: %v", statement)
			if !statement {
				require.NotErrorIs(t, err, driver.ErrBadConn, "it was sent: nobody here knows that nothing was committed")
			}
			p.mustExec(t.Context(), t, "DELETE FROM ledger")
			require.Empty(t, s.stored(t))
		}
	})
}

func TestOverODBCARowThatHasChangedSinceItWasReadIsTheTransactionsEnd(t *testing.T) {
	s := serverStage(t, testbed.Shared(t, testbed.MySQL).NewAccount(t))
	s.odbc = true
	s.contended(t)
	s.open(t, 1).changedSinceRead(t)
}

func TestOverODBCAStatementWhoseConnectionDiesIsNotExecutedTwice(t *testing.T) {
	overODBC(t, func(t *testing.T, s stage) {
		p := s.open(t, 1)
		id := p.backend(t.Context(), t)
		time.AfterFunc(200*time.Millisecond, func() { _ = s.terminate(id) })
		_, err := p.ExecContext(t.Context(), s.say(
			"INSERT INTO ledger SELECT 1 FROM pg_sleep(5)", "INSERT INTO ledger SELECT SLEEP(5)", ""))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Empty(t, s.stored(t))
		p.mustExec(t.Context(), t, insertInto(3))
		require.Equal(t, []int{3}, s.stored(t))
	})
}

func TestOverODBCAFailedBeginIsTriedOnAnotherConnection(t *testing.T) {
	overODBC(t, func(t *testing.T, s stage) {
		session := dialODBC(t, s)
		rows, err := query(session, s.self())
		require.NoError(t, err)
		s.kill(t, rows)
		_, err = session.Conn().(driver.ConnBeginTx).BeginTx(t.Context(), driver.TxOptions{Isolation: driver.IsolationLevel(sql.LevelSerializable)})
		require.ErrorIs(t, err, driver.ErrBadConn)
		require.False(t, session.Conn().(driver.Validator).IsValid())

		p := s.open(t, 1)
		conn, err := p.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, conn.QueryRowContext(t.Context(), s.self()).Scan(&rows))
		require.NoError(t, conn.Close())
		s.kill(t, rows)
		tx, err := p.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable})
		require.NoError(t, err)
		_, err = tx.Exec(insertInto(1))
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		require.Equal(t, []int{1}, s.stored(t))
	})
}

// query asks for one number.
func query(session dialects.Session, text string) (int64, error) {
	si, err := session.Conn().Prepare(text)
	if err != nil {
		return 0, err
	}
	defer si.Close()
	rows, err := si.(driver.StmtQueryContext).QueryContext(context.Background(), nil)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	row := make([]driver.Value, 1)
	if err := rows.Next(row); err != nil {
		return 0, err
	}
	var n int64
	_, err = fmt.Sscan(fmt.Sprint(row[0]), &n)
	return n, err
}

func TestOverODBCACancelledStatementEndsOnTheServerBeforeItsPlaceIsFree(t *testing.T) {
	overODBC(t, func(t *testing.T, s stage) {
		s.account.LimitConnections(t, 2) // one more may be there to end another
		p := s.open(t, 1)
		p.mustExec(t.Context(), t, insertInto(0))
		watch := s.account.Watch(t)
		for _, text := range []string{sleepFor(s.account.Server.Engine, time.Minute), s.say(
			"INSERT INTO ledger SELECT 1 FROM pg_sleep(60)", "INSERT INTO ledger SELECT SLEEP(60)", "")} {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			began := time.Now()
			_, err := p.ExecContext(ctx, text)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(began), time.Second, "the caller waits for the statement")
			require.NoError(t, p.PingContext(t.Context()))
			p.mustExec(t.Context(), t, insertInto(9))
			require.Less(t, time.Since(began), 5*time.Second, "the place is kept for the statement")
		}
		require.Equal(t, []int{0, 9, 9}, s.stored(t))
		most := 1
		if s.account.Server.Engine == testbed.Postgres {
			most++ // what ends another is in the same database
		}
		require.LessOrEqual(t, watch.Stop().Backends, most)
		require.Zero(t, p.connector.Stats().Orphans)
	})
}

// What waits for a lock when it is prepared the ODBC driver cannot cancel.
func TestOverODBCAPrepareThatWaitsForALockIsEndedByTheServer(t *testing.T) {
	overODBC(t, func(t *testing.T, s stage) {
		p := s.open(t, 1)
		p.mustExec(t.Context(), t, insertInto(0))
		locker, err := s.witness.Conn(t.Context())
		require.NoError(t, err)
		defer locker.Close()
		for _, lock := range strings.Split(s.say("BEGIN; LOCK TABLE ledger", "LOCK TABLES ledger WRITE", ""), "; ") {
			_, err = locker.ExecContext(t.Context(), lock)
			require.NoError(t, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err = p.ExecContext(ctx, "INSERT INTO ledger SELECT id + ? FROM ledger", 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, p.QueryRowContext(t.Context(), "SELECT 1").Scan(new(int)), "the place is free again")
		require.Less(t, time.Since(began), 5*time.Second)
		_, err = locker.ExecContext(t.Context(), s.say("ROLLBACK", "UNLOCK TABLES", ""))
		require.NoError(t, err)
		require.Equal(t, []int{0}, s.stored(t))
		require.Zero(t, p.connector.Stats().Orphans)
	})
}

func TestOverODBCIsolationAndReadOnlyAreTheDatabases(t *testing.T) {
	overODBC(t, func(t *testing.T, s stage) {
		p := s.open(t, 1)
		for level, want := range map[sql.IsolationLevel]string{
			sql.LevelDefault: "", sql.LevelReadCommitted: "read committed",
			sql.LevelRepeatableRead: "repeatable read", sql.LevelSerializable: "serializable",
		} {
			tx, err := p.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
			require.NoError(t, err)
			if s.name == "postgres" && want != "" {
				var got string
				require.NoError(t, tx.QueryRow("SHOW transaction_isolation").Scan(&got))
				require.Equal(t, want, got)
			}
			require.NoError(t, tx.Rollback())
		}
		tx, err := p.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
		require.NoError(t, err)
		_, err = tx.Exec(insertInto(1))
		require.Error(t, err)
		require.Regexp(t, "(?i)read.only", err.Error())
		_ = tx.Rollback()
		p.mustExec(t.Context(), t, insertInto(2))
		require.Equal(t, []int{2}, s.stored(t), "the next transaction is not read only")
		_, err = p.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelLinearizable})
		require.ErrorContains(t, err, "isolation")
	})
}

// Rows of another transaction that commits in between tell the levels apart,
// where no variable does.
func TestOverODBCARepeatableReadRepeatsAndAReadCommittedDoesNot(t *testing.T) {
	overODBC(t, func(t *testing.T, s stage) {
		p := s.open(t, 1)
		for i, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelReadCommitted} {
			tx, err := p.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
			require.NoError(t, err)
			var before, after int
			require.NoError(t, tx.QueryRow("SELECT count(*) FROM ledger").Scan(&before))
			mustExec(t, s.witness, insertInto(i))
			require.NoError(t, tx.QueryRow("SELECT count(*) FROM ledger").Scan(&after))
			require.Equal(t, i, after-before, "%v", level)
			require.NoError(t, tx.Commit())
		}
	})
}

func TestOverODBCCredentialsTakeThePlaceOfTheDSNs(t *testing.T) {
	overODBC(t, func(t *testing.T, s stage) {
		good := pooldriver.Credential{User: s.account.User, Password: s.account.Password}
		s.account.Password = "Wrong;}-" + s.account.Password
		open := func(c pooldriver.Credential) stagePool {
			return s.openURL(t, s.url("pool_max_conns=1"), func(config *pooldriver.Config) {
				config.Credentials = func(context.Context) (pooldriver.Credential, error) { return c, nil }
			})
		}
		p := open(good)
		p.mustExec(t.Context(), t, insertInto(1))
		bad := open(pooldriver.Credential{User: good.User, Password: "hunter2;}="})
		err := bad.PingContext(t.Context())
		require.Error(t, err)
		require.NotContains(t, err.Error(), "hunter2")
		require.NotContains(t, err.Error(), s.account.Password)
		require.Error(t, s.open(t, 1).PingContext(t.Context()), "the DSN's own is wrong")
	})
}
