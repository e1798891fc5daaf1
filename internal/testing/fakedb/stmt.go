package fakedb

import (
	"context"
	"database/sql/driver"
	"fmt"
)

// stmt is a prepared statement with every optional interface.
type stmt struct {
	conn   *conn
	parsed *parsed
	closed bool // guarded by the connection's single user
}

var (
	_ driver.StmtExecContext   = (*stmt)(nil)
	_ driver.StmtQueryContext  = (*stmt)(nil)
	_ driver.NamedValueChecker = (*stmt)(nil)
	_ driver.ColumnConverter   = (*stmt)(nil) //nolint:staticcheck // Deprecated, and drivers with it exist.
)

func (s *stmt) server() *Server { return s.conn.session.server }

// Close forgets the statement. It is allowed on a connection whose session is
// gone, and may come after the connection's own Close.
func (s *stmt) Close() error {
	if !s.conn.closed.Load() {
		defer s.conn.use(StmtClose)()
	}
	after, err := s.server().enter(context.Background(), s.conn.session, StmtClose, s.parsed.text, nil)
	if s.closed {
		s.server().violation("statement closed twice: %s", s.parsed.text)
	}
	s.closed = true
	s.server().mu.Lock()
	delete(s.conn.session.prepared, s)
	s.server().changedLocked()
	s.server().mu.Unlock()
	return s.server().finish(after, s.conn.session.id, err)
}

func (s *stmt) NumInput() int {
	if s.closed {
		s.server().violation("NumInput of a closed statement: %s", s.parsed.text)
	}
	if s.conn.variant.Quirks&UnknownNumInput != 0 {
		return -1
	}
	return s.parsed.inputs
}

func (s *stmt) Exec(args []driver.Value) (driver.Result, error) {
	return s.exec(context.Background(), StmtExec, positional(args))
}

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.exec(ctx, StmtExecCtx, args)
}

func (s *stmt) Query(args []driver.Value) (driver.Rows, error) {
	return s.query(context.Background(), StmtQuery, positional(args))
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.query(ctx, StmtQueryCtx, args)
}

func (s *stmt) exec(ctx context.Context, call Call, args []driver.NamedValue) (res driver.Result, err error) {
	err = s.call(ctx, call, args, func() error {
		res, err = s.conn.exec(ctx, s.parsed, args)
		return err
	})
	return res, err
}

func (s *stmt) query(ctx context.Context, call Call, args []driver.NamedValue) (rows driver.Rows, err error) {
	err = s.call(ctx, call, args, func() error {
		rows, err = s.conn.query(ctx, s.parsed, args)
		return err
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

func (s *stmt) call(ctx context.Context, call Call, args []driver.NamedValue, do func() error) error {
	if s.closed {
		s.server().violation("%s on a closed statement: %s", call, s.parsed.text)
	}
	return s.conn.call(ctx, call, s.parsed.text, args, func() error {
		if s.parsed.inputs != len(args) {
			return fmt.Errorf("fakedb: the statement takes %d arguments, not %d", s.parsed.inputs, len(args))
		}
		return do()
	})
}

func (s *stmt) CheckNamedValue(nv *driver.NamedValue) error {
	return s.conn.check(StmtCheck, "stmt", nv)
}

// ColumnConverter answers for the columns of an INSERT, and with the default
// for all other arguments.
func (s *stmt) ColumnConverter(index int) driver.ValueConverter {
	// The log is for the order of calls; a fault here could not be answered.
	_, _ = s.server().enter(context.Background(), s.conn.session, StmtConvert, s.parsed.text, nil)
	s.server().mu.Lock()
	defer s.server().mu.Unlock()
	if first := s.parsed.statements[0]; first.verb == "insert" {
		if t, err := s.conn.session.tableLocked(first.name); err == nil && index < len(t.columns) {
			return t.columns[index].converter()
		}
	}
	return driver.DefaultParameterConverter
}
