package behaviour

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// An answer that fits into the memory for rows, but not beside another one, is not kept: its query is executed alone.
func TestTheAnswersOfAPipelineFitIntoMemoryTogether(t *testing.T) {
	const text, size, limit = "SELECT b FROM large WHERE a = ?", 600, 1000
	for name, tc := range map[string]struct {
		total, most int64 // half of total is for rows that make room for others
		pipelined   uint64
	}{
		"one answer":  {total: limit, most: limit},
		"two answers": {total: 4 * limit, most: 2 * limit, pipelined: 1},
	} {
		t.Run(name, func(t *testing.T) {
			db, c := openPipeline(t, &pipeline{}, func(c *pooldriver.Config) { c.NestedBuffer, c.NestedBufferTotal = limit, tc.total })
			mustExec(t, t.Context(), db, "CREATE TABLE large (a INT, b TEXT)")
			for i := range 2 {
				mustExec(t, t.Context(), db, "INSERT INTO large VALUES (?, ?)", i, strings.Repeat("x", size))
			}
			for {
				short(t, db, text)
				before := c.Stats()
				held := holdTwo(t, c, db, text)
				s := c.Stats()
				pipelined, alone := s.Pipelined-before.Pipelined, s.PipelineRepeats-before.PipelineRepeats
				require.Greater(t, held, int64(size))
				require.Less(t, held, tc.most)
				require.LessOrEqual(t, pipelined, tc.pipelined)
				require.Zero(t, s.BufferedBytes)
				if pipelined == 1 || tc.pipelined == 0 && alone == 1 { // else the machine was slow
					return
				}
			}
		})
	}
}

// short runs text, of one argument and a row of text, often enough to be known.
func short(t *testing.T, db *sql.DB, text string) {
	t.Helper()
	for range 30 {
		var b string
		require.NoError(t, db.QueryRowContext(t.Context(), text, 1).Scan(&b))
	}
}

// holdTwo opens the rows of two queries that have waited for the only connection, and returns the memory that both take
// before they are read.
func holdTwo(t *testing.T, c *pooldriver.Connector, db *sql.DB, text string) (held int64) {
	t.Helper()
	conn, open := busy(t, db), make(chan *sql.Rows, 2)
	for i := range 2 {
		go func() {
			rows, err := db.QueryContext(context.Background(), text, i)
			if err != nil {
				t.Error(err)
			}
			open <- rows
		}()
		waiting(t, c, i+1)
	}
	require.NoError(t, conn.Close())
	both := []*sql.Rows{<-open, <-open}
	held = c.Stats().BufferedBytes
	for _, rows := range both {
		require.NotNil(t, rows)
		require.True(t, rows.Next())
		require.False(t, rows.Next())
		require.NoError(t, rows.Err())
		require.NoError(t, rows.Close())
	}
	return held
}
