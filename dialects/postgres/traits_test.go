package postgres

import (
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
)

// What traits says of pgx, and no compiler checks.

func TestPgxLeavesEveryArgumentAsItIs(t *testing.T) {
	type own struct{ n int }
	for _, v := range []any{nil, 7, own{1}, &own{2}, []own{{3}}, sql.NullInt64{Int64: 4, Valid: true}, sql.Named("n", 5), []byte{6}, stdlib.Conn{}} {
		given := driver.NamedValue{Ordinal: 1, Value: v}
		checked := given
		require.NoError(t, new(stdlib.Conn).CheckNamedValue(&checked))
		require.Equal(t, given, checked, "%T", v)
	}
}
