package postgres

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/rowstest"
)

func TestPgxKeepsTheConnectionOfRowsWhereWeLook(t *testing.T) {
	require.True(t, connField.Known())
}

// pipelined sends query n times and returns the rows.
func pipelined(t *testing.T, s dialects.Session, query string, n int) (answers []driver.Rows) {
	t.Helper()
	calls := make([]dialects.PipelinedQuery, n)
	for i := range calls {
		calls[i].Text = query
	}
	require.NoError(t, s.(dialects.Pipeliner).QueryTogether(t.Context(), calls, dialects.PipelineLimits{Bytes: 1 << 30, Statements: 128}, func(i int, rows driver.Rows, err error) {
		require.NoError(t, err)
		answers = append(answers, rows)
	}))
	require.Len(t, answers, n)
	return answers
}

func TestRowsInMemoryAreThoseOfTheNetwork(t *testing.T) {
	srv := newServer(t)
	srv.letGo()
	s, _ := srv.dial(t)
	alone := func() driver.Rows {
		rows, err := s.Conn().(driver.QueryerContext).QueryContext(t.Context(), "ROWS a", nil)
		require.NoError(t, err)
		return rows
	}
	read := func(rows driver.Rows, n int) (all []string) {
		for range n {
			row := make([]driver.Value, len(rows.Columns()))
			err := rows.Next(row)
			all = append(all, fmt.Sprintf("%s %v", row, err))
		}
		return all
	}
	for _, n := range []int{0, 1, rowCount / 2, rowCount, rowCount + 2} { // rows that are read before Close
		live := alone()
		want := append(read(live, n), fmt.Sprint(live.Close()))
		for _, rows := range pipelined(t, s, "ROWS a", 3) {
			got := append(read(rows, n), fmt.Sprint(rows.Close()))
			require.True(t, slices.Equal(want, got), "rows are not the same") // they are too long to be shown
		}
	}
	answers := pipelined(t, s, "ROWS a", 2)
	first := make([]driver.Value, len(rowTypes))
	require.NoError(t, answers[0].Next(first))
	kept := fmt.Sprintf("%s", first)
	found, changed := rowstest.Changed(t, answers[1], func() { read(answers[0], rowCount) })
	require.Positive(t, found)
	require.Zero(t, changed)
	require.Equal(t, kept, fmt.Sprintf("%s", first))
	require.NoError(t, s.Close(t.Context()))
}

func TestAnErrorBehindRowsComesBehindThem(t *testing.T) {
	broken := errors.New("broken")
	rows := &memoryRows{end: broken}
	rows.add([][]byte{{}, nil, []byte("x")})
	rows.add([][]byte{[]byte("y"), {}, nil})
	require.True(t, rows.Next())
	require.Equal(t, [][]byte{{}, nil, []byte("x")}, rows.RawValues())
	require.NoError(t, rows.Err())
	require.True(t, rows.Next())
	require.Equal(t, [][]byte{[]byte("y"), {}, nil}, rows.RawValues())
	require.NoError(t, rows.Err())
	require.False(t, rows.Next())
	require.Equal(t, broken, rows.Err())
}

// The fake server answers every text, and none as PostgreSQL would.
func TestATrialLooksAtTheAnswers(t *testing.T) {
	srv := newServer(t)
	srv.letGo()
	s, _ := srv.dial(t)
	require.Error(t, s.(dialects.Pipeliner).Trial(t.Context()))
	require.NoError(t, s.Close(t.Context()))
	require.Equal(t, driver.ErrBadConn, s.(dialects.Pipeliner).Trial(t.Context()))
}

func TestAStatementThatIsAskedForStaysPrepared(t *testing.T) {
	srv := newServer(t)
	srv.letGo()
	s, _ := srv.dial(t)
	together := s.(dialects.Pipeliner)
	send := func(text string) {
		calls := []dialects.PipelinedQuery{{Text: text}}
		limits := dialects.PipelineLimits{Bytes: 1 << 30, Statements: 2}
		require.NoError(t, together.QueryTogether(t.Context(), calls, limits, func(int, driver.Rows, error) {}))
	}
	send("ROWS a")
	send("ROWS b")
	require.True(t, together.HasPipelined("ROWS a", 0)) // a follower of this text may be in the next pipeline
	send("ROWS c")
	a, b := together.HasPipelined("ROWS a", 0), together.HasPipelined("ROWS b", 0)
	require.NoError(t, s.Close(t.Context()))
	require.True(t, a)
	require.False(t, b)
}
