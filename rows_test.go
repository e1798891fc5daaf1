package pooldriver

import (
	"context"
	"database/sql/driver"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/fakedb"
)

func TestClosedRowsSayThatTheyAreAndAreUsedAgainButThoseOfATask(t *testing.T) {
	connector := Wrap(fakedb.NullConnector{Rows: 1})
	defer connector.Close()
	opened, err := connector.Connect(t.Context())
	require.NoError(t, err)
	c := opened.(*conn)
	query := func(ctx context.Context) *rows {
		r, err := c.QueryContext(ctx, "select n from numbers", nil)
		require.NoError(t, err)
		return r.(*rows)
	}
	dest := make([]driver.Value, 1)
	for name, pinned := range map[string]bool{"alone in their checkout": false, "in a transaction": true} {
		t.Run(name, func(t *testing.T) {
			if pinned {
				tx, err := c.BeginTx(t.Context(), driver.TxOptions{})
				require.NoError(t, err)
				defer func() { require.NoError(t, tx.Rollback()) }()
			}
			first := query(t.Context())
			require.NoError(t, first.Next(dest))
			require.NoError(t, first.Close())
			require.NoError(t, first.Close())
			require.ErrorIs(t, first.Next(dest), errRowsClosed)
			require.ErrorIs(t, first.NextResultSet(), errRowsClosed)
			require.Empty(t, first.Columns())
			require.False(t, first.HasNextResultSet())
			require.False(t, first.Live(), "nothing of the driver's is kept alive")
			require.Nil(t, first.owner)

			second := query(t.Context())
			require.Same(t, first, second)
			third := query(t.Context())
			require.NotSame(t, second, third, "those are open")
			require.NoError(t, second.Next(dest))
			require.NoError(t, third.Next(dest))
			require.NoError(t, third.Close())
			require.NoError(t, second.Close())
		})
	}
	require.True(t, c.IsValid())

	ctx, end := WithTask(t.Context())
	defer end()
	c.spare = nil
	r := query(ctx)
	require.NoError(t, r.Next(dest))
	require.NoError(t, r.Close())
	require.True(t, c.IsValid())
	require.Nil(t, c.spare)
}

// anew stands in for a driver's rows that answer with new memory each time.
type anew struct{ driver.Rows }

func (anew) Columns() []string { return []string{"n"} }

func TestColumnsOfTheProgramsAreNotHandedOutAgain(t *testing.T) {
	r := rowsOf(Wrap(fakedb.NullConnector{}), anew{}, anew{}.Columns())
	r.Columns()[0] = "changed by the program"
	require.Equal(t, []string{"n"}, r.Columns(), "as without the pool")
}
