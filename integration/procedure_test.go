package integration

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

// The errors by which a server says that a prepared statement has become
// useless, from within a procedure that has committed something before. They
// look like those that allow the statement to be prepared and executed again.
var misleading = map[testbed.Engine][]string{
	testbed.Postgres: {
		"EXECUTE 'EXECUTE nosuch'",
		"RAISE 'raised' USING ERRCODE = '26000'",
		`RAISE 'prepared statement "nosuch" does not exist' USING ERRCODE = '26000'`,
		"RAISE 'cached plan must not change result type' USING ERRCODE = '0A000'",
	},
	testbed.MySQL: {
		"EXECUTE nosuch",
		"SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1243, MESSAGE_TEXT = 'signalled'",
		"SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1243, MESSAGE_TEXT = 'Unknown prepared statement handler (1) given to mysqld_stmt_execute'",
		"SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1615, MESSAGE_TEXT = 'Prepared statement needs to be re-prepared'",
	},
}

// failingProcedure notes its argument, commits and fails.
var failingProcedure = map[testbed.Engine]string{
	testbed.Postgres: "CREATE PROCEDURE failing%d(x integer) LANGUAGE plpgsql AS $$ BEGIN INSERT INTO calls VALUES (x); COMMIT; %s; END $$",
	testbed.MySQL:    "CREATE PROCEDURE failing%d(x integer) BEGIN INSERT INTO calls VALUES (x); COMMIT; %s; END",
}

func TestAProcedureThatHasCommittedAndFailsIsCalledOnce(t *testing.T) {
	t.Parallel()
	eachFront(t, func(t *testing.T, account testbed.Account, f front) {
		witness, engine := account.Witness(t), account.Server.Engine
		mark := map[testbed.Engine]string{testbed.Postgres: "$1", testbed.MySQL: "?"}[engine]
		db := f.open(t, account, 1)
		mustExec(t, db, "CREATE TABLE calls (x integer)")
		for i, failure := range misleading[engine] {
			mustExec(t, db, fmt.Sprintf(failingProcedure[engine], i, failure))
			call := fmt.Sprintf("CALL failing%d(%s)", i, mark)
			for j, how := range []struct {
				name string
				call func(x int) error
			}{
				{"Exec", func(x int) error {
					_, err := db.ExecContext(t.Context(), call, x)
					return err
				}},
				{"Prepare", func(x int) error {
					statement, err := db.PrepareContext(t.Context(), call)
					require.NoError(t, err)
					defer statement.Close()
					_, err = statement.ExecContext(t.Context(), x)
					return err
				}},
				{"the second Exec of a statement", func(x int) error {
					statement, err := db.PrepareContext(t.Context(), call)
					require.NoError(t, err)
					defer statement.Close()
					_, err = statement.ExecContext(t.Context(), -1)
					require.Error(t, err)
					_, err = statement.ExecContext(t.Context(), x)
					return err
				}},
			} {
				t.Run(failure+"/"+how.name, func(t *testing.T) {
					x := 10*i + j
					require.Error(t, how.call(x))
					require.Equal(t, 1, calls(t, witness, x))
				})
			}
		}
	})
}

// calls counts what the procedures have noted.
func calls(t *testing.T, witness *sql.DB, x int) (n int) {
	t.Helper()
	require.NoError(t, witness.QueryRowContext(t.Context(), fmt.Sprintf("SELECT count(*) FROM calls WHERE x = %d", x)).Scan(&n))
	return n
}
