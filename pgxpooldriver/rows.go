package pgxpooldriver

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/direct"
)

// rows are pgx.Rows. Their values come from the session or, if others have needed the session, from memory.
type rows struct {
	feed    feed
	decoder *decoder // nil: there is no result
	values  [][]byte // the values of the present row
	tag     pgconn.CommandTag
	err     error
	closed  bool
}

// feed is where rows come from.
type feed interface {
	// next returns the next row, or io.EOF.
	next() ([][]byte, error)
	// finish drops the further rows.
	finish() (pgconn.CommandTag, error)
	// isLeft reports whether the Conn was released, or the transaction has ended, maybe in another goroutine.
	isLeft() bool
}

var _ pgx.Rows = (*rows)(nil)

func failedRows(err error) *rows { return &rows{err: err, closed: true} }

// Close closes the rows.
func (r *rows) Close() {
	if r.closed {
		return
	}
	r.closed, r.values = true, nil
	tag, err := r.feed.finish()
	r.tag = tag
	if r.err == nil {
		r.err = err
	}
	r.feed = nil
}

// Err is the error with which the rows have ended.
func (r *rows) Err() error {
	if !r.closed && r.feed.isLeft() {
		return cmp.Or(r.err, errLeft)
	}
	return r.err
}

// CommandTag is known when the rows are closed.
func (r *rows) CommandTag() pgconn.CommandTag { return r.tag }

// FieldDescriptions are the columns.
func (r *rows) FieldDescriptions() []pgconn.FieldDescription {
	if r.decoder == nil {
		return nil
	}
	return r.decoder.fields
}

// Next goes to the next row.
func (r *rows) Next() bool {
	if r.closed {
		return false
	}
	if r.feed.isLeft() { // some rows of a batch are in memory
		_ = r.fatal(errLeft)
		return false
	}
	values, err := r.feed.next()
	if err == nil {
		r.values = values
		return true
	}
	if err != io.EOF {
		r.err = err
	}
	r.Close()
	return false
}

func (r *rows) fatal(err error) error {
	if r.err == nil {
		r.err = err
	}
	r.Close()
	return err
}

// Scan does what pgx does.
func (r *rows) Scan(dest ...any) error {
	if r.closed {
		if r.err != nil {
			return r.err
		}
		return errors.New("rows is closed")
	}
	if r.feed.isLeft() {
		return r.fatal(errLeft)
	}
	fields, d := r.FieldDescriptions(), r.decoder
	if len(fields) != len(r.values) {
		return r.fatal(fmt.Errorf("number of field descriptions must equal number of values, got %d and %d", len(fields), len(r.values)))
	}
	if len(dest) == 1 {
		if whole, ok := dest[0].(pgx.RowScanner); ok {
			err := whole.ScanRow(r)
			if err != nil {
				return r.fatal(err)
			}
			return nil
		}
	}
	if len(fields) != len(dest) {
		return r.fatal(fmt.Errorf("number of field descriptions must equal number of destinations, got %d and %d", len(fields), len(dest)))
	}
	if len(d.plans) != len(dest) {
		d.plans = append(d.plans[:0], make([]pgtype.ScanPlan, len(dest))...)
		d.dests = append(d.dests[:0], make([]reflect.Type, len(dest))...)
	}
	for i, to := range dest {
		if to == nil {
			continue
		}
		if t := reflect.TypeOf(to); d.dests[i] != t {
			d.plans[i], d.dests[i] = d.types.PlanScan(fields[i].DataTypeOID, fields[i].Format, to), t
		}
		if err := d.plans[i].Scan(r.values[i], to); err != nil {
			return r.fatal(pgx.ScanArgError{ColumnIndex: i, FieldName: fields[i].Name, Err: err})
		}
	}
	return nil
}

// Values are the decoded values of the row.
func (r *rows) Values() ([]any, error) {
	if r.closed {
		return nil, errors.New("rows is closed")
	}
	if r.feed.isLeft() {
		return nil, r.fatal(errLeft)
	}
	fields := r.FieldDescriptions()
	values := make([]any, 0, len(fields))
	for i, raw := range r.values {
		v, err := decode(r.decoder.types, &fields[i], raw)
		if err != nil {
			return nil, r.fatal(err)
		}
		values = append(values, v)
	}
	return values, nil
}

