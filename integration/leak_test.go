package integration

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

// trail is what one borrower leaves on a connection and how the next would see
// it, in one engine's SQL. ROLE stands for a role the user may take.
type trail struct {
	leave      []string
	observe    string // true: the next borrower sees it
	plainLeaks bool   // under the bare driver and database/sql's pool
}

// leak is something a connection may carry from borrower to borrower.
type leak struct {
	name   string
	trails map[testbed.Engine]trail
}

var leaks = []leak{
	{"an open transaction", map[testbed.Engine]trail{
		// pgx 5.12 gives up a connection that comes back in a transaction.
		testbed.Postgres: {[]string{"BEGIN", "INSERT INTO shared VALUES (2)"}, "SELECT count(*) > 1 FROM shared", false},
		testbed.MySQL:    {[]string{"BEGIN", "INSERT INTO shared VALUES (2)"}, "SELECT count(*) > 1 FROM shared", true},
	}},
	{"a transaction opened by a setting", map[testbed.Engine]trail{
		testbed.MySQL: {[]string{"SET autocommit = 0"}, "SELECT @@autocommit = 0", true},
	}},
	{"a session variable", map[testbed.Engine]trail{
		testbed.Postgres: {[]string{"SET statement_timeout = '12345ms'"}, "SELECT current_setting('statement_timeout') = '12345ms'", true},
		testbed.MySQL:    {[]string{"SET SESSION lock_wait_timeout = 1234"}, "SELECT @@lock_wait_timeout = 1234", true},
	}},
	{"the SQL mode", map[testbed.Engine]trail{
		testbed.MySQL: {[]string{"SET SESSION sql_mode = 'ANSI_QUOTES'"}, "SELECT @@sql_mode = 'ANSI_QUOTES'", true},
	}},
	{"a session variable set by a function", map[testbed.Engine]trail{
		testbed.Postgres: {[]string{"SELECT set_config('statement_timeout', '12345ms', false)"}, "SELECT current_setting('statement_timeout') = '12345ms'", true},
	}},
	{"a session variable behind comments", map[testbed.Engine]trail{
		testbed.Postgres: {[]string{"/* SELECT */ -- 1\n SET statement_timeout = '12345ms'"}, "SELECT current_setting('statement_timeout') = '12345ms'", true},
		testbed.MySQL:    {[]string{"/*!40101 SET SESSION lock_wait_timeout = 1234 */"}, "SELECT @@lock_wait_timeout = 1234", true},
	}},
	{"a session variable behind another statement", map[testbed.Engine]trail{
		testbed.Postgres: {[]string{"SELECT 1; SET statement_timeout = '12345ms'"}, "SELECT current_setting('statement_timeout') = '12345ms'", true},
	}},
	{"a session variable set in a block of code", map[testbed.Engine]trail{
		testbed.Postgres: {[]string{"DO $$ BEGIN SET search_path = pg_catalog; END $$"}, "SELECT current_schema() = 'pg_catalog'", true},
	}},
	{"a session variable set by updating a view", map[testbed.Engine]trail{
		testbed.Postgres: {[]string{"UPDATE pg_settings SET setting = '12345' WHERE name = 'statement_timeout'"}, "SELECT current_setting('statement_timeout') = '12345ms'", true},
	}},
	{"a user variable", map[testbed.Engine]trail{
		testbed.Postgres: {[]string{"SET app.tenant = 'alice'"}, "SELECT coalesce(current_setting('app.tenant', true), '') <> ''", true},
		testbed.MySQL:    {[]string{"SET @tenant = 'alice'"}, "SELECT @tenant IS NOT NULL", true},
	}},
	{"a user variable set in a query", map[testbed.Engine]trail{
		testbed.MySQL: {[]string{"SELECT @tenant := 'alice'"}, "SELECT @tenant IS NOT NULL", true},
	}},
	{"a role", map[testbed.Engine]trail{
		testbed.Postgres: {[]string{"SET ROLE ROLE"}, "SELECT current_user <> session_user", true},
		testbed.MySQL:    {[]string{"SET ROLE ROLE"}, "SELECT coalesce(current_role(), 'NONE') <> 'NONE'", true},
	}},
	{"a temporary table that hides a real one", map[testbed.Engine]trail{
		testbed.Postgres: {[]string{"CREATE TEMP TABLE shared (id integer)"}, "SELECT count(*) = 0 FROM shared", true},
		testbed.MySQL:    {[]string{"CREATE TEMPORARY TABLE shared (id integer)"}, "SELECT count(*) = 0 FROM shared", true},
	}},
	{"a temporary table by a schema name with escapes that hides a real one", map[testbed.Engine]trail{
		testbed.Postgres: {[]string{`CREATE TABLE U&"pg\005Ftemp".shared (id integer)`}, "SELECT count(*) = 0 FROM shared", true},
	}},
	{"a temporary table by a schema name with UESCAPE that hides a real one", map[testbed.Engine]trail{
		testbed.Postgres: {[]string{`SELECT 1 AS id INTO TABLE U&"pg!005Ftemp" UESCAPE '!' .shared WHERE false`}, "SELECT count(*) = 0 FROM shared", true},
	}},
	{"an advisory lock", map[testbed.Engine]trail{
		testbed.Postgres: {[]string{"SELECT pg_advisory_lock(7)"}, "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()", true},
		testbed.MySQL:    {[]string{"DO GET_LOCK(CONCAT(DATABASE(), '.7'), 5)"}, "SELECT coalesce(IS_USED_LOCK(CONCAT(DATABASE(), '.7')) = CONNECTION_ID(), false)", true},
	}},
	{"an advisory lock taken in a block of code", map[testbed.Engine]trail{
		testbed.Postgres: {[]string{"DO $$ BEGIN PERFORM pg_advisory_lock(8); END $$"}, "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()", true},
		testbed.MySQL:    {[]string{"CALL take_lock()"}, "SELECT coalesce(IS_USED_LOCK(CONCAT(DATABASE(), '.8')) = CONNECTION_ID(), false)", true},
	}},
	// Such a connection refuses tables it has not locked.
	{"a lock on a table", map[testbed.Engine]trail{
		testbed.MySQL: {[]string{"LOCK TABLES shared WRITE"}, "SELECT count(*) < 0 FROM other", true},
	}},
	{"a read-only default", map[testbed.Engine]trail{
		testbed.Postgres: {[]string{"SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"}, "SELECT current_setting('default_transaction_read_only') = 'on'", true},
		testbed.MySQL:    {[]string{"SET SESSION TRANSACTION READ ONLY"}, "SELECT @@transaction_read_only = 1", true},
	}},
	{"another schema", map[testbed.Engine]trail{
		testbed.Postgres: {[]string{"SET search_path = pg_catalog"}, "SELECT current_schema() = 'pg_catalog'", true},
		testbed.MySQL:    {[]string{"USE information_schema"}, "SELECT DATABASE() = 'information_schema'", true},
	}},
	{"a subscription", map[testbed.Engine]trail{
		testbed.Postgres: {[]string{"LISTEN news"}, "SELECT count(*) > 0 FROM pg_listening_channels()", true},
	}},
	{"a held cursor", map[testbed.Engine]trail{
		testbed.Postgres: {[]string{"DECLARE held CURSOR WITH HOLD FOR SELECT 1"}, "SELECT count(*) > 0 FROM pg_cursors WHERE name = 'held'", true},
	}},
	{"a statement prepared in SQL", map[testbed.Engine]trail{
		testbed.Postgres: {[]string{"PREPARE left_behind AS SELECT 1"}, "SELECT count(*) > 0 FROM pg_prepared_statements WHERE name = 'left_behind'", true},
	}},
	{"a statement prepared in a block of code", map[testbed.Engine]trail{
		testbed.Postgres: {[]string{"DO $$ BEGIN EXECUTE 'PREPARE hidden AS SELECT 1'; END $$"}, "SELECT count(*) > 0 FROM pg_prepared_statements WHERE name = 'hidden'", true},
	}},
}

