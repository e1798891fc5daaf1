package pooldriver

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"sync/atomic"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/rowbuffer"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
)

// rows are the driver's rows. Optional methods that the driver lacks get the
// answers that database/sql gives in that case.
//
// Where others may need their connection, rows are read under the session's lock,
// until they have been read ahead into memory. database/sql serialises the calls of
// their owner.
type rows struct {
	real      driver.Rows
	owner     *realConn
	conn      *conn           // whose checkout has opened them
	stmt      *stmtcache.Stmt // whose rows they are; nil if the text was not prepared
	underLock bool
	bound     *binding // of a task; nil without
	pool      *Connector
	closed    bool // by the owner

	// What the owner is sure to ask for, found while the lock was held already.
	columns []string // of this result set, handed out once; nil: the driver is asked
	over    bool     // the owner has come to the end of this result set
	more    bool     // and then: there is another one

	// ahead is what was read ahead, when that is all there is to read; gone
	// says that there is no more, but the error lost. With either the lock is
	// not needed: the connection may be somebody else's.
	ahead ahead
	gone  atomic.Bool

	// The session's lock protects the following fields.
	live          bool  // the driver's rows are open
	ended         bool  // the driver has said io.EOF for this result set
	soleOperation bool  // the only thing that has happened in their checkout
	holds         bool  // they, and not their checkout, keep the connection
	reclaimed     bool  // their checkout has lost the connection
	tooMuch       bool  // reading ahead has come to its limit
	tried         int64 // bytes that were read ahead, also if they are not in memory any more
	lost          error
	prefix        *rowbuffer.Buffer // read ahead, and not all
	chunk         []byte            // for copies, see own
}

var (
	_ driver.RowsNextResultSet              = (*rows)(nil)
	_ driver.RowsColumnTypeScanType         = (*rows)(nil)
	_ driver.RowsColumnTypeDatabaseTypeName = (*rows)(nil)
	_ driver.RowsColumnTypeLength           = (*rows)(nil)
	_ driver.RowsColumnTypeNullable         = (*rows)(nil)
	_ driver.RowsColumnTypePrecisionScale   = (*rows)(nil)
)

// openRows makes the virtual rows of a query that has just run on t's connection.
// It is the last that a query without a task does: it holds no lock, and whoever
// needs the connection may take it back at once.
func (c *conn) openRows(t *operation, real driver.Rows, stmt *stmtcache.Stmt) *rows {
	r := t.real
	rs := c.spare
	if rs == nil {
		rs = new(rows)
	}
	c.spare = nil
	rs.real, rs.owner, rs.conn, rs.stmt, rs.pool = real, r, c, stmt, c.connector
	rs.columns, rs.closed, rs.underLock, rs.live, rs.lost = t.columns, false, false, true, nil
	// The connection of a checkout that has done nothing else can be taken
	// back when the rows are in memory, if nothing is left on it.
	soleOperation := t.first && c.tx == nil && leavesNothing(r.effect)
	if c.bound == nil && !soleOperation {
		return rs
	}
	rs.underLock, rs.bound, rs.soleOperation = true, c.bound, soleOperation
	c.open = rs
	r.live.Store(rs)
	return rs
}

// columnsOf asks the driver for the names of the columns, which database/sql is about
// to do. If the driver panics it is asked again when database/sql does, where that
// can be survived.
func columnsOf(real driver.Rows) (names []string) {
	defer func() { _ = recover() }()
	return real.Columns()
}

// use locks for a call of the driver, or tells that there is none to
// make: what there is to say is in the buffer, or why tells it.
func (r *rows) use() (live bool) {
	if !r.underLock {
		return r.conn.real == r.owner
	}
	if r.closed || r.ahead.Load() != nil || r.gone.Load() || r.isLent() {
		return false
	}
	_ = r.owner.lock.Lock(context.Background())
	if r.live {
		if r.bound != nil || r.conn.real == r.owner {
			return true
		}
		r.live = false
		r.owner.live.CompareAndSwap(r, nil)
		r.giveUp(errRowsLost)
	}
	r.owner.unlock()
	return false
}

// isLent reports whether the connection of rows without a task is a function of Raw's.
func (r *rows) isLent() bool {
	return r.bound == nil && r.conn.lent != nil && r.conn.lent.real == r.owner
}

