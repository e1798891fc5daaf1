package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/postgres/internal/ahead"
)

var _ dialects.Pipeliner = (*session)(nil)

// QueryTogether implements dialects.Pipeliner.
func (s *session) QueryTogether(ctx context.Context, calls []dialects.PipelinedQuery, limits dialects.PipelineLimits, answer func(i int, rows driver.Rows, err error)) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case s.pg.IsClosed():
		return driver.ErrBadConn
	case !s.pipelined.admit(s.mostPipelined(), limits) || !s.isQuiet():
		return errors.ErrUnsupported
	}
	p := pipeline{session: s, calls: make([]pipelinedCall, len(calls)), limit: limits.Bytes}
	old := len(s.pipelined.closing)
	for i, call := range calls {
		if err := p.prepare(ctx, i, call); err != nil {
			return lost(ctx, err)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	defer s.breakWith(ctx)()
	p.Pipeline = s.pg.StartPipeline(context.Background())
	defer func() { _ = p.Close() }() // after an error, or a panic of answer, it ends the connection or reads the rest
	if err := p.send(calls, old); err != nil {
		return lost(ctx, err)
	}
	for i := range calls {
		rows, err := p.receive(i)
		if err != nil {
			return lost(ctx, err)
		}
		answer(i, rows, p.calls[i].err)
	}
	return nil
}

// isQuiet reports whether what is sent next belongs to no transaction, and nothing is sent ahead of it.
func (s *session) isQuiet() bool {
	return s.TxStatus() == dialects.TxNone && (s.ahead == nil || !s.ahead.Loaded())
}

// mostPipelined is how many statements pgx would keep; -1: a pipeline cannot do what pgx's QueryContext
// does. Where a tracer or a wrapper wants to see each query, where a hook wants to see each borrower, or where
// pgx may keep no statement, it cannot.
func (s *session) mostPipelined() int {
	if s.pipelined.pgx == 0 {
		s.pipelined.pgx = -1
		config := s.pgx.Config()
		if !s.resets && s.outer == driver.Conn(s.conn) && config.Tracer == nil && config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement && rowsField.Known() && connField.Known() {
			s.pipelined.pgx = config.StatementCacheCapacity
		}
	}
	return s.pipelined.pgx
}

// breakWith breaks the connection when ctx ends, as pgx does: what waits for the network then fails.
// stop is called when nothing waits any more.
func (s *session) breakWith(ctx context.Context) (stop func()) {
	broken := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		_ = s.pg.Conn().SetDeadline(time.Unix(1, 0))
		close(broken)
	})
	return func() {
		if cancel() {
			return
		}
		<-broken
		if !s.pg.IsClosed() { // all answers had come
			_ = s.pg.Conn().SetDeadline(time.Time{})
		}
	}
}

// pipeline is one call of QueryTogether.
type pipeline struct {
	*pgconn.Pipeline
	session *session
	calls   []pipelinedCall
	limit   int
}

// pipelinedCall is a query on its way.
type pipelinedCall struct {
	statement *pipelineStatement
	settings  []dialects.ContextSetting // that are sent in front of it, until their answer has come
	err       error                     // the answer; if it is known before the query is sent, the query is not sent
}

// lost is the error of QueryTogether: ctx's error, if ctx was the reason.
func lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// prepare prepares a call. The error is one that ends the pipeline.
func (p *pipeline) prepare(ctx context.Context, i int, call dialects.PipelinedQuery) error {
	to := &p.calls[i]
	if call.Text == "" || hasOption(call.Args) {
		to.err = dialects.ErrNotPipelined
		return nil
	}
	to.statement, to.err = p.session.pipelined.get(ctx, p.session.pg, call.Text)
	switch {
	case to.err != nil && (ctx.Err() != nil || !p.refused(to.err)):
		return to.err
	case to.err == nil && len(call.Args) != len(to.statement.ParamOIDs):
		to.err = dialects.ErrNotPipelined
	}
	return nil
}

// refused reports whether err is the server's answer to one statement, and the connection serves on.
func (p *pipeline) refused(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && !p.session.pg.IsClosed()
}

// hasOption reports whether the first argument is an option for pgx.
func hasOption(args []driver.NamedValue) bool {
	if len(args) == 0 {
		return false
	}
	switch args[0].Value.(type) {
	case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID, pgx.QueryRewriter:
		return true
	}
	return false
}

// send sends the calls, each with its Sync. In front of them it closes the first old statements of
// the session that are to be closed: the calls use none of these.
func (p *pipeline) send(calls []dialects.PipelinedQuery, old int) error {
	var arguments pgx.ExtendedQueryBuilder
	dropped := &p.session.pipelined
	for i, call := range calls {
		to := &p.calls[i]
		if to.err != nil {
			continue
		}
		if to.err = build(&arguments, p.session.pgx, to.statement, call.Args); to.err != nil {
			continue
		}
		for _, name := range dropped.closing[:old] {
			p.SendDeallocate(name)
		}
		dropped.closing, old = slices.Delete(dropped.closing, 0, old), 0
		if to.settings = call.Settings; len(to.settings) > 0 { // they end with the Sync
			text, values := ahead.SetsLocally(to.settings)
			p.SendQueryParams(text, values, nil, nil, nil)
		}
		p.SendQueryStatement(to.statement.StatementDescription, arguments.ParamValues, arguments.ParamFormats, to.statement.formats)
		p.SendPipelineSync()
	}
	return p.Flush()
}

