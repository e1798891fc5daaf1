package session

import (
	"context"
	"fmt"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
)

// This file prepares statements, and closes those that are kept.

// Prepare prepares the text of st, if that is not done yet, and keeps the statement. asked: the server was asked.
func (s *Session) Prepare(ctx context.Context, st *Statement) (asked bool, err error) {
	if yes, err := s.controls(st.Text); yes || err != nil {
		return true, err
	}
	asked, err = s.find(ctx, st)
	if err == nil {
		s.stmts.Done(st.prepared)
	}
	return asked, err
}

// find finds the prepared statement of st, or makes it. asked: the server was asked.
func (s *Session) find(ctx context.Context, st *Statement) (asked bool, err error) {
	if st.Owner != nil {
		if st.prepared = s.stmts.Owned(st.Owner); st.prepared != nil {
			return false, ctxerr.Of(ctx, ctx.Err())
		}
		st.prepared, err = s.prepareOwned(ctx, st.Text, st.Owner)
		return true, err
	}
	keep := st.Keep
	if s.ReadBySettings() {
		keep = false
		s.drop(st.Text) // the driver would find a kept statement
	}
	if st.prepared = s.kept(st.Text, st.Generation); st.prepared != nil {
		s.env.Hits.Add(1)
		if err = ctx.Err(); err != nil {
			s.stmts.Done(st.prepared)
			return false, ctxerr.Of(ctx, err)
		}
		return false, nil
	}
	s.env.Misses.Add(1)
	if s.traits.PreparingActs {
		s.RecordEffect(st.Effect)
	}
	st.prepared, err = s.prepare(ctx, st.Text, st.Generation, keep)
	return true, err
}

// kept returns the kept statement of a text, or nil if there is none that is valid in the
// given generation of the text.
func (s *Session) kept(text string, generation uint64) *stmtcache.Stmt {
	return s.stmts.Get(text, generation, s.currentSchema())
}

// prepareOwned prepares a text for a statement of the program's that owns what it prepares.
func (s *Session) prepareOwned(ctx context.Context, text string, owner *stmtcache.Owner) (*stmtcache.Stmt, error) {
	s.call()
	si, err := s.prepareText(ctx, text)
	s.returned()
	if err != nil {
		return nil, err
	}
	return s.stmts.Own(owner, si), nil
}

// Disown closes what a statement of the program's has prepared here.
func (s *Session) Disown(owner *stmtcache.Owner) error {
	s.running++
	err := s.stmts.Disown(owner)
	s.running--
	return err
}

// prepare prepares a text, and keeps the statement if keep is true.
func (s *Session) prepare(ctx context.Context, text string, generation uint64, keep bool) (*stmtcache.Stmt, error) {
	s.call()
	si, err := s.prepareText(ctx, text)
	if err != nil && s.env.Dialect.Diagnose(err)&dialects.TooManyPrepared != 0 {
		s.stmts.CloseAll()
		s.owner.StatementsExhausted()
		si, err = s.prepareText(ctx, text)
	}
	if err != nil {
		var again bool
		if again, err = s.recompiles(ctx, text, err); again {
			si, err = s.prepareText(ctx, text)
		}
	}
	s.returned()
	if err != nil {
		return nil, err
	}
	st := s.stmts.Add(text, generation, si, keep)
	st.SchemaGeneration = s.currentSchema()
	return st, nil
}

// recompiles reports whether a text has failed only because the connection did not know the present
// schema, and can be sent again. Otherwise the error is failed, perhaps with the reason.
func (s *Session) recompiles(ctx context.Context, text string, failed error) (again bool, _ error) {
	var why error
	complete := func() {
		if s.env.Dialect.Diagnose(failed)&dialects.UnknownName != 0 {
			why = s.owner.CompleteSettings(ctx)
		}
	}
	if r, ok := s.server.(dialects.Recompiler); !ok {
		complete()
	} else if r.Recompiles(ctx, text, failed, complete) {
		return true, nil
	}
	if why != nil {
		failed = fmt.Errorf("%w; pooldriver: the settings of the *sql.DB are not complete on this connection: %w", failed, why)
	}
	return false, failed
}

// currentSchema is the schema generation in a task's transaction, else 0.
func (s *Session) currentSchema() uint64 {
	if s.tx == nil || !s.inTask {
		return 0
	}
	return s.schemaGeneration
}

// Statements are the prepared statements that are kept.
func (s *Session) Statements() *stmtcache.Cache { return &s.stmts }

// ReturnStatements closes all kept statements, and then pings. MySQL does not answer when it
// closes a statement. But when it answers the ping, it has closed the statements.
func (s *Session) ReturnStatements(ctx context.Context) {
	if s.stmts.Len() == 0 {
		return
	}
	s.running++
	s.stmts.CloseAll()
	err := s.PingServer(ctx)
	s.running--
	if err != nil {
		s.MarkUnusable()
	}
}
