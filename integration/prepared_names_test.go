package integration

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

// elsewhere makes another schema (PostgreSQL) or database with a table t beside the
// account's own, and returns its name. Each t has the name of where it is.
func elsewhere(t *testing.T, account testbed.Account) string {
	t.Helper()
	w := account.Witness(t)
	other := account.Database + "_other"
	if account.Server.Engine == testbed.Postgres {
		mustExec(t, w, fmt.Sprintf("CREATE SCHEMA %s; GRANT USAGE ON SCHEMA %s TO PUBLIC", other, other))
	} else {
		mustExec(t, w, "CREATE DATABASE "+other)
		t.Cleanup(func() { mustExec(t, w, "DROP DATABASE "+other) })
		mustExec(t, w, fmt.Sprintf("GRANT ALL ON %s.* TO %s@'%%'", other, account.User))
	}
	for schema, prefix := range map[string]string{"own": "", "other": other + "."} {
		mustExec(t, w, fmt.Sprintf("CREATE TABLE %st (a varchar(20))", prefix))
		mustExec(t, w, fmt.Sprintf("INSERT INTO %st VALUES ('%s')", prefix, schema))
		if account.Server.Engine == testbed.Postgres {
			mustExec(t, w, fmt.Sprintf("GRANT ALL ON %st TO PUBLIC", prefix))
		}
	}
	return other
}

// TestAStatementThatIsOlderThanWhatItsNamesMeanIsNotGuessed: PostgreSQL resolves the names of
// a prepared statement anew. MySQL and MariaDB keep the database, the SQL mode and the
// character set of its preparing, which a statement that we prepare anew would not: that is
// an error.
func TestAStatementThatIsOlderThanWhatItsNamesMeanIsNotGuessed(t *testing.T) {
	t.Parallel()
	eachFront(t, func(t *testing.T, account testbed.Account, f front) {
		other := elsewhere(t, account)
		changes, back, refused := []string{"USE " + other, "SET NAMES latin1", "SET sql_mode = ''"}, "USE "+account.Database, true
		if account.Server.Engine == testbed.Postgres {
			changes, back, refused = []string{"SET search_path = " + other}, "RESET search_path", false
		}
		db := f.open(t, account, 1)
		for _, change := range changes {
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			stmt, err := conn.PrepareContext(t.Context(), "SELECT a FROM t")
			require.NoError(t, err)
			var a string
			require.NoError(t, stmt.QueryRow().Scan(&a))
			require.Equal(t, "own", a)
			_, err = conn.ExecContext(t.Context(), change)
			require.NoError(t, err)
			err = stmt.QueryRow().Scan(&a)
			switch {
			case refused && f.name != bare.name:
				require.ErrorContains(t, err, "prepare it again", change)
			case refused:
				require.NoError(t, err)
				require.Equal(t, "own", a, "after %s: the server keeps what was in force", change)
			default:
				require.NoError(t, err)
				require.Equal(t, "other", a, "after %s: the server goes by what is in force", change)
			}
			require.NoError(t, stmt.Close())
			again, err := conn.PrepareContext(t.Context(), "SELECT a FROM t")
			require.NoError(t, err)
			require.NoError(t, again.QueryRow().Scan(&a))
			require.NoError(t, again.Close())
			_, err = conn.ExecContext(t.Context(), back) // for the bare driver, which cleans nothing
			require.NoError(t, err)
			require.NoError(t, conn.Close())
		}
		// What was prepared on the *sql.DB is for sessions as they are at connect.
		stmt, err := db.Prepare("SELECT a FROM t")
		require.NoError(t, err)
		var a string
		require.NoError(t, stmt.QueryRow().Scan(&a))
		require.Equal(t, "own", a)
		require.NoError(t, stmt.Close())
	})
}