// build encodes the arguments of a call, which are those of KeepArgument. A type that the program has registered
// with pgx may panic: it then panics again where the call is executed alone.
func build(arguments *pgx.ExtendedQueryBuilder, conn *pgx.Conn, statement *pipelineStatement, args []driver.NamedValue) (err error) {
	defer func() {
		if recover() != nil {
			err = dialects.ErrNotPipelined
		}
	}()
	values := make([]any, len(args))
	for i, arg := range args {
		var ok bool
		if values[i], ok = toEncode(conn.TypeMap(), statement.ParamOIDs[i], arg.Value); !ok {
			return dialects.ErrNotPipelined
		}
	}
	if arguments.Build(conn.TypeMap(), statement.StatementDescription, values) != nil {
		return dialects.ErrNotPipelined // the driver's own error is that of the call alone
	}
	return nil
}

// receive reads the answer to a call, up to its ReadyForQuery. The error is one that ends the
// pipeline. As in pgx, an error before the first row is the answer, a later one comes behind the
// rows, and a statement that has failed is prepared anew.
func (p *pipeline) receive(i int) (driver.Rows, error) {
	to := &p.calls[i]
	if to.err != nil {
		return nil, nil
	}
	var rows *memoryRows
	for {
		results, err := p.GetResults()
		switch r := results.(type) {
		case *pgconn.CloseComplete:
			continue
		case *pgconn.ResultReader:
			if len(to.settings) > 0 {
				_, err = r.Close()
				break
			}
			rows, err = p.read(r, to)
		case *pgconn.PipelineSync:
			return p.finish(to, rows), nil
		}
		switch {
		case err == nil && results == nil:
			return nil, errors.New("postgres: the server has left out an answer")
		case err != nil && !p.refused(err):
			return nil, err
		case to.err == nil && err != nil && len(to.settings) > 0:
			to.err = refusal(err, ahead.Names(to.settings))
		case to.err == nil:
			to.err = err
		}
		to.settings = nil
	}
}

// read reads the rows of a result. The error is the server's or the network's.
func (p *pipeline) read(from *pgconn.ResultReader, to *pipelinedCall) (*memoryRows, error) {
	rows := &memoryRows{types: p.session.pgx.TypeMap(), fields: slices.Clone(from.FieldDescriptions())}
	for from.NextRow() {
		if to.err != nil {
			continue
		}
		if rows.add(from.Values()); rows.size() > p.limit {
			rows, to.err = nil, dialects.ErrTooLarge
		}
	}
	_, err := from.Close()
	return rows, err
}

// finish makes the answer of a call whose ReadyForQuery has come.
func (p *pipeline) finish(to *pipelinedCall, rows *memoryRows) driver.Rows {
	switch {
	case to.err == nil:
		return p.session.overMemory(rows)
	case to.err == dialects.ErrTooLarge:
		return nil
	}
	p.session.pipelined.drop(to.statement)
	if rows == nil || rows.left == 0 {
		return nil
	}
	rows.end, to.err = to.err, nil
	return p.session.overMemory(rows)
}

var _ dialects.WriteAsker = (*session)(nil)

// AskWrites implements dialects.WriteAsker. A wrapped connection cannot ask. The first question of a session is one by
// itself: a server that does not know the function would fail the program's query with it.
func (s *session) AskWrites(ctx context.Context, told func(wrote bool)) {
	alone := s.TxStatus() == dialects.TxNone // perhaps with settings, which go ahead
	if s.asks == unknownYet && s.ahead != nil && alone {
		err := s.simple(ctx, ahead.AsksForID)
		switch _, refused := errors.AsType[*pgconn.PgError](err); {
		case err == nil:
			s.asks = asksForID
		case refused:
			s.asks = asksNothing
		}
	}
	switch {
	case s.ahead == nil || s.asks == asksNothing:
		told(false)
	case s.asks == asksForID && alone:
		s.ahead.Ask(told)
	}
}

// DropQuestion implements dialects.WriteAsker.
func (s *session) DropQuestion() {
	if s.ahead != nil {
		s.ahead.DropQuestion()
	}
}

var errTrial = errors.New("postgres: queries that are sent together are not answered as they should be")

// Trial implements dialects.Pipeliner. A proxy may have lost the order of answers, so each has its
// own value.
func (s *session) Trial(ctx context.Context) error {
	if !s.pg.IsClosed() && !s.isQuiet() {
		return dialects.ErrNotPipelined
	}
	calls := make([]dialects.PipelinedQuery, 3)
	for i := range calls {
		calls[i] = dialects.PipelinedQuery{Text: fmt.Sprintf("SELECT %d", i+1)}
	}
	var wrong error
	limits := dialects.PipelineLimits{Bytes: 1 << 10, Statements: len(calls), Generation: s.pipelined.generation}
	err := s.QueryTogether(ctx, calls, limits, func(i int, rows driver.Rows, err error) {
		value := make([]driver.Value, 1)
		switch {
		case err != nil:
			wrong = err
		case rows.Next(value) != nil || value[0] != int64(i+1):
			wrong = errTrial
		}
	})
	if err != nil {
		return err
	}
	return wrong
}
