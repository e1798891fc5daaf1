package pgxpooldriver

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pooldriver/pooldriver/internal/direct"
)

// The results of a batch are one stream: for each query a head, its rows, and an end. So they are rows for everybody
// who needs their session, and can be read into memory.

// head begins the result of one query. The first row is with it, and if there is no other one, the end: so most results
// are read at once.
type head struct {
	fields []pgconn.FieldDescription // nil in batchSource.head
	hasRow bool
	read   bool // the row is in row, else the decoder has it
	row    [][]byte
	end    *end // nil: rows or an end follow
}

// end ends it. err is nil in the stream, which ends with an error.
type end struct {
	tag pgconn.CommandTag
	err error
}

// batch are pgx.BatchResults.
type batch struct {
	stream
	queries []*pgx.QueuedQuery
	source  batchSource

	at     int    // how many queries have begun
	now    *rows  // the rows of the present query; nil: none are open
	spare  []rows // for the next queries
	first  head   // the description of the present query, until its rows take it
	result *end   // how the present query has ended; nil: it has not
	err    error  // why the batch as a whole has failed
	closed bool
}

// mostSpare bounds spare: a program that keeps one of these rows keeps the memory of all.
const mostSpare = 16

var (
	errBatchBegins = errors.New("pgxpooldriver: a batch that begins a transaction (Batch.BeginTx) would begin one that nobody else knows of: call Begin or BeginTx, and SendBatch of the transaction")
	errBatchClosed = errors.New("batch already closed")
	errNoMore      = errors.New("no more results in batch")
	errBatchUnkept = errors.New("pgxpooldriver: a batch cannot be sent here, because a setting of its context or session (the time zone) decides how the server reads texts, and pgx keeps the statements of a batch: execute the statements one by one, or use a connector with default_query_exec_mode=exec")
)

// sendBatch sends a batch of a Conn or transaction.
func (l *link) sendBatch(ctx context.Context, h handle, b *pgx.Batch) pgx.BatchResults {
	r, err := l.newBatch(ctx, h, b, false)
	if err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return r
}

// newBatch sends a batch. owns: the link ends with its results.
func (l *link) newBatch(ctx context.Context, h handle, b *pgx.Batch, owns bool) (*batch, error) {
	if pgx.FailedBatchResults(b, errBatchBegins).Tx() != nil {
		return nil, errBatchBegins
	}
	r := &batch{stream: stream{link: l, ctx: ctx, owns: owns}, queries: b.QueuedQueries}
	r.source.owner = r
	if len(r.queries) == 0 {
		_, err := l.raw(h)
		return r, err
	}
	call, err := r.prepare(ctx)
	if err != nil {
		return nil, err
	}
	if r.driverRows, err = l.execute(ctx, h, call); err != nil {
		return nil, err
	}
	if !owns {
		if err := l.open(h, r); err != nil {
			r.leave()
			return nil, err
		}
	}
	return r, nil
}

// prepare makes the batch that pgx gets. It has none of the program's functions: they are called when their results are
// asked for.
func (r *batch) prepare(ctx context.Context) (direct.Call, error) {
	call := direct.Call{ReturnsRows: true, Sender: &r.source}
	items := make([]pgx.QueuedQuery, len(r.queries))
	inner := make([]*pgx.QueuedQuery, len(items))
	texts := make([]string, len(items))
	for i, q := range r.queries {
		text, args, effect, err := rewrite(ctx, q.SQL, q.Arguments)
		if err != nil {
			return call, err
		}
		items[i] = pgx.QueuedQuery{SQL: text, Arguments: args}
		inner[i], texts[i] = &items[i], text
		call.Effect |= effect
	}
	r.source.batch.QueuedQueries = inner
	call.Text, call.MoreTexts = texts[0], texts[1:]
	return call, nil
}

// leave implements inner.
func (r *batch) leave() { r.stream.leave(r) }

func (r *batch) kept() { r.keep(r) }