func decode(types *pgtype.Map, f *pgconn.FieldDescription, raw []byte) (any, error) {
	if raw == nil {
		return nil, nil
	}
	if t, ok := types.TypeForOID(f.DataTypeOID); ok {
		return t.Codec.DecodeValue(types, f.DataTypeOID, f.Format, raw)
	}
	switch f.Format {
	case pgx.TextFormatCode:
		return string(raw), nil
	case pgx.BinaryFormatCode:
		return append([]byte{}, raw...), nil
	}
	return nil, errors.New("unknown format code")
}

// RawValues are the bytes of the row, until the next call of Next or Close.
func (r *rows) RawValues() [][]byte {
	if !r.closed && r.feed.isLeft() {
		return nil
	}
	return r.values
}

// Conn is nil: the rows may be in memory, and their connection may have another user.
func (r *rows) Conn() *pgx.Conn { return nil }

// TypeMap has the types with which the rows are decoded.
func (r *rows) TypeMap() *pgtype.Map {
	if r.decoder == nil {
		return nil
	}
	return r.decoder.types
}

// row is a pgx.Row.
type row rows

// Scan does what pgx does.
func (r *row) Scan(dest ...any) error {
	rows := (*rows)(r)
	defer rows.Close() // also if code of the program panics
	if rows.err != nil {
		return rows.err
	}
	for _, to := range dest {
		if _, ok := to.(*pgtype.DriverBytes); ok {
			return errors.New("cannot scan into *pgtype.DriverBytes from QueryRow")
		}
	}
	if !rows.Next() {
		if rows.err != nil {
			return rows.err
		}
		return pgx.ErrNoRows
	}
	_ = rows.Scan(dest...)
	rows.Close()
	return rows.err
}

// query is a query, with its rows.
type query struct {
	rows
	stream
	source source
}

// stream are the virtual rows of a query or a batch.
type stream struct {
	link       *link
	ctx        context.Context // the context of the query
	owns       bool            // the link ends with them
	driverRows driver.Rows     // nil: they are closed
	dest       [1]driver.Value

	unlink func() bool // ends the wait for the end of ctx; nil: nobody waits
	lost   error       // why others have closed driverRows
	left   atomic.Bool // the Conn or transaction has ended. The rows' goroutine may be in the middle of a row: it learns so by its next call.
}

// keep is called under the session's lock when all rows are in memory, if they are not closed. A program may forget to close
// them, so they end with their context, as those of database/sql do.
func (s *stream) keep(in inner) { s.unlink = context.AfterFunc(s.ctx, func() { s.drop(in) }) }

// drop closes rows whose context has ended, beside their owner.
func (s *stream) drop(in inner) {
	dropped, owns := s.abandon(ctxerr.WhatEnded(s.ctx))
	switch {
	case !dropped: // else another call may have the link by now
	case owns:
		s.link.discard() // the owner of the rows still has it
	default:
		s.link.end(in, false)
	}
}

// leave closes rows whose Conn or transaction has ended, beside their owner, who may be another goroutine: what that
// reads by (the decoder, the present row) stays its own.
func (s *stream) leave(in inner) {
	s.left.Store(true)
	s.abandon(errLeft)
	s.link.end(in, false)
}

// abandon closes the driver's rows, if they are open. Their owner gets why.
func (s *stream) abandon(why error) (open, owns bool) {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	if s.driverRows == nil {
		return false, false
	}
	_ = s.closeLocked()
	owns = s.owns
	s.owns, s.lost = false, why
	return true, owns
}

// closeLocked closes the driver's rows. The caller has the link's lock.
func (s *stream) closeLocked() error {
	err := s.driverRows.Close()
	s.driverRows = nil
	if s.unlink != nil { // it was written before others let Close see that the rows are in memory
		s.unlink()
	}
	return err
}

func (s *stream) isLeft() bool { return s.left.Load() }

// read returns the next value; own if the decoder has the row.
func (s *stream) read(own driver.Value) (driver.Value, error) {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	if s.driverRows == nil {
		return nil, s.lost
	}
	s.dest[0] = own
	err := s.driverRows.Next(s.dest[:])
	value := s.dest[0]
	s.dest[0] = nil
	return value, err
}

