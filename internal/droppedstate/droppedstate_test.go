package droppedstate

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/fakedb"
)

func TestEachStatementIsToldOnceAndMostOfThem(t *testing.T) {
	t.Parallel()
	var told Told
	for i := range Most {
		require.True(t, told.First(fmt.Sprint(i)))
		require.False(t, told.First(fmt.Sprint(i)))
	}
	require.False(t, told.First("one more"))
}

func TestTheCallStackShowsAConnAndATx(t *testing.T) {
	t.Parallel()
	require.False(t, HeldByProgram())
	server := fakedb.NewServer()
	db := sql.OpenDB(server.Connector(fakedb.Variant{Name: "everything", Features: fakedb.All}))
	defer db.Close()
	asked := func() driver.Valuer { return new(asker) }
	held := func(a driver.Valuer) bool { return a.(*asker).held }

	ofDB := asked()
	_, _ = db.Exec("INSERT INTO t VALUES (?)", ofDB)
	require.False(t, held(ofDB))

	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	ofConn := asked()
	_, _ = conn.ExecContext(t.Context(), "INSERT INTO t VALUES (?)", ofConn)
	require.True(t, held(ofConn))
	stmt, err := db.Prepare("INSERT INTO t VALUES (?)")
	require.NoError(t, err)
	ofStmt := asked()
	_, _ = stmt.Exec(ofStmt)
	require.False(t, held(ofStmt))
	require.NoError(t, stmt.Close())

	inRaw := asked()
	require.NoError(t, conn.Raw(func(any) error {
		_, _ = db.Exec("INSERT INTO t VALUES (?)", inRaw)
		return nil
	}))
	require.False(t, held(inRaw), "the inner call is that of the *sql.DB")
	require.NoError(t, conn.Close())

	tx, err := db.Begin()
	require.NoError(t, err)
	ofTx := asked()
	_, _ = tx.Exec("INSERT INTO t VALUES (?)", ofTx)
	require.True(t, held(ofTx))
	require.NoError(t, tx.Rollback())
}

// asker is an argument that looks at the call stack when database/sql asks for its value.
type asker struct{ held bool }

func (a *asker) Value() (driver.Value, error) {
	a.held = HeldByProgram()
	return int64(1), nil
}

func TestAWarningOfLostStateShowsNoValue(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"SET search_path = secret":                               "SET search_path …",
		"set  search_path\n to secret":                           "set search_path …",
		"SET app.token TO secret":                                "SET app.token …",
		"SET PASSWORD = 'secret'":                                "SET PASSWORD …",
		"SET PASSWORD FOR bob = 'secret'":                        "SET PASSWORD FOR bob …",
		"SET time_zone = '+00:00'":                               "SET time_zone …",
		"SELECT set_config('app.token', 'secret', false)":        "SELECT set_config …",
		"SELECT pg_try_advisory_lock(1)":                         "SELECT pg_try_advisory_lock …",
		"/* secret */ -- secret\n ; SET @secretless := 'secret'": "SET @secretless …",
		"/* secret": "(not shown)",
		"'secret'":  "(not shown)",
		"":          "(not shown)",
		"CREATE TEMPORARY TABLE t AS SELECT 'secret'":                "CREATE TEMPORARY TABLE t …",
		"SET " + strings.Repeat("x", 1000):                           "SET …",
		"ALTER ROLE bob PASSWORD 'secret'; SET app.token = 'secret'": "ALTER ROLE bob PASSWORD …",
	} {
		require.Equal(t, want, Opening(query), query)
	}
}
