package pooldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/fakedb"
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
				c := Wrap(fakedb.NullConnector{}, func(c *Config) { c.NestedBuffer = limit })
				require.NoError(t, c.err)
				open := func() *rows {
					return rowsOf(c, &script{sets: sets, last: last}, nil)
				}
				want := dictation(open())
				for readAhead := range 3 {
					r := open()
					for range readAhead {
						require.True(t, r.owner.TryLock())
						err := r.owner.ReadAhead(t.Context())
						r.owner.Unlock()
						if err == nil {
							break
						}
					}
					require.Equal(t, want, dictation(r), "read ahead %d times", readAhead)
					require.Zero(t, c.report.Buffered.Load())
				}
			})
		}
	}
}

// rowsOf are virtual rows of the driver's.
func rowsOf(c *Connector, real driver.Rows, columns []string) *rows {
	v := newConn(context.Background(), &c.core)
	op := operation{real: realOf(c.pool.NewConn(nowhere{}, 0)), opened: real, columns: columns}
	op.real.holder.Store(&v.private)
	v.real, v.bound = op.real, &v.private
	return v.openRows(&op)
}

// nowhere is a session that leads to no server.
type nowhere struct{ dialects.Session }

func (nowhere) Conn() driver.Conn           { return nil }
func (nowhere) Sent() (uint64, bool)        { return 0, false }
func (nowhere) TxStatus() dialects.TxStatus { return dialects.TxUnknown }

func TestRowsThatAreClosedWhileTheyAreReadAheadLeaveNothingInMemory(t *testing.T) {
	server, db, c := openTasks(t, 1)
	require.NoError(t, InTx(t.Context(), db, nil, func(ctx context.Context, _ *sql.Tx) error {
		rows, err := db.QueryContext(ctx, "SELECT n FROM numbers LIMIT 5")
		require.NoError(t, err)
		gate := server.Block(fakedb.RowsNext)
		nested, closed := make(chan error, 1), make(chan error, 1)
		go func() { nested <- insertTwo(ctx, db) }()
		<-gate.Entered()
		reader := realOf(c.pool.Conns()[0])
		go func() { closed <- rows.Close() }()
		require.Eventually(t, func() bool { return reader.Contended() }, 5*time.Second, time.Millisecond)
		gate.Open()
		require.NoError(t, <-closed)
		return <-nested
	}))
	require.Zero(t, c.Stats().BufferedBytes)
}
