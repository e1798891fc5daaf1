package sqlite

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

// TestErrorsHaveTheStateThatOtherDatabasesGive: SQLite has result codes alone.
func TestErrorsHaveTheStateThatOtherDatabasesGive(t *testing.T) {
	s := dial(t, parseDSN(t, ":memory:"))
	exec(t, s, "create table t (a int primary key, b text)")
	exec(t, s, "insert into t values (1, '')")
	exec(t, s, "pragma max_page_count = 4")
	for text, want := range map[string]string{
		"insert into t values (1, '')": "23000",
		"selec 1":                      "42000",
		"insert into t values (2, hex(randomblob(100 * 1000)))": "53100",
	} {
		err := tryExec(s, text)
		require.Error(t, err)
		require.Equal(t, want, dialect{}.SQLState(err), "%s: %v", text, err)
	}
	exec(t, s, "pragma query_only = on")
	require.Equal(t, "25006", dialect{}.SQLState(tryExec(s, "delete from t")))
	// Drivers without codes have SQLite's text.
	require.Equal(t, "53100", dialect{}.SQLState(errors.New("sqlite3: database or disk is full")))
	require.Empty(t, dialect{}.SQLState(errors.New("x")))
	require.Equal(t, dialects.Diagnosis(0), dialect{}.Diagnose(errors.New("database or disk is full")))
}