// begin goes to the result of the next query.
func (r *batch) begin() error {
	switch {
	case r.err != nil:
		return r.err
	case r.isLeft():
		return r.fail(errLeft)
	case r.closed:
		return errBatchClosed
	}
	if r.now != nil {
		r.now.Close()
		r.now = nil
	}
	if r.err != nil {
		return r.err
	}
	if r.at == len(r.queries) {
		return errNoMore
	}
	r.at++
	r.first, r.result = head{}, nil
	event, err := r.read(&r.source)
	if err != nil {
		return r.fail(err)
	}
	if h, ok := event.(*head); ok {
		if r.first = *h; h != &r.source.head {
			r.source.decoder.describe(h.fields)
		}
		if !h.hasRow {
			r.result = h.end
		}
	}
	return nil
}

func (r *batch) fail(err error) error {
	if err == io.EOF {
		err = errNoMore
	}
	if r.err == nil {
		r.err = err
	}
	return err
}

// next implements feed, for the rows of the present query.
func (r *batch) next() ([][]byte, error) {
	if r.first.hasRow {
		r.first.hasRow = false
		if r.first.read {
			return r.first.row, nil
		}
		return r.source.decoder.values, nil
	}
	if r.result == nil {
		r.result = r.first.end
	}
	if r.result != nil {
		return nil, cmp.Or(r.result.err, io.EOF)
	}
	event, err := r.read(&r.source)
	if err != nil {
		r.result = &end{err: r.fail(err)}
		return nil, r.result.err
	}
	switch event := event.(type) {
	case [][]byte: // from memory
		return event, nil
	case *end:
		r.result = event
		return nil, io.EOF
	}
	return r.source.decoder.values, nil
}

// finish implements feed.
func (r *batch) finish() (pgconn.CommandTag, error) {
	for r.result == nil {
		_, _ = r.next()
	}
	return r.result.tag, r.result.err
}

// Exec reads the result of the next query.
func (r *batch) Exec() (pgconn.CommandTag, error) {
	if err := r.begin(); err != nil {
		return pgconn.CommandTag{}, err
	}
	return r.finish()
}

// Query reads the rows of the next query.
func (r *batch) Query() (pgx.Rows, error) {
	if err := r.begin(); err != nil {
		return failedRows(err), err
	}
	if len(r.spare) == 0 {
		r.spare = make([]rows, min(1+len(r.queries)-r.at, mostSpare))
	}
	r.now, r.spare = &r.spare[0], r.spare[1:]
	*r.now = rows{feed: r, decoder: r.source.decoder}
	return r.now, nil
}

// QueryRow reads the row of the next query.
func (r *batch) QueryRow() pgx.Row {
	of, _ := r.Query()
	return (*row)(of.(*rows))
}

// Close reads the further results, and calls the functions of their queries.
func (r *batch) Close() error {
	if r.closed {
		return r.err
	}
	defer r.end()   // also if a function panics
	if r.isLeft() { // then none is called
		_ = r.fail(errLeft)
	}
	for r.err == nil && !r.closed && r.at < len(r.queries) {
		if fn := r.queries[r.at].Fn; fn != nil {
			at := r.at
			if err := fn(r); err != nil && r.err == nil {
				r.err = err
			}
			if r.at == at { // it has read nothing
				_, _ = r.Exec()
			}
		} else {
			_, _ = r.Exec()
		}
	}
	r.end()
	return r.err
}

func (r *batch) end() {
	if r.closed {
		return
	}
	r.closed = true
	if r.now != nil {
		r.now.Close()
	}
	if r.source.decoder != nil {
		r.err = cmp.Or(r.err, r.stream.finish())
		r.source.decoder.giveBack()
	}
	r.link.end(r, r.owns)
}

// Tx is nil: see errBatchBegins.
func (r *batch) Tx() pgx.Tx { return nil }

