package behaviour

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAMigrationInMemoryEndsAsOnTheBareDriver(t *testing.T) {
	t.Parallel()
	const private = ":memory:?_pragma=foreign_keys(1)"
	for _, m := range migrations {
		t.Run(m.name, func(t *testing.T) {
			bare, err := sql.Open("sqlite", private)
			require.NoError(t, err)
			defer bare.Close()
			bare.SetMaxOpenConns(1)
			want := migrated(t, bare, m)
			db, _ := openSQLite(t, true, private, 1)
			require.Equal(t, want, migrated(t, db, m), "Wrap")
			for _, max := range []int{1, 4} {
				db, _ = openSQLite(t, false, private, max)
				require.Equal(t, want, migrated(t, db, m), "New, max=%d", max)
				db, _ = openSQLite(t, true, "file:migrated_"+m.name+"?mode=memory&cache=shared&_pragma=foreign_keys(1)", max)
				require.Equal(t, want, migrated(t, db, m), "Wrap, shared, max=%d", max)
				require.NoError(t, db.Close())
			}
		})
	}
}
