package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/pooldriver/pooldriver/dialects"
	classifier "github.com/pooldriver/pooldriver/dialects/internal/classify/sqlite"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext/classifytest"
)

// classifyTable has the statements that the classifier is tested with.
const classifyTable = "../internal/classify/sqlite/testdata/classify.txt"

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
	cases := classifytest.LoadFile(t, classifyTable)
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
			effect := classifier.Classify(c.Query)
			after := readSessionState(t, conn)
			if before != after {
				changed++
				require.True(t, effect.Dirty(), "%s:%d: %s is %s", classifyTable, c.Line, c.Query, effect)
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

// Whatever writes fails while another connection reads, so what the classifier
// says does not write must not, and must leave the file as it is.
func TestWhatDoesNotWriteRunsBesideAReaderAndLeavesTheFileAsItIs(t *testing.T) {
	cases := classifytest.LoadFile(t, classifyTable)
	t.Chdir(t.TempDir())
	refused := 0
	for i, c := range cases {
		path := filepath.Join(t.TempDir(), fmt.Sprintf("%d.db", i))
		tmpl := parseDSN(t, "sqlite:"+path+"?_pragma=busy_timeout(0)")
		reader, other := dial(t, tmpl), dial(t, tmpl)
		exec(t, reader, `create table t (id integer primary key, a unique, b, x, y, z, w); insert into t (a) values (1), (2);
			create table u (a); create table v (a); create table w (a); create table temp (a)`)
		before, err := os.ReadFile(path)
		require.NoError(t, err)

		rows, _ := openRows(t, reader, "select a from t")
		err = tryExec(other, c.Query)
		require.NoError(t, rows.Close())
		busy := err != nil && strings.Contains(err.Error(), "SQLITE_BUSY")
		if effect := classifier.Classify(c.Query); effect&(dialects.Writes|dialects.TxControl) != 0 {
			if busy {
				refused++
			}
			continue
		}
		require.False(t, busy, "%s:%d: %s: %v", classifyTable, c.Line, c.Query, err)
		_ = tryExec(other, c.Query) // once more, with nobody in its way
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, before, after, "%s:%d: %s", classifyTable, c.Line, c.Query)
	}
	require.Greater(t, refused, 20)
	t.Logf("%d of %d statements refused", refused, len(cases))
}