// borrower is how a program comes by a connection, leaves its trail and gives
// the connection back.
type borrower struct {
	name string
	// separate: each statement is a borrowing of its own.
	separate bool
	borrow   func(ctx context.Context, db *sql.DB, leave []string) error
}

var fromDB = borrower{"DB", true, func(ctx context.Context, db *sql.DB, leave []string) error {
	for _, statement := range leave {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}}

var fromConn = borrower{"Conn", false, func(ctx context.Context, db *sql.DB, leave []string) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, statement := range leave {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}}

func TestNextBorrowerSeesNothingOfTheOneBefore(t *testing.T) {
	t.Parallel()
	eachFront(t, func(t *testing.T, account testbed.Account, f front) {
		borrowers := append([]borrower{fromDB, fromConn}, f.borrowers...)
		mustExec(t, account.Witness(t), "CREATE TABLE shared (id integer)")
		mustExec(t, account.Witness(t), "INSERT INTO shared VALUES (1)")
		mustExec(t, account.Witness(t), "CREATE TABLE other (id integer)")
		if account.Server.Engine == testbed.Postgres {
			mustExec(t, account.Witness(t), "GRANT ALL ON shared TO PUBLIC")
		} else {
			mustExec(t, account.Witness(t), "CREATE PROCEDURE take_lock() DO GET_LOCK(CONCAT(DATABASE(), '.8'), 5)")
		}
		for _, leak := range leaks {
			trail, ok := leak.trails[account.Server.Engine]
			if !ok {
				continue // The engine has no such thing.
			}
			for _, b := range borrowers {
				if b.separate && len(trail.leave) > 1 {
					continue // Its statements only mean something together.
				}
				t.Run(leak.name+"/"+b.name, func(t *testing.T) {
					db := f.open(t, account, 1)
					leave := make([]string, len(trail.leave))
					for i, statement := range trail.leave {
						leave[i] = strings.Replace(statement, "ROLE ROLE", "ROLE "+account.Role, 1)
					}
					require.NoError(t, b.borrow(t.Context(), db, leave))

					seen, err := observed(t.Context(), db, trail.observe)
					require.NoError(t, err)
					require.Equal(t, trail.plainLeaks && f.name == bare.name, seen)
					require.NoError(t, db.Close())
				})
			}
		}
	})
}

func TestAConnectionWithWhatNoCleaningUndoesIsNotLentAgain(t *testing.T) {
	t.Parallel()
	eachFront(t, func(t *testing.T, account testbed.Account, f front) {
		if account.Server.Engine != testbed.Postgres {
			return // Resetting a connection undoes all that these do.
		}
		mustExec(t, account.Witness(t), "ALTER ROLE "+account.User+" SUPERUSER") // for LOAD
		mustExec(t, account.Witness(t), "SELECT pg_replication_origin_create('"+account.Database+"')")
		for _, statement := range []string{
			"SELECT setseed(0.5)",
			"SET seed = 0.5",
			"LOAD 'auto_explain'",
			"DO $$ BEGIN LOAD 'auto_explain'; END $$",
			"DO $$ BEGIN EXECUTE 'LO' || 'AD ''auto_explain'''; END $$",
			"DO 'BEGIN PERFORM setseed(0.5); END'",
			"DO $$ BEGIN PERFORM pg_replication_origin_session_setup('" + account.Database + "'); END $$",
			"PREPARE seed AS SELECT setseed(0.5); EXECUTE seed",
			"SELECT set_config('se' || 'ed', '0.5', true)",
			`SELECT U&"setsee\0064"(0.5)`,
			`SELECT U&"setsee!0064" UESCAPE '!' (0.5)`,
			`SET U&"see\0064" = 0.5`,
		} {
			t.Run(statement, func(t *testing.T) {
				db := f.open(t, account, 1)
				before := backend(t, db)
				require.Equal(t, before, backend(t, db), "nothing is left behind yet")
				mustExec(t, db, statement)
				require.Equal(t, f.name == bare.name, before == backend(t, db))
			})
		}
	})
}

// backend is the server's number of the connection that the next borrower gets.
func backend(t *testing.T, db *sql.DB) (pid int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
	return pid
}

// observed asks the next borrower what it sees.
func observed(ctx context.Context, via querier, observe string) (bool, error) {
	const tableNotLocked = 1100
	var seen bool
	err := via.QueryRowContext(ctx, observe).Scan(&seen)
	if refused := (*mysql.MySQLError)(nil); errors.As(err, &refused) && refused.Number == tableNotLocked {
		return true, nil
	}
	return seen, err
}