// batchSource sends a batch, and reads its results from pgx. It is used under the session's lock, as source is.
type batchSource struct {
	owner   keeper
	batch   pgx.Batch
	results pgx.BatchResults
	decoder *decoder
	rows    pgx.Rows // of the present query; nil: none are open
	left    int      // queries without an answer
	headed  bool     // the head of rows was given
	onRow   bool     // rows is at a row that was not given yet
	head    head     // of rows, if the decoder has its columns and row
	end     end      // how the query has ended, if head is set
	failed  error
}

// Send implements direct.Sender. The first result begins at once: so an error before that, as of a connection that is
// gone, is that of the batch.
func (s *batchSource) Send(ctx context.Context, dc driver.Conn, opts direct.SendOptions) (driver.Rows, error) {
	c, err := pgxOf(dc)
	if err != nil {
		return nil, err
	}
	if opts.Unkept && sideOf(c).mode == pgx.QueryExecModeCacheStatement {
		return nil, errBatchUnkept
	}
	*s = batchSource{owner: s.owner, batch: s.batch} // nothing of an earlier try
	for _, q := range s.batch.QueuedQueries {        // in these pgx remembers the statements of a connection
		*q = pgx.QueuedQuery{SQL: q.SQL, Arguments: q.Arguments}
	}
	s.results, s.left = c.SendBatch(ctx, &s.batch), len(s.batch.QueuedQueries)
	if s.rows, err = s.results.Query(); err != nil {
		_ = s.results.Close()
		return nil, err
	}
	s.left--
	s.decoder = takeDecoder(c)
	return s, nil
}

// Kept implements direct.Kept.
func (s *batchSource) Kept() { s.owner.kept() }

// Columns implements driver.Rows.
func (s *batchSource) Columns() []string { return column }

// Next implements driver.Rows.
func (s *batchSource) Next(dest []driver.Value) (err error) {
	dest[0], err = s.event(dest[0])
	return err
}

// event returns the next event. owner is s if the decoder is to hold a row.
func (s *batchSource) event(owner driver.Value) (driver.Value, error) {
	switch {
	case s.failed != nil:
		return nil, s.failed
	case s.rows == nil && s.left == 0:
		return nil, io.EOF
	case s.rows == nil:
		s.left--
		if s.rows, s.failed = s.results.Query(); s.failed != nil {
			return nil, s.failed
		}
		fallthrough
	case !s.headed:
		return s.begin(owner), nil
	}
	if !s.onRow && !s.rows.Next() {
		return s.finish(new(end)), s.failed
	}
	s.onRow = false
	return s.row(owner), nil
}

// begin returns the head of rows. If it is s.head, the decoder has the columns: pgx uses their memory again when anybody
// reads on. Nothing of s.head is used after the owner's next event.
func (s *batchSource) begin(owner driver.Value) *head {
	s.headed = true
	fields := s.rows.FieldDescriptions()
	h, e := &s.head, &s.end
	if owner == driver.Value(s) {
		*h = head{}
		s.decoder.describe(fields)
	} else {
		h, e = &head{fields: slices.Clone(fields)}, new(end)
	}
	if h.hasRow = s.rows.Next(); h.hasRow {
		h.row, h.read = s.row(owner).([][]byte)
		s.onRow = s.rows.Next()
	}
	if !s.onRow {
		h.end = s.finish(e)
	}
	return h
}

// row returns the present row, or owner if the decoder has it.
func (s *batchSource) row(owner driver.Value) driver.Value {
	if owner == driver.Value(s) {
		s.decoder.hold(s.rows.RawValues())
		return owner
	}
	return cloned(s.rows.RawValues())
}

// finish ends rows, and writes how to e; nil: they have failed, and the next event is the error.
func (s *batchSource) finish(e *end) *end {
	*e, s.failed = end{tag: s.rows.CommandTag()}, s.rows.Err()
	s.rows, s.headed = nil, false
	if s.failed != nil {
		return nil
	}
	return e
}

// Close implements driver.Rows.
func (s *batchSource) Close() error {
	if s.rows != nil {
		s.rows.Close()
		s.rows = nil
	}
	return s.results.Close()
}
