package session

import (
	"database/sql/driver"
	"errors"
	"io"
	"sync/atomic"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/rowbuffer"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
)

// Rows are the driver's rows of one query. They are read under the session's lock. When they
// are in memory their owner needs no lock, and the session may have another borrower.
type Rows struct {
	session *Session
	real    driver.Rows
	scanner driverconn.ColumnScanner // real, if it scans its columns itself; else nil
	stmt    *stmtcache.Stmt          // the prepared statement; nil if the text was sent as it is

	// ahead has all further rows, once they are in memory. lost is why the further rows
	// are gone. Both are read without the lock.
	ahead atomic.Pointer[rowbuffer.Buffer]
	lost  atomic.Pointer[error]

	under   Under // of the session's Guard; nil: none is there
	live    bool  // the driver's rows are open
	ended   bool  // the driver has said io.EOF for this result set
	onRow   bool  // the driver's rows are at a row
	tooMuch bool  // reading ahead has reached its limit
	usage   usage
	query   string            // the text, where usage is alone and the dialect has not judged it
	tried   int64             // bytes that were ever read ahead
	prefix  *rowbuffer.Buffer // the next rows, if they were read ahead, and others follow
	chunk   []byte            // for copies, see own
}

// usage says how the rows and their checkout use the session.
type usage uint8

const (
	// shared: something else has happened in the checkout, so it keeps the session.
	shared usage = iota
	// alone: nothing else has happened in the checkout. It does not need the session when
	// the rows are in memory.
	alone
	// inPlace: the checkout has ended, and the rows use the session in its place.
	inPlace
	// detached: the rows are in memory, and their checkout does not use the session.
	detached
)

// OpenRows makes r, which is new, the rows of st, which has just run. They are the last ones on the
// session. isAlone says that nothing else has happened in their checkout.
func (s *Session) OpenRows(r *Rows, st *Statement, isAlone bool) {
	r.session, r.real, r.stmt, r.live, r.under = s, st.Rows, st.prepared, true, st.Under
	r.scanner = driverconn.ColumnScannerOf(st.Rows)
	if isAlone {
		r.usage, r.query = alone, st.Text
	}
	s.reading++
	s.rows.Store(r)
}

// detachable reports whether the checkout of the rows does not need the session when the rows are
// in memory: nothing else has happened in the checkout, and the text of the rows only reads. The
// text is judged once, however often others look.
func (r *Rows) detachable() bool {
	if r.usage == alone && r.query != "" {
		// Under a Guard the next statement of their borrower finds the same session.
		if r.session.guard == nil && !r.session.env.Dialect.OnlyReads(r.query) {
			r.usage = shared
		}
		r.query = ""
	}
	return r.usage == alone
}

// Reading reports whether any rows are open. Some drivers have several open at a time (SQLite), and
// Rows returns only the last ones.
func (s *Session) Reading() bool { return s.reading > 0 }

// Rows are the last rows that are read from the driver; nil: none. It needs no lock.
func (s *Session) Rows() *Rows { return s.rows.Load() }

// Buffer has all further rows once they are in memory, and is nil before. It needs no lock.
// Only the owner of the rows uses the buffer.
func (r *Rows) Buffer() *rowbuffer.Buffer { return r.ahead.Load() }

// Gone reports whether the further rows are lost. It needs no lock.
func (r *Rows) Gone() bool { return r.lost.Load() != nil }

// Live reports whether the driver's rows are open.
func (r *Rows) Live() bool { return r.live }

// Lost is why the further rows are lost, nil if they are not. It needs no lock.
func (r *Rows) Lost() error {
	if why := r.lost.Load(); why != nil {
		return *why
	}
	return nil
}

// Detached reports whether the rows are in memory and their checkout does not use the
// session. It needs no lock: when ahead is there, usage does not change any more.
func (r *Rows) Detached() bool { return r.ahead.Load() != nil && r.usage == detached }

// Attach records that something else happens in the checkout of the rows.
func (r *Rows) Attach() {
	if r.usage == alone {
		r.usage = shared
	}
}

// Keep records that the checkout has ended, and that the rows use the session in its place.
func (r *Rows) Keep() { r.usage = inPlace }

// LetGo ends the use of the session that Keep began. It reports whether there was one.
func (r *Rows) LetGo() bool {
	if r.usage != inPlace {
		return false
	}
	r.usage = shared
	return true
}

// Prefix has the next rows if they were read ahead and others follow. Otherwise it is nil.
func (r *Rows) Prefix() *rowbuffer.Buffer { return r.prefix }

// Columns are the names of the columns of this result set.
func (r *Rows) Columns() []string {
	if r.prefix != nil {
		return r.prefix.Current().Columns
	}
	return r.real.Columns()
}

// Column is what is known of a column's type.
func (r *Rows) Column(i int) driverconn.ColumnType {
	if r.prefix != nil {
		return r.prefix.Current().Column(i)
	}
	return driverconn.ColumnTypeOf(r.real, i)
}

// Next reads a row. Where rows may be read ahead, its bytes do not change when the driver
// reads on. dest is nil for rows that scan their columns: see Scan.
func (r *Rows) Next(dest []driver.Value) error {
	if p := r.prefix; p != nil {
		if p.Left() {
			return p.Next(dest)
		}
		r.DropPrefix()
	}
	return r.read(dest)
}