// closeAfterRaw closes the driver's rows when the function of Raw has returned. What was
// read ahead of them nobody wants; who reads ahead leaves them alone since they are lent.
func (r *rows) closeAfterRaw() {
	if r.prefix != nil {
		r.dropPrefix()
	}
	l := r.conn.lent
	l.later = append(l.later, func() {
		if r.underLock {
			_ = r.owner.lock.Lock(context.Background())
			defer r.owner.unlock()
		}
		if r.live {
			_ = r.shut()
		}
	})
}

// why tells what has ended rows that were not read to their end.
func (r *rows) why() error {
	switch {
	case r.lost != nil:
		return r.lost
	case r.isLent():
		return errLent
	}
	return errRowsLost
}

// errRowsLost: the driver has panicked, when the rows were closed or in another call
// on their connection.
var errRowsLost = errors.New("pooldriver: the connection of these rows is gone: the driver has panicked")

// errWrecked is for what comes later in a checkout that has lost its connection so.
var errWrecked = errors.New("pooldriver: the connection is gone, with its session: the driver has panicked; take another one")

var errRowsClosed = errors.New("pooldriver: these rows are closed")

// unuse ends what use began.
func (r *rows) unuse() {
	switch {
	case !r.underLock:
	case r.bound == nil:
		r.owner.lock.Unlock()
	default:
		r.owner.seat.ops++
		if r.bound.yield(r.owner) {
			r.bound.pass(r.owner)
		}
	}
}

// Columns, Next and so on pass everything on, io.EOF unwrapped. A call that
// panics leaves the connection marked, as in try.call.

func (r *rows) Columns() []string {
	if names := r.columns; names != nil {
		r.columns = nil // theirs now: who asks again gets the driver's answer
		return names
	}
	if !r.use() {
		return r.now().Columns
	}
	defer r.unuse()
	if r.prefix != nil {
		return r.prefix.Current().Columns
	}
	return r.real.Columns()
}

// Next reads a row. The bytes of rows that are read under the lock stay what they are
// when the driver reads on, which others may make it do at any time.
func (r *rows) Next(dest []driver.Value) error {
	if !r.underLock && r.conn.real == r.owner {
		r.owner.running++
		err := r.real.Next(dest)
		r.owner.running--
		return r.told(err)
	}
	if !r.use() {
		if b := r.ahead.Load(); b != nil {
			return b.Next(dest)
		}
		return r.why()
	}
	defer r.unuse()
	if p := r.prefix; p != nil {
		if p.Left() {
			return p.Next(dest)
		}
		r.dropPrefix()
	}
	err := r.read(dest)
	if err == io.EOF {
		r.over, r.more = true, driverconn.HasNextResultSet(r.real)
	}
	return err
}

func (r *rows) dropPrefix() {
	r.prefix.Drop()
	r.prefix = nil
}

// read reads a row of the driver's, under the lock.
func (r *rows) read(dest []driver.Value) error {
	r.owner.running++
	err := r.real.Next(dest)
	r.owner.running--
	switch {
	case err == io.EOF:
		r.ended = true
	case err != nil:
		err = r.told(err)
		if errors.Is(err, driver.ErrBadConn) || r.owner.txStatus() == dialects.TxLost {
			r.owner.broken = true
		}
	case !r.owner.traits.BytesKept:
		r.own(dest)
	}
	return err
}

// noBytes is a value of length zero, which is not NULL: a part of a piece would be
// nil where there is none yet.
var noBytes driver.Value = []byte{}

// own copies the byte slices of a row out of the driver's memory, those of
// several rows into one piece.
func (r *rows) own(row []driver.Value) {
	for i, v := range row {
		b, ok := v.([]byte)
		if !ok || b == nil {
			continue
		}
		if len(b) == 0 {
			row[i] = noBytes
			continue
		}
		if len(b) > cap(r.chunk)-len(r.chunk) {
			r.chunk = make([]byte, 0, max(len(b), min(2*cap(r.chunk), chunkMost), chunkLeast))
		}
		from := len(r.chunk)
		r.chunk = append(r.chunk, b...)
		row[i] = r.chunk[from:len(r.chunk):len(r.chunk)]
	}
}

// The pieces grow with the number of rows: one value that somebody keeps keeps
// its whole piece.
const (
	chunkLeast = 64
	chunkMost  = 4096
)

