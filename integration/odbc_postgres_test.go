//go:build odbc && cgo

package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/alexbrainman/odbc"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// postgresODBC is PostgreSQL by psqlODBC's defaults and these parameters.
func postgresODBC(t *testing.T, parameters ...string) (stage, stagePool) {
	t.Helper()
	s := serverStage(t, testbed.Shared(t, testbed.Postgres).NewAccount(t))
	return s, s.openURL(t, "odbc:"+odbcString(s.account, append(parameters, "pool_max_conns=1")...))
}

// The driver alone says that it has committed.
func TestOverODBCAFailedTransactionIsNotSaidToBeCommitted(t *testing.T) {
	for _, protocol := range []string{"Protocol=7.4-0", "Protocol=7.4-1"} {
		s, p := postgresODBC(t, protocol)
		tx, err := p.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.Exec(insertInto(1))
		require.NoError(t, err)
		_, err = tx.Exec("SELECT 1/0")
		require.ErrorContains(t, err, "division by zero")
		_, _ = tx.Exec(insertInto(2))
		require.ErrorContains(t, tx.Commit(), "rolled back", protocol)
		require.Empty(t, s.stored(t), protocol)
		p.mustExec(t.Context(), t, insertInto(3))
		require.Equal(t, []int{3}, s.stored(t))
	}
}

func TestOverODBCASavepointThatPsqlODBCWouldDropIsAnErrorThatSaysHowToHaveIt(t *testing.T) {
	s, p := postgresODBC(t)
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	outer, err := p.BeginTx(ctx, nil)
	require.NoError(t, err)
	p.mustExec(ctx, t, insertInto(1))
	_, err = p.BeginTx(ctx, nil)
	require.ErrorContains(t, err, "Protocol=7.4-0")
	p.mustExec(ctx, t, insertInto(2))
	require.NoError(t, outer.Commit())
	require.Equal(t, []int{1, 2}, s.stored(t), "the transaction around it is as it was")
}

func TestOverODBCCleaningKeepsTheSettingsThatPsqlODBCMakesAndTheStatements(t *testing.T) {
	_, p := postgresODBC(t, "ConnSettings={SET search_path TO pg_catalog, public; SET application_name TO 'it''s'}")
	state := func() (all [4]string) {
		require.NoError(t, p.QueryRow("SELECT current_setting('DateStyle'), current_setting('extra_float_digits'), "+
			"current_setting('search_path'), current_setting('application_name')").Scan(&all[0], &all[1], &all[2], &all[3]))
		return all
	}
	before := state()
	require.Equal(t, "pg_catalog, public", before[2])
	for _, leak := range []string{"SET search_path TO nowhere", "SET DateStyle TO German", "SET extra_float_digits TO 0", "SET ROLE " + p.stage.account.Role,
		"CREATE TEMP TABLE left_behind (a int)", "LISTEN x", "SELECT pg_advisory_lock(7)"} {
		mustExec(t, p.DB, leak)
		require.Equal(t, before, state(), leak)
		p.requireNextBorrowersSeeNothing(t)
	}
	stats := p.connector.Stats()
	require.EqualValues(t, 1, stats.Pool.Creates, "cleaned, not replaced")
	require.EqualValues(t, 7, stats.Cleanings)
}

func TestOverODBCInATransactionNobodyIsToldThatATableWasAltered(t *testing.T) {
	s, p := postgresODBC(t)
	mustExec(t, s.witness, "CREATE TABLE altered (id integer)")
	mustExec(t, s.witness, "INSERT INTO altered VALUES (1)")
	mustExec(t, s.witness, "GRANT ALL ON altered TO PUBLIC")
	read := func() int {
		tx, err := p.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer tx.Rollback()
		rows, err := tx.Query("SELECT * FROM altered WHERE id = ?", 1)
		require.NoError(t, err)
		columns, err := rows.Columns()
		require.NoError(t, err)
		require.True(t, rows.Next())
		require.NoError(t, rows.Close())
		return len(columns)
	}
	for range 3 {
		require.Equal(t, 1, read())
	}
	mustExec(t, s.witness, "ALTER TABLE altered ADD COLUMN more integer")
	for range 3 {
		require.Equal(t, 2, read())
	}
	require.Positive(t, p.connector.Stats().StmtHits)
}

// A database that does not say what it is: SELECT version() is the account's own.
func TestOverODBCAnUnknownDatabaseIsTreatedAsTheGenericDialectTreatsIt(t *testing.T) {
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	witness := account.Witness(t)
	mustExec(t, witness, "CREATE SCHEMA odd")
	mustExec(t, witness, "CREATE FUNCTION odd.version() RETURNS text LANGUAGE sql AS $$ SELECT 'Odd 1.0'::text $$")
	mustExec(t, witness, "GRANT USAGE ON SCHEMA odd TO PUBLIC")
	mustExec(t, witness, "ALTER ROLE "+account.User+" SET search_path TO odd, pg_catalog, public")
	p := stage{name: "postgres", account: account, witness: witness}.openURL(t, "odbc:"+odbcString(account, "pool_max_conns=1"))

	_, err := p.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	require.EqualError(t, err, "sql: driver does not support read-only transactions")
	tx, err := p.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	mustExec(t, p.DB, "SET application_name TO 'left'")
	var name string
	require.NoError(t, p.QueryRow("SHOW application_name").Scan(&name))
	require.NotEqual(t, "left", name)
	stats := p.connector.Stats()
	require.Zero(t, stats.Cleanings)
	require.Greater(t, stats.Pool.Creates, uint64(1), "closed, not cleaned")
}

