package callsite

import (
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

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
