package sqlite

import (
	"database/sql/driver"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/testing/rowstest"
)

// The blob of each row differs in length and content, under every kind of
// declared type, from a table, a temporary sorter and a function.
const blobs = `select b, d, t, j, n, blob || b, zeroblob(n % 700), randomblob(n % 700 + 1), (select max(b) from blobs where n <= o.n), x''
	from (select b, b as blob, d, t, j, n from blobs order by b desc, n) o`

func TestTheBytesOfARowStayAsTheyAre(t *testing.T) {
	for _, dsn := range []string{":memory:", "sqlite:" + filepath.Join(t.TempDir(), "x.db")} {
		tmpl := parseDSN(t, dsn)
		s := dial(t, tmpl)
		exec(t, s, `create table blobs (b blob, d date, t text, j json, n);
			with recursive i(n) as (values (1) union all select n + 1 from i where n < 100)
			insert into blobs select cast(printf('%0*d', n * 377 % 9000 + 1, n) as blob), cast(n as blob), cast(n * n as blob), jsonb_array(n, n * 2), n from i`)
		stmt, err := s.Conn().Prepare(blobs)
		require.NoError(t, err)
		query := func() driver.Rows {
			rows, err := s.Conn().(driver.QueryerContext).QueryContext(t.Context(), blobs, nil)
			require.NoError(t, err)
			return rows
		}
		prepared := func() driver.Rows {
			rows, err := stmt.(driver.StmtQueryContext).QueryContext(t.Context(), nil)
			require.NoError(t, err)
			return rows
		}
		for _, rows := range []func() driver.Rows{query, prepared} {
			slices, changed := rowstest.Changed(t, rows(), func() {
				exec(t, s, "update blobs set b = randomblob(length(b)), d = randomblob(8)")
				rowstest.Changed(t, prepared(), func() {})
			})
			require.GreaterOrEqual(t, slices, 100*7)
			require.Zero(t, changed)
		}
		require.NoError(t, stmt.Close())
		require.True(t, tmpl.Traits().BytesKept)
	}
}