// read reads a row from the driver.
func (r *Rows) read(dest []driver.Value) error {
	s := r.session
	s.running++
	var err error
	if r.under != nil {
		err = r.under.Read(func() error { return r.next(dest) })
	} else {
		err = r.next(dest)
	}
	s.running--
	if r.onRow = err == nil; !r.onRow {
		return r.readFailed(err)
	}
	if r.scanner == nil && r.mayLoseBytes() {
		r.own(dest)
	}
	return nil
}

// readFailed returns the error of a read that has given no row.
func (r *Rows) readFailed(err error) error {
	if err == io.EOF {
		r.ended = true
		return err
	}
	err = r.diagnosed(err)
	if errors.Is(err, driver.ErrBadConn) || r.session.TxStatus() == dialects.TxLost {
		r.session.MarkUnusable()
	}
	return err
}

// next calls the driver as database/sql does.
func (r *Rows) next(dest []driver.Value) error {
	if r.scanner != nil {
		return r.scanner.NextRow()
	}
	return r.real.Next(dest)
}

// mayLoseBytes reports whether the bytes of a row may change while its owner has it: the
// driver uses their memory again, and others may read ahead.
func (r *Rows) mayLoseBytes() bool {
	return !r.session.traits.BytesKept && (r.session.inTask || r.usage == alone)
}

// noBytes is an empty value, which is not NULL. A slice of a nil chunk would be nil, that is
// NULL.
var noBytes driver.Value = []byte{}

// own copies the byte slices of a row out of the driver's memory. The slices of several rows
// share a chunk.
func (r *Rows) own(row []driver.Value) {
	for i, v := range row {
		b, ok := v.([]byte)
		if !ok || b == nil {
			continue
		}
		if len(b) == 0 {
			row[i] = noBytes
			continue
		}
		row[i] = r.copyBytes(b)
	}
}

// copyBytes copies b, which is not empty, into a chunk.
func (r *Rows) copyBytes(b []byte) []byte {
	if len(b) > cap(r.chunk)-len(r.chunk) {
		r.chunk = make([]byte, 0, max(len(b), min(2*cap(r.chunk), chunkMost), chunkLeast))
	}
	from := len(r.chunk)
	r.chunk = append(r.chunk, b...)
	return r.chunk[from:len(r.chunk):len(r.chunk)]
}

// Chunks grow with the number of rows. A value that the program keeps holds its whole chunk
// in memory, so chunks of few rows are small.
const (
	chunkLeast = 64
	chunkMost  = 4096
)

// HasNextResultSet reports whether another result set follows.
func (r *Rows) HasNextResultSet() bool {
	if p := r.prefix; p != nil && p.Behind() {
		return p.Current().More
	}
	return driverconn.HasNextResultSet(r.real)
}

// NextResultSet goes to the next result set.
func (r *Rows) NextResultSet() error {
	if p := r.prefix; p != nil {
		if p.Behind() {
			return p.NextSet()
		}
		r.DropPrefix() // the owner does not want the rows of this set
	}
	return r.readSet()
}

// readSet goes to the driver's next result set.
func (r *Rows) readSet() error {
	n, ok := r.real.(driver.RowsNextResultSet)
	if !ok {
		return io.EOF
	}
	r.session.running++
	err := r.readUnder(n.NextResultSet)
	r.session.running--
	r.onRow = false
	if err == nil {
		r.ended = false
	}
	return r.diagnosed(err)
}

// diagnosed acts on an error of the driver's rows: a server may notice as late as at the third
// row that it must not write. A driver may say that nothing was sent. For open rows this is not
// true.
func (r *Rows) diagnosed(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	r.session.owner.Failed()
	r.session.Diagnose(err)
	if ctxerr.SaysSafe(err) {
		return ctxerr.Unclear(ctxerr.ErrUnclear, err)
	}
	return err
}

// Close closes the driver's rows. If the driver panics, the rows are lost and the session is
// unusable.
func (r *Rows) Close() (err error) {
	s := r.session
	r.live = false
	s.reading--
	returned := false
	defer func() {
		s.rows.CompareAndSwap(r, nil)
		if !returned {
			s.MarkUnusable()
			if r.LetGo() {
				s.owner.Detached()
			}
			r.giveUp(ErrRowsLost)
		}
	}()
	s.running++
	if r.under != nil {
		err = r.under.Close(r.real.Close)
	} else {
		err = r.real.Close()
	}
	s.running--
	if r.stmt != nil {
		r.stmt.Open--
		s.stmts.Done(r.stmt)
		r.stmt = nil
	}
	returned = true
	s.settle()
	return err
}

// ErrRowsLost: the driver has panicked, when the rows were closed or in another call on
// their connection.
var ErrRowsLost = errors.New("pooldriver: the connection of these rows is gone: the driver has panicked")

// giveUp drops the further rows. The owner gets why when it reads on.
func (r *Rows) giveUp(why error) {
	r.DropPrefix()
	r.lost.CompareAndSwap(nil, &why)
}

// LoseSession gives up rows whose session has another borrower.
func (r *Rows) LoseSession() {
	r.live = false
	r.session.rows.CompareAndSwap(r, nil)
	r.giveUp(ErrRowsLost)
}

// Abandon closes the rows, because their task or transaction has ended.
func (r *Rows) Abandon(why error) {
	if r.LetGo() {
		r.session.owner.Detached()
	}
	r.giveUp(why)
	defer r.session.spare(r.session.severAfter())
	_ = r.Close()
}

// DropPrefix drops the rows of Prefix.
func (r *Rows) DropPrefix() {
	if r.prefix != nil {
		r.prefix.Drop()
		r.prefix = nil
	}
}