// finish closes the rows, and returns why they were lost, if they were.
func (s *stream) finish() (err error) {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	if s.driverRows == nil {
		return s.lost
	}
	if lost, ok := s.driverRows.(direct.Rows); ok {
		err = lost.Lost()
	}
	closed := s.closeLocked()
	return cmp.Or(err, closed)
}

func (l *link) doQuery(ctx context.Context, h handle, text string, args []any) (pgx.Rows, error) {
	return l.query(ctx, h, text, args, false)
}

func (l *link) doQueryRow(ctx context.Context, h handle, text string, args []any) pgx.Row {
	rows, _ := l.query(ctx, h, text, args, false)
	return (*row)(rows)
}

// query runs a query. owns: the link ends with its rows.
func (l *link) query(ctx context.Context, h handle, text string, args []any, owns bool) (*rows, error) {
	text, args, effect, err := rewrite(ctx, text, args)
	if err != nil {
		return failedRows(err), err
	}
	q := &query{stream: stream{link: l, ctx: ctx, owns: owns}, source: source{text: text, args: args}}
	q.source.owner = q
	q.driverRows, err = l.execute(ctx, h, direct.Call{Text: text, Args: values(args), ReturnsRows: true, Effect: effect, Sender: &q.source})
	if err != nil {
		return failedRows(err), err
	}
	q.feed, q.decoder = q, q.source.decoder
	if !owns {
		if err := l.open(h, q); err != nil {
			q.leave()
			return failedRows(err), err
		}
	}
	return &q.rows, nil
}

func (q *query) next() ([][]byte, error) {
	value, err := q.read(&q.source)
	if err != nil {
		return nil, err
	}
	if values, ok := value.([][]byte); ok { // from memory
		return values, nil
	}
	return q.decoder.values, nil
}

func (q *query) finish() (pgconn.CommandTag, error) {
	err := q.stream.finish()
	tag := q.source.tagOf()
	q.decoder.giveBack()
	q.link.end(q, q.owns)
	return tag, err
}

// leave implements inner.
func (q *query) leave() { q.stream.leave(q) }

func (q *query) kept() { q.keep(q) }

// column is the one column of all our rows, as database/sql would see them: its value is a whole row.
var column = []string{"row"}

// source sends a query, and reads its rows from pgx. It is used under the session's lock. Rows that are read ahead are
// copies; otherwise the owner's decoder has the present row.
type source struct {
	owner   keeper
	text    string
	args    []any
	real    pgx.Rows
	decoder *decoder
	begun   bool // real is at a row that nobody has got

	mu  sync.Mutex // protects tag: the rows may be abandoned while their owner closes them
	tag pgconn.CommandTag
}

// Send implements direct.Sender. The first row is read at once, as in pgx's own package stdlib: so an error is
// that of the query.
func (s *source) Send(ctx context.Context, dc driver.Conn, opts direct.SendOptions) (driver.Rows, error) {
	c, args, err := target(dc, opts, s.args)
	if err != nil {
		return nil, err
	}
	real, err := c.Query(ctx, s.text, args...)
	if err != nil {
		return nil, err
	}
	if s.begun = real.Next(); !s.begun {
		if err := real.Err(); err != nil {
			return nil, err
		}
	}
	s.real = real
	s.decoder = takeDecoder(c)
	s.decoder.describe(real.FieldDescriptions())
	return s, nil
}

// keeper owns a source.
type keeper interface{ kept() }

// Kept implements direct.Kept.
func (s *source) Kept() { s.owner.kept() }

// Columns implements driver.Rows.
func (s *source) Columns() []string { return column }

// Next implements driver.Rows.
func (s *source) Next(dest []driver.Value) error {
	if !s.begun && !s.real.Next() {
		if err := s.real.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	s.begun = false
	if dest[0] == driver.Value(s) {
		s.decoder.hold(s.real.RawValues())
	} else {
		dest[0] = cloned(s.real.RawValues())
	}
	return nil
}

// Close implements driver.Rows.
func (s *source) Close() error {
	s.real.Close()
	s.mu.Lock()
	s.tag = s.real.CommandTag()
	s.mu.Unlock()
	return s.real.Err()
}

func (s *source) tagOf() pgconn.CommandTag {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tag
}
