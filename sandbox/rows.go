package sandbox

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"io"

	"github.com/pooldriver/pooldriver/internal/driverconn"
)

// Read reads from the driver's rows of a statement.
func (s *statement) Read(read func() error) error {
	s.g.stage.mu.Lock()
	defer s.g.stage.mu.Unlock()
	if s.ended {
		return errRowsEnded
	}
	err := read()
	switch {
	case err == io.EOF && !driverconn.HasNextResultSet(s.rows):
		s.stopped = s.watch.end() // nothing runs on the session any more
		s.watch = nil
	case err != nil && err != io.EOF:
		s.err = err
		if ended := s.ctx.Err(); ended != nil {
			return ended
		}
	}
	return err
}

var errRowsEnded = errors.New("sandbox: the test has ended, and its rows were closed")

// Close closes the driver's rows. Their end is the statement's end.
func (s *statement) Close(how func() error) error {
	st := s.g.stage
	st.mu.Lock()
	defer st.mu.Unlock()
	if s.ended {
		return nil
	}
	delete(st.open, s)
	closed := how()
	if err := s.end(cmp.Or(s.err, closed)); err != nil && s.err == nil {
		return err
	}
	return closed
}

// closeRows closes the rows that the test has left open: until then nothing else can be executed on
// the connection. The server is asked to send no more of them.
func (st *stage) closeRows() {
	for s := range st.open {
		s.ended = true
		s.watch.end()
		ended, cancel := context.WithCancel(context.Background())
		w := st.watchOver(ended)
		cancel()
		_ = s.rows.Close()
		if w.end() {
			st.absorb()
		}
	}
	clear(st.open)
}

// noRows are the rows of a text that begins or ends a transaction.
type noRows struct{}

func (noRows) Columns() []string         { return nil }
func (noRows) Next([]driver.Value) error { return io.EOF }
func (noRows) Close() error              { return nil }
