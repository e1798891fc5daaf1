package integration

import (
	"database/sql"
	"fmt"
	"maps"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

// odd makes database and user of an account differ from the server's defaults.
func odd(t *testing.T, account testbed.Account) {
	t.Helper()
	mustExec(t, account.Witness(t), fmt.Sprintf("ALTER DATABASE %s CHARACTER SET latin1 COLLATE latin1_german1_ci", account.Database))
	mustExec(t, account.Witness(t), fmt.Sprintf("SET DEFAULT ROLE %s%s", account.Role, forUser(account)))
}

// forUser: MariaDB names the user after FOR, MySQL after TO.
func forUser(account testbed.Account) string {
	if account.Server.Engine == testbed.MariaDB {
		return fmt.Sprintf(" FOR %s@'%%'", account.User)
	}
	return fmt.Sprintf("@'%%' TO %s@'%%'", account.User)
}

// variables returns the session's, and what no variable shows.
func variables(t *testing.T, via querier) map[string]string {
	t.Helper()
	seen := map[string]string{}
	rows, err := via.QueryContext(t.Context(), "SHOW SESSION VARIABLES")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var name, value string
		require.NoError(t, rows.Scan(&name, &value))
		seen[name] = value
	}
	require.NoError(t, rows.Err())
	var database, role sql.NullString
	require.NoError(t, via.QueryRowContext(t.Context(), "SELECT DATABASE(), CURRENT_ROLE()").Scan(&database, &role))
	seen["DATABASE()"], seen["CURRENT_ROLE()"] = database.String, role.String
	return seen
}

// notOfTheSession are variables that tell of the last statement, and those of replication,
// which the servers list for each session although they have one value.
var notOfTheSession = regexp.MustCompile(`^(timestamp|last_insert_id|identity|insert_id|error_count|warning_count)$|slave|replica|relay|master|gtid|pseudo`)

// TestMySQLNoSessionVariableReachesTheNextBorrower sets every variable of a session that
// can be set to something else, by a text that shows it and by one that does not. The next
// borrower of the connection has what a new connection has.
func TestMySQLNoSessionVariableReachesTheNextBorrower(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	odd(t, account)
	mustExec(t, account.Witness(t), "GRANT ALL ON *.* TO "+account.User+"@'%'")
	fresh := func() map[string]string { return variables(t, account.OpenBare(t)) }
	want, other := fresh(), fresh()
	for name, value := range other {
		if want[name] != value {
			delete(want, name) // it differs from one connection to the next
		}
	}
	maps.DeleteFunc(want, func(name, _ string) bool { return notOfTheSession.MatchString(name) })
	db := openPool(t, account, "pool_max_conns=1")
	changed := 0
	for name, value := range want {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		before := number(t, conn)
		if change(t, conn, name, value) {
			changed++
		}
		require.NoError(t, conn.Close())
		next, err := db.Conn(t.Context())
		require.NoError(t, err)
		for after, value := range variables(t, next) {
			if expected, ok := want[after]; ok {
				require.Equal(t, expected, value, "after %s was set: %s", name, after)
			}
		}
		if before != number(t, next) {
			t.Logf("after %s the connection was replaced", name)
		}
		require.NoError(t, next.Close())
	}
	t.Logf("%d variables of %d were changed", changed, len(want))
	require.Greater(t, changed, 100)
}

func number(t *testing.T, conn *sql.Conn) (n int) {
	t.Helper()
	require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&n))
	return n
}

// change sets the variable to any other value that the server takes.
func change(t *testing.T, conn *sql.Conn, name, value string) bool {
	t.Helper()
	for _, candidate := range []string{"1", "0", "2", "ON", "OFF", "100", "4096", "1000000", "'latin2'", "'latin2_general_ci'",
		"'SERIALIZABLE'", "'ANSI'", "'+03:00'", "'de_DE'", "'InnoDB'", "'MyISAM'", "'x'", "''"} {
		if _, err := conn.ExecContext(t.Context(), "SET SESSION "+name+" = "+candidate); err != nil {
			continue
		}
		var now string
		if conn.QueryRowContext(t.Context(), "SHOW SESSION VARIABLES LIKE '"+name+"'").Scan(new(string), &now) != nil {
			return true // the answer is no longer what we can read
		}
		if now != value {
			return true
		}
	}
	return false
}

