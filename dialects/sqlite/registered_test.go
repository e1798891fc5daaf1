package sqlite_test

import (
	"database/sql"
	"database/sql/driver"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	sqlitedriver "modernc.org/sqlite"

	"github.com/pooldriver/pooldriver"
)

// longest is an aggregate: the longest of its texts.
type longest struct{ text string }

func (l *longest) Step(_ *sqlitedriver.FunctionContext, row []driver.Value) error {
	if text, _ := row[0].(string); len(text) > len(l.text) {
		l.text = text
	}
	return nil
}

func (l *longest) WindowInverse(*sqlitedriver.FunctionContext, []driver.Value) error { return nil }

func (l *longest) WindowValue(*sqlitedriver.FunctionContext) (driver.Value, error) {
	return l.text, nil
}

func (l *longest) Final(*sqlitedriver.FunctionContext) {}

// The driver registers for the whole program, once.
func init() {
	sqlitedriver.MustRegisterScalarFunction("test_doubled", 1, func(_ *sqlitedriver.FunctionContext, args []driver.Value) (driver.Value, error) {
		return 2 * args[0].(int64), nil
	})
	sqlitedriver.MustRegisterFunction("test_longest", &sqlitedriver.FunctionImpl{
		NArgs: 1, Deterministic: true,
		MakeAggregate: func(sqlitedriver.FunctionContext) (sqlitedriver.AggregateFunction, error) { return &longest{}, nil },
	})
	sqlitedriver.MustRegisterCollationUtf8("test_backwards", func(a, b string) int { return strings.Compare(b, a) })
}

// TestWhatIsRegisteredWithTheDriverIsThereOnEveryConnection, also on those that
// replace one that could not be cleaned.
func TestWhatIsRegisteredWithTheDriverIsThereOnEveryConnection(t *testing.T) {
	const size = 3
	connector := pooldriver.New("sqlite:"+filepath.Join(t.TempDir(), "x.db"), func(c *pooldriver.Config) { c.MaxConns = size })
	db := sql.OpenDB(connector)
	defer db.Close()
	for round := range 2 {
		var conns []*sql.Conn
		for range size {
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			conns = append(conns, conn)
			for query, want := range map[string]any{
				"SELECT test_doubled(21)": int64(42),
				"SELECT test_longest(x) FROM (SELECT 'a' AS x UNION ALL SELECT 'ccc' UNION ALL SELECT 'bb')":                                            "ccc",
				"SELECT group_concat(x, '') FROM (SELECT x FROM (SELECT 'b' AS x UNION SELECT 'c' UNION SELECT 'a') ORDER BY x COLLATE test_backwards)": "cba",
			} {
				var got any
				require.NoError(t, conn.QueryRowContext(t.Context(), query).Scan(&got), query)
				require.Equal(t, want, got, query)
			}
			_, err = conn.ExecContext(t.Context(), "CREATE TEMP TABLE left_behind (id integer)")
			require.NoError(t, err)
		}
		for _, conn := range conns {
			require.NoError(t, conn.Close())
		}
		require.EqualValues(t, (round+1)*size, connector.Stats().Pool.Creates)
	}
}
