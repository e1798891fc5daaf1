package behaviour

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// script is rows that do as they are told.
type script struct {
	sets []scriptedSet
	read int
	last error // of Close
}

type scriptedSet struct {
	columns []string
	rows    int
	next    error // of NextResultSet, when this one is current
}

func (s *script) Columns() []string { return s.sets[0].columns }
func (s *script) Close() error      { return s.last }
func (s *script) Next(dest []driver.Value) error {
	if s.read == s.sets[0].rows {
		return io.EOF
	}
	for i := range dest {
		dest[i] = int64(10*s.read + i)
	}
	s.read++
	return nil
}
func (s *script) HasNextResultSet() bool { return len(s.sets) > 1 }
func (s *script) NextResultSet() error {
	if s.sets[0].next != nil {
		return s.sets[0].next
	}
	if len(s.sets) < 2 {
		return io.EOF
	}
	s.sets, s.read = s.sets[1:], 0
	return nil
}

// dictation is all that the driver's rows say.
func dictation(rows interface {
	driver.RowsNextResultSet
	driver.RowsColumnTypeDatabaseTypeName
}) (lines []string) {
	note := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for {
		dest := make([]driver.Value, len(rows.Columns()))
		note("columns %q", rows.Columns())
		for i := range dest {
			note("type %q", rows.ColumnTypeDatabaseTypeName(i))
		}
		for {
			err := rows.Next(dest)
			note("row %v %v", dest, err)
			if err != nil {
				break
			}
		}
		note("more %v", rows.HasNextResultSet())
		err := rows.NextResultSet()
		note("next set %v", err)
		if err != nil {
			break
		}
	}
	note("close %v", rows.Close())
	return lines
}

// scripted connects to a driver whose queries have the rows of open.
type scripted struct {
	fakedb.NullConnector
	open func() driver.Rows
}

func (s scripted) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := s.NullConnector.Connect(ctx)
	return scriptedConn{c, c.(driver.ExecerContext), c.(driver.ConnBeginTx), s.open}, err
}

type scriptedConn struct {
	driver.Conn
	driver.ExecerContext
	driver.ConnBeginTx
	open func() driver.Rows
}

func (c scriptedConn) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return c.open(), nil
}

// virtualConn is a connection that database/sql would have of c.
func virtualConn(t *testing.T, c *pooldriver.Connector) interface {
	driver.Conn
	driver.QueryerContext
	driver.ExecerContext
	driver.ConnBeginTx
	driver.Validator
} {
	t.Helper()
	opened, err := c.Connect(t.Context())
	require.NoError(t, err)
	return opened.(interface {
		driver.Conn
		driver.QueryerContext
		driver.ExecerContext
		driver.ConnBeginTx
		driver.Validator
	})
}

func TestWhatADriverMaySayOfItsResultSetsIsSaidFromMemory(t *testing.T) {
	a, none := []string{"a", "b"}, []string{}
	for name, sets := range map[string][]scriptedSet{
		"rows without columns":             {{columns: none, rows: 3}, {columns: a, rows: 1}},
		"nothing at all":                   {{columns: none}},
		"a set without rows between":       {{columns: a, rows: 1}, {columns: none}, {columns: a, rows: 2}},
		"an error instead of the next set": {{columns: a, rows: 2, next: errors.New("no")}, {columns: a, rows: 2}},
		"an end that was not announced":    {{columns: a, rows: 2, next: io.EOF}, {columns: a, rows: 2}},
	} {
		for _, limit := range []int64{1 << 20, 40, 0} {
			t.Run(fmt.Sprintf("%s, limit %d", name, limit), func(t *testing.T) {
				last := errors.New("of Close")
				c := pooldriver.Wrap(scripted{open: func() driver.Rows { return &script{sets: sets, last: last} }}, maxConns(1), func(c *pooldriver.Config) { c.NestedBuffer, c.NestedBufferTotal = limit, limit })
				defer c.Close()
				// dictate reads the rows after others of their task have needed the connection so often.
				dictate := func(readAhead int) []string {
					ctx, end := pooldriver.WithTask(t.Context())
					defer end()
					own, other := virtualConn(t, c), virtualConn(t, c)
					defer func() { require.True(t, own.IsValid()); require.True(t, other.IsValid()) }()
					tx, err := own.BeginTx(ctx, driver.TxOptions{})
					require.NoError(t, err)
					defer func() { _ = tx.Rollback() }()
					rows, err := own.QueryContext(ctx, "select a, b from t", nil)
					require.NoError(t, err)
					for range readAhead {
						if _, err := other.ExecContext(ctx, "update t set a = 1", nil); err == nil {
							break
						}
					}
					return dictation(rows.(interface {
						driver.RowsNextResultSet
						driver.RowsColumnTypeDatabaseTypeName
					}))
				}
				want := dictate(0)
				for readAhead := range 3 {
					require.Equal(t, want, dictate(readAhead), "read ahead %d times", readAhead)
					require.Zero(t, c.Stats().BufferedBytes)
				}
			})
		}
	}
}

func TestClosedRowsSayThatTheyAreAndAreUsedAgainButThoseOfATask(t *testing.T) {
	connector := pooldriver.Wrap(fakedb.NullConnector{Rows: 1})
	defer connector.Close()
	c := virtualConn(t, connector)
	query := func(ctx context.Context) driver.RowsNextResultSet {
		r, err := c.QueryContext(ctx, "select n from numbers", nil)
		require.NoError(t, err)
		return r.(driver.RowsNextResultSet)
	}
	const closed = "pooldriver: these rows are closed"
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
			require.EqualError(t, first.Next(dest), closed)
			require.EqualError(t, first.NextResultSet(), closed)
			require.Empty(t, first.Columns())
			require.False(t, first.HasNextResultSet())

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

	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	query(ctx).Close() // takes what was kept
	require.True(t, c.IsValid())
	first := query(ctx)
	require.NoError(t, first.Next(dest))
	require.NoError(t, first.Close())
	require.True(t, c.IsValid())
	require.NotSame(t, first, query(ctx))
	require.True(t, c.IsValid())
}

// anew stands in for a driver's rows that answer with new memory each time.
type anew struct{ driver.Rows }

func (anew) Columns() []string { return []string{"n"} }
func (anew) Close() error      { return nil }

func TestColumnsOfTheProgramsAreNotHandedOutAgain(t *testing.T) {
	connector := pooldriver.Wrap(scripted{open: func() driver.Rows { return anew{} }})
	defer connector.Close()
	rows, err := virtualConn(t, connector).QueryContext(t.Context(), "select n from t", nil)
	require.NoError(t, err)
	rows.Columns()[0] = "changed by the program"
	require.Equal(t, []string{"n"}, rows.Columns(), "as without the pool")
	require.NoError(t, rows.Close())
}