// TestMySQLTheDatabasesCharacterSetSurvivesACleaning: LOAD DATA takes the character set of the
// database, which a reset of the connection replaces by the server's.
func TestMySQLTheDatabasesCharacterSetSurvivesACleaning(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	odd(t, account)
	db := openPool(t, account, "pool_max_conns=1")
	for _, dirty := range []string{"SELECT 1", "SET sql_mode = 'ANSI'", "SET @a = 1", "DO GET_LOCK('x', 1)", "SET NAMES latin2", "USE information_schema"} {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		_, err = conn.ExecContext(t.Context(), dirty)
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		var charset, collation, database string
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT @@character_set_database, @@collation_database, DATABASE()").Scan(&charset, &collation, &database))
		require.Equal(t, []string{"latin1", "latin1_german1_ci", account.Database}, []string{charset, collation, database}, dirty)
	}
}

// TestMySQLACleanedConnectionHasTheRoleOfItsLogin, not that of the first one ever dialled.
func TestMySQLACleanedConnectionHasTheRoleOfItsLogin(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	db := openPool(t, account, "pool_max_conns=2")
	role := func(conn *sql.Conn) string {
		var role sql.NullString
		require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT CURRENT_ROLE()").Scan(&role))
		return role.String
	}
	older, err := db.Conn(t.Context())
	require.NoError(t, err)
	without := role(older)
	odd(t, account)
	newer, err := db.Conn(t.Context())
	require.NoError(t, err)
	with := role(newer)
	require.NotEqual(t, without, with)
	_, err = newer.ExecContext(t.Context(), "DO GET_LOCK('x', 1)") // may have called anything
	require.NoError(t, err)
	_, err = newer.ExecContext(t.Context(), "SET ROLE NONE")
	require.NoError(t, err)
	require.NoError(t, newer.Close())
	next, err := db.Conn(t.Context())
	require.NoError(t, err)
	require.Equal(t, with, role(next))
	require.NoError(t, next.Close())
	require.NoError(t, older.Close())
}

// TestMySQLTheNextBorrowerIsInTheDSNsDatabase, whatever a procedure has done. Without a
// database in the DSN the next one is in none.
func TestMySQLTheNextBorrowerIsInTheDSNsDatabase(t *testing.T) {
	t.Parallel()
	if testbed.MySQL == testbed.OracleMySQL {
		t.Skip("MySQL cannot prepare USE")
	}
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	mustExec(t, account.OpenBare(t), "CREATE PROCEDURE away() BEGIN SET @q = 'USE information_schema'; PREPARE q FROM @q; EXECUTE q; END")
	for name, text := range map[string]string{
		"procedure": "CALL " + account.Database + ".away()",
		"block":     "BEGIN NOT ATOMIC EXECUTE IMMEDIATE 'USE information_schema'; END",
		"if":        "IF 1 THEN EXECUTE IMMEDIATE 'USE information_schema'; END IF",
	} {
		for _, database := range []string{account.Database, ""} {
			t.Run(name+" from "+database, func(t *testing.T) {
				account := account
				account.Database = database
				db := openPool(t, account, "pool_max_conns=1")
				_, err := db.ExecContext(t.Context(), text)
				require.NoError(t, err)
				var now sql.NullString
				require.NoError(t, db.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&now))
				require.Equal(t, database, now.String)
			})
		}
	}
}

// TestMySQLTextsOfTheLastBorrowerAreNotShown: a reset keeps them, so the connection is
// replaced.
func TestMySQLTextsOfTheLastBorrowerAreNotShown(t *testing.T) {
	t.Parallel()
	db := openPool(t, testbed.Shared(t, testbed.MySQL).NewAccount(t), "pool_max_conns=1")
	for set, show := range map[string]string{
		"SET profiling = 1":                  "SELECT count(*) FROM information_schema.profiling",
		"SET optimizer_trace = 'enabled=on'": "SELECT count(*) FROM information_schema.optimizer_trace",
		"SET @a = 1, SESSION profiling = 1":  "SELECT count(*) FROM information_schema.profiling",
	} {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		execOn(t, t.Context(), conn, set)
		var n int
		for range 2 {
			require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'secret of mine'").Scan(&n))
		}
		require.NoError(t, conn.QueryRowContext(t.Context(), show).Scan(&n))
		require.Positive(t, n, set)
		require.NoError(t, conn.Close())
		require.NoError(t, db.QueryRow(show).Scan(&n))
		require.Zero(t, n, "after %s", set)
	}
}
