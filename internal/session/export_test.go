package session

import (
	"context"
	"database/sql/driver"

	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
)

// The steps of Run, for tests of one step.

func (s *Session) Kept(text string, generation uint64) *stmtcache.Stmt {
	return s.kept(text, generation)
}

func (s *Session) PrepareText(ctx context.Context, text string, generation uint64, keep bool) (*stmtcache.Stmt, error) {
	return s.prepare(ctx, text, generation, keep)
}

func (s *Session) Drop(text string) { s.drop(text) }

func (s *Session) DropStale(text string, generation uint64) {
	s.dropBefore(text, generation)
}

func (s *Session) CanExec() bool { return s.conn.CanExec() }

func (s *Session) CanQuery() bool { return s.conn.CanQuery() }

func (s *Session) TakesArgsAsGiven(args []driver.NamedValue) bool { return s.takesArgsAsGiven(args) }

func (s *Session) Fits(st *Statement) bool { return s.fits(st) }

func (s *Session) MayRenew(st *Statement) bool { return s.mayRenew(st) }

func (s *Session) Convert(st *Statement, fatal bool) error {
	st.Fatal = fatal
	err := s.convert(st)
	return err
}

func (s *Session) ConverterFor(p *stmtcache.Stmt) *driverconn.Converter { return s.converterFor(p) }

func (s *Session) Exec(ctx context.Context, st *Statement) (driver.Result, error) {
	err := s.send(ctx, st)
	return st.Result, err
}

func (s *Session) Query(ctx context.Context, st *Statement) (driver.Rows, []string, error) {
	st.Queries = true
	err := s.send(ctx, st)
	return st.Rows, st.Columns, err
}

func (st *Statement) Prepared() *stmtcache.Stmt { return st.prepared }

func (st *Statement) SetPrepared(p *stmtcache.Stmt) { st.prepared = p }
