package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext/classifytest"
)

// sessionState are queries whose results are the state of a SQLite connection.
var sessionState = []string{
	"pragma database_list", "select name, sql from temp.sqlite_schema", "select 'a' like 'A'",
	"pragma foreign_keys", "pragma synchronous", "pragma busy_timeout", "pragma query_only", "pragma temp_store",
	"pragma cache_size", "pragma recursive_triggers", "pragma locking_mode", "pragma read_uncommitted",
	"pragma defer_foreign_keys", "pragma ignore_check_constraints", "pragma cell_size_check", "pragma automatic_index",
}

func readSessionState(t *testing.T, conn *sql.Conn) string {
	var state strings.Builder
	for _, query := range sessionState {
		rows, err := conn.QueryContext(context.Background(), query)
		require.NoError(t, err, query)
		columns, err := rows.Columns()
		require.NoError(t, err)
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(sql.NullString)
		}
		for rows.Next() {
			require.NoError(t, rows.Scan(values...))
			for _, v := range values {
				fmt.Fprint(&state, v.(*sql.NullString).String, "|")
			}
		}
		require.NoError(t, rows.Close())
		state.WriteString("\n")
	}
	return state.String()
}

// Every statement of the table that SQLite executes is tried on a connection
// of its own: one that the classifier calls clean must leave no trace, and one
// that leaves a trace must be called dirty.
func TestCleanStatementsLeaveNoStateInSQLite(t *testing.T) {
	cases := classifytest.Load(t)
	t.Chdir(t.TempDir())
	executed, changed := 0, 0
	for i, c := range cases {
		db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), fmt.Sprintf("%d.db", i)))
		require.NoError(t, err)
		conn, err := db.Conn(context.Background())
		require.NoError(t, err)
		_, err = conn.ExecContext(context.Background(), `create table t (id integer primary key, a unique, b, x, y, z, w);
			create table u (a); create table v (a); create table w (a); create table temp (a); create table users (id, name)`)
		require.NoError(t, err)

		readSessionState(t, conn) // looking for temporary tables makes their schema
		before := readSessionState(t, conn)
		if _, err = conn.ExecContext(context.Background(), c.Query); err == nil {
			executed++
			effect := classify(c.Query)
			after := readSessionState(t, conn)
			if before != after {
				changed++
				require.True(t, effect.Dirty(), "%s:%d: %s is %s", classifytest.Table, c.Line, c.Query, effect)
			}
			if effect&dialects.TxControl == 0 {
				_, err := conn.ExecContext(context.Background(), "begin; rollback")
				require.NoError(t, err, "a transaction is open after %s", c.Query)
			}
		}
		require.NoError(t, conn.Close())
		require.NoError(t, db.Close())
	}
	require.Greater(t, executed, 60)
	require.Greater(t, changed, 15)
	t.Logf("%d of %d statements executed, %d left state", executed, len(cases), changed)
}