func TestOverODBCRawGivesTheDriversOwnConnection(t *testing.T) {
	_, p := postgresODBC(t)
	conn, err := p.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, pooldriver.Raw(t.Context(), conn, func(dc driver.Conn) error {
		require.IsType(t, &odbc.Conn{}, dc)
		return nil
	}))
	require.IsType(t, &odbc.Driver{}, p.Driver())
}

// psqlODBC has rolled the transaction back at the error of the kept statement. What
// would be executed after it would be all that is committed.
func TestOverODBCAStatementThatNoLongerFitsDoesNotEndItsTransactionUnseen(t *testing.T) {
	s, p := postgresODBC(t, "Protocol=7.4-1", "UseServerSidePrepare=1")
	mustExec(t, s.witness, "CREATE TABLE altered (id integer)")
	mustExec(t, s.witness, "INSERT INTO altered VALUES (1)")
	mustExec(t, s.witness, "GRANT ALL ON altered TO PUBLIC")
	read := func(tx *sql.Tx) error {
		rows, err := tx.Query("SELECT * FROM altered WHERE id = ?", 1)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
		}
		return rows.Err()
	}
	stored := 0
	for round := range 4 {
		if round == 3 {
			mustExec(t, s.witness, "ALTER TABLE altered ADD COLUMN more integer")
		}
		tx, err := p.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.Exec(insertInto(round))
		require.NoError(t, err)
		failed := read(tx)
		if committed := tx.Commit(); committed == nil {
			require.NoError(t, failed, "committed, although a statement has failed")
			stored++
		}
		require.Len(t, s.stored(t), stored, "what is said to be committed is, and nothing else")
	}
}

func TestOverODBCATransactionWhoseRowsFailedIsNotSaidToBeCommitted(t *testing.T) {
	for _, protocol := range []string{"Protocol=7.4-0", "Protocol=7.4-1"} {
		s, p := postgresODBC(t, protocol, "UseDeclareFetch=1", "Fetch=10")
		tx, err := p.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.Exec(insertInto(1))
		require.NoError(t, err)
		rows, err := tx.Query("SELECT 1 / (50 - n) FROM generate_series(1, 100) AS n")
		require.NoError(t, err, "the error comes with a later row")
		for rows.Next() {
		}
		require.ErrorContains(t, rows.Err(), "division by zero")
		require.NoError(t, rows.Close())
		require.ErrorContains(t, tx.Commit(), "rolled back", protocol)
		require.Empty(t, s.stored(t), protocol)
	}
}

func TestOverODBCACancelledStatementInATransactionReplacesNoOtherConnection(t *testing.T) {
	overODBC(t, func(t *testing.T, s stage) {
		p := s.open(t, 3)
		held := make([]*sql.Conn, 3)
		for i := range held {
			var err error
			held[i], err = p.Conn(t.Context())
			require.NoError(t, err)
			require.NoError(t, held[i].PingContext(t.Context()))
		}
		for _, c := range held {
			require.NoError(t, c.Close())
		}
		tx, err := p.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = tx.ExecContext(ctx, sleepFor(s.account.Server.Engine, time.Minute))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Error(t, tx.Rollback())
		require.Eventually(t, func() bool { return p.connector.Stats().Pool.Destroyed.Sum() > 0 }, 10*time.Second, time.Millisecond)
		stats := p.connector.Stats().Pool
		require.EqualValues(t, 1, stats.Destroyed.Sum(), "%+v", stats)
		require.Equal(t, 2, stats.Idle)
	})
}

func TestOverODBCAStandbyIsReached(t *testing.T) {
	t.Parallel()
	server := testbed.Start(t, testbed.Postgres, testbed.WithRestart())
	account := server.NewAccount(t)
	admin, err := server.Admin()
	require.NoError(t, err)
	var dir string
	require.NoError(t, admin.QueryRow("SHOW data_directory").Scan(&dir))
	_, err = admin.Exec("COPY (SELECT) TO '" + dir + "/standby.signal'")
	require.NoError(t, err)
	server.Restart(t)
	t.Cleanup(func() { // accounts are dropped at the end
		_, err := admin.Exec("SELECT pg_promote()")
		require.NoError(t, err)
	})
	for _, protocol := range []string{"Protocol=7.4-0", "Protocol=7.4-1", "Protocol=7.4-2"} {
		p := stage{name: "postgres", account: account}.openURL(t, "odbc:"+odbcString(account, protocol, "pool_max_conns=1"))
		var standby bool
		require.NoError(t, p.QueryRow("SELECT pg_is_in_recovery()").Scan(&standby), protocol)
		require.True(t, standby)
	}
}
