package fakedb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNullDriverDoesNotAllocate(t *testing.T) {
	c, err := NullConnector{Rows: 2}.Connect(t.Context())
	require.NoError(t, err)
	args := []driver.NamedValue{{Ordinal: 1, Value: int64(1)}}
	dest := make([]driver.Value, 1)
	ctx := context.Background()
	allocs := testing.AllocsPerRun(100, func() {
		_, _ = c.(driver.ExecerContext).ExecContext(ctx, "x", args)
		rows, _ := c.(driver.QueryerContext).QueryContext(ctx, "x", args)
		for rows.Next(dest) != io.EOF {
		}
		_ = rows.Close()
		tx, _ := c.(driver.ConnBeginTx).BeginTx(ctx, driver.TxOptions{})
		_ = tx.Commit()
		_ = c.(driver.SessionResetter).ResetSession(ctx)
		_ = c.(driver.Validator).IsValid()
	})
	require.Zero(t, allocs)
}

func TestNullDriverAnswersWhatItPromises(t *testing.T) {
	db := sql.OpenDB(NullConnector{Rows: 3})
	defer db.Close()
	res, err := db.Exec("anything", 1, "two")
	require.NoError(t, err)
	n, err := res.RowsAffected()
	require.NoError(t, err)
	require.Equal(t, int64(1), n)

	tx, err := db.Begin()
	require.NoError(t, err)
	outer, err := tx.Query("anything")
	require.NoError(t, err)
	seen := 0
	for outer.Next() {
		inner, err := tx.Query("anything")
		require.NoError(t, err)
		for inner.Next() {
			seen++
		}
	}
	require.Equal(t, 9, seen)
	require.NoError(t, tx.Commit())
}

func TestNullDriverWithoutValidatorHasNone(t *testing.T) {
	c, err := NullConnector{NoValidator: true}.Connect(t.Context())
	require.NoError(t, err)
	require.False(t, implements[driver.Validator](c))
	require.True(t, implements[driver.SessionResetter](c))
}

func BenchmarkNullDriverExec(b *testing.B) {
	db := sql.OpenDB(NullConnector{})
	defer db.Close()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := db.ExecContext(context.Background(), "x"); err != nil {
			b.Fatal(err)
		}
	}
}