// Close closes the driver's rows. database/sql calls it once.
func (r *rows) Close() error {
	if r.closed {
		return nil
	}
	live := r.use()
	r.closed = true
	if !live {
		if b := r.ahead.Load(); b != nil {
			b.Drop()
			return b.Closed()
		}
		if r.isLent() {
			r.closeAfterRaw()
		}
		return nil // the task has ended
	}
	returned := false
	defer func() {
		if r.prefix != nil {
			r.dropPrefix()
		}
		switch {
		case !returned:
			r.wreck()
		case r.letGo():
			r.bound.pass(r.owner)
		default:
			r.unuse()
			r.keep()
		}
	}()
	err := r.shut()
	returned = true
	return err
}

// keep leaves rows that are closed to the next query of their virtual connection:
// the memory is warm. Not those of a task, which others than their owner know.
// database/sql never touches rows that it has closed. Who has them from the virtual
// connection itself is told that they are, but not when they are used again: they
// must not be closed twice.
func (r *rows) keep() {
	if r.bound != nil {
		return
	}
	c := r.conn
	if c.open == r {
		c.open = nil // nothing is left that could be taken back
	}
	*r = rows{}
	r.conn, r.closed, r.underLock, r.lost = c, true, true, errRowsClosed
	c.spare = r
}

// letGo ends the hold of rows whose checkout has moved on, if they have one.
func (r *rows) letGo() bool {
	if !r.holds {
		return false
	}
	r.holds = false
	r.owner.seat.users--
	return true
}

// wreck ends the connection of rows whose driver panicked when they were closed,
// under the lock, which it gives back. database/sql does not give the checkout back,
// and the *sql.Tx or *sql.Conn of such rows can never be ended: nothing more may run
// for it, on another connection least of all.
func (r *rows) wreck() {
	c := r.conn
	c.refusal = errWrecked
	switch {
	case r.bound != nil:
		if c.real == r.owner && c.tx == nil {
			r.bound.standDown(c, r.owner)
		}
		r.bound.pass(r.owner)
		return
	case r.underLock:
		r.owner.lock.Unlock()
	}
	c.discard()
}

// shut closes the driver's rows, under the lock.
func (r *rows) shut() (err error) {
	r.live = false
	returned := false
	defer func() {
		if r.underLock {
			r.owner.live.CompareAndSwap(r, nil)
		}
		if !returned {
			r.owner.broken = true
			r.letGo()
			r.giveUp(errRowsLost)
		}
	}()
	r.owner.running++
	err = r.real.Close()
	r.owner.running--
	if r.stmt != nil {
		r.stmt.Open--
		r.owner.stmts.Done(r.stmt)
		r.stmt = nil
	}
	returned = true
	return err
}

// giveUp drops the rest of the rows: whoever reads on is told why.
func (r *rows) giveUp(why error) {
	if r.lost == nil {
		r.lost = why
	}
	if r.prefix != nil {
		r.dropPrefix()
	}
	r.gone.Store(true)
}

// abandon ends the rows of a task that has ended, under the lock.
func (r *rows) abandon(why error) {
	r.letGo()
	r.giveUp(why)
	defer r.owner.spare(r.owner.severAfter(r.pool.config.CleanTimeout))
	_ = r.shut()
}

func (r *rows) HasNextResultSet() bool {
	if r.over {
		return r.more
	}
	if !r.use() {
		return r.now().More
	}
	defer r.unuse()
	if p := r.prefix; p != nil && p.Behind() {
		return p.Current().More
	}
	return driverconn.HasNextResultSet(r.real)
}

func (r *rows) NextResultSet() error {
	r.columns, r.over = nil, false
	if !r.use() {
		if b := r.ahead.Load(); b != nil {
			return b.NextSet()
		}
		return r.why()
	}
	defer r.unuse()
	if p := r.prefix; p != nil {
		if p.Behind() {
			return p.NextSet()
		}
		r.dropPrefix() // rows of this set that nobody wanted
	}
	return r.readSet()
}

// readSet goes to the driver's next result set, under the lock.
func (r *rows) readSet() error {
	n, ok := r.real.(driver.RowsNextResultSet)
	if !ok {
		return io.EOF
	}
	r.owner.running++
	err := n.NextResultSet()
	r.owner.running--
	if err == nil {
		r.ended = false
	}
	return r.told(err)
}

// told acts on an error that came with the rows: a server may find only at the
// third one that it must not write. That nothing was sent is not true of them.
func (r *rows) told(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	r.owner.set = "" // a statement that has failed sets nothing, see recordResultSlow
	if said := r.pool.dialect.Diagnose(err); said != 0 {
		r.pool.handleDiagnosis(r.owner, said)
	}
	if saysSafe(err) {
		return unclear(errUnclear, err)
	}
	return err
}
