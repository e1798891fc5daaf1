package session

import (
	"context"
	"database/sql/driver"
	"errors"
	"math"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/rowbuffer"
)

// Queries of several borrowers in one pipeline. Each of them only reads, and has no transaction.

// largeAnswer is the size of an answer, in bytes, above which its text is in no pipeline for a while.
const largeAnswer = 64 << 10

// Answer is what a query of a pipeline has given.
type Answer struct {
	Err     error
	Alone   bool   // it has to be executed alone: the pipeline cannot know its result
	Era     uint64 // of the connection, see connpool.Conn
	Large   bool   // the result is too large for a pipeline, perhaps so large that it is not here, or this text cannot be pipelined
	buffer  *rowbuffer.Buffer
	scanner driverconn.ColumnScanner
}

// CanPipeline reports whether the session may send several queries before it reads the first answer, and may
// keep a statement for that. Whoever asks is its only user.
func (s *Session) CanPipeline() bool {
	_, ok := s.server.(dialects.Pipeliner)
	return ok && s.guard == nil && s.env.StmtCache > s.stmts.Len() && s.env.NestedBuffer > 0
}

// HasPipelined reports whether text is prepared for pipelines. CanPipeline has said yes, and nobody else uses
// the session.
func (s *Session) HasPipelined(text string) bool {
	return s.server.(dialects.Pipeliner).HasPipelined(text, s.stmts.Generation())
}

// TryPipeline tries whether pipelines are answered on the way to the server. After an error the session is unusable.
func (s *Session) TryPipeline(ctx context.Context) error {
	s.call()
	err := s.server.(dialects.Pipeliner).Trial(ctx)
	s.returned()
	if err != nil && err != errors.ErrUnsupported && err != dialects.ErrNotPipelined {
		s.MarkUnusable()
	}
	return err
}

// ask has the next statement of the driver tell st whether it has written. drop follows.
func (s *Session) ask(ctx context.Context, st *Statement) (drop func()) {
	asker, ok := s.server.(dialects.WriteAsker)
	if !ok {
		st.Wrote(false)
		return func() {}
	}
	asker.AskWrites(ctx, st.Wrote)
	return asker.DropQuestion
}

// Together sends queries in one pipeline, and calls answered for each in their order. After an error
// nothing is known of those that have no answer. limit bounds the bytes of one result. Whom OweTo was called for has a position
// afterwards.
func (s *Session) Together(ctx context.Context, calls []dialects.PipelinedQuery, limit int, answered func(i int, a Answer)) error {
	p := s.server.(dialects.Pipeliner)
	if s.HasSettings() {
		if _, err := s.UseSettings(ctx, nil, ToPrepare); err != nil {
			return err
		}
	}
	limits := dialects.PipelineLimits{Bytes: limit, Statements: s.env.StmtCache - s.stmts.Len(), Generation: s.stmts.Generation()}
	filled := context.WithoutCancel(ctx) // an answer that has come is read whatever happens
	s.call()
	err := p.QueryTogether(ctx, calls, limits, func(i int, real driver.Rows, err error) {
		answered(i, s.answerOf(filled, real, err))
	})
	s.returned()
	if err != nil && err != errors.ErrUnsupported {
		s.Diagnose(err)
		s.MarkUnusable()
	}
	s.settle()
	return err
}

func (s *Session) answerOf(ctx context.Context, real driver.Rows, err error) Answer {
	switch {
	case err == dialects.ErrTooLarge || err == dialects.ErrNotPipelined:
		return Answer{Alone: true, Large: true}
	case err != nil:
		return Answer{Err: err, Alone: s.Diagnose(err)&(dialects.StaleStatement|dialects.SessionEnded|dialects.WasIdle|dialects.ServerLeaving) != 0}
	}
	r := &Rows{session: s, real: real, live: true, scanner: driverconn.ColumnScannerOf(real), prefix: rowbuffer.New(s.env.Buffered)}
	r.capture()
	if err := r.fill(ctx, limits{step: math.MaxInt64, total: s.env.NestedBufferOthers}); err != nil {
		r.prefix.Drop()
		return Answer{Alone: true, Large: true}
	}
	r.prefix.SetClosed(real.Close())
	return Answer{Large: r.prefix.Bytes() > largeAnswer, buffer: r.prefix, scanner: r.scanner}
}

// Answered makes r, which is new, the rows of an answer. They are in memory.
func (r *Rows) Answered(a *Answer) {
	r.usage, r.scanner = detached, a.scanner
	r.ahead.Store(a.buffer)
}

// Drop frees the account of an answer that nobody wants.
func (a Answer) Drop() {
	if a.buffer != nil {
		a.buffer.Drop()
	}
}
