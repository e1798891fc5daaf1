package anysqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/base"
	"github.com/pooldriver/pooldriver/internal/driverconn"
)

// wrapped is a template of the program's connector, which does not show the name of the
// database. So the connections are asked whether the database is in memory. A shared database in
// memory lives as long as the template, which keeps a connection for it (the anchor). A private
// database belongs to its connection, as over the driver alone. That connection stays open.
type wrapped struct {
	*base.Template

	sharing atomic.Uint32          // whether connections share a database in memory
	file    atomic.Pointer[string] // of the first connection; nil: not known

	mu     sync.Mutex
	anchor driver.Conn // guarded by mu; keeps a shared database alive
}

var _ dialects.OwnDialect = (*wrapped)(nil)

// The values of sharing: whether a connector's databases in memory are shared.
const (
	sharingUnknown = iota
	sharingNone
	sharingAll
)

// Traits are those of an unknown driver of SQLite. TxStatus is always right, but it costs about a
// microsecond, a fifth of a small statement. So it is called only after statements that can change
// it.
//
// With a rollback journal no connection can write to the file while another connection reads; with
// a WAL another connection can. WritesAlone covers both: the journal mode is known only with the
// first connection, and can change later.
var Traits = dialects.Traits{WritesAlone: true, PreparingActs: true, CloseWrites: true}

func wrap(c driver.Connector) (dialects.Template, error) {
	if c == nil || !base.IsSQLite(c.Driver()) {
		return nil, dialects.ErrNotMine
	}
	t, err := base.Wrap(c, "sqlite by a connector")
	if err != nil {
		return nil, err
	}
	return &wrapped{Template: t}, nil
}

// Traits of a connection that the program may have wrapped, with rows that may reuse
// their memory.
func (w *wrapped) Traits() dialects.Traits { return Traits }

// Dialect is SQLite's, whatever has registered it.
func (w *wrapped) Dialect() dialects.Dialect { return Dialect{} }

func (w *wrapped) Dial(ctx context.Context, cred *dialects.Credential) (dialects.Session, error) {
	// The first connection tells the name of the file.
	if known := w.file.Load(); known != nil {
		done, err := takeTurn(ctx, *known)
		if err != nil {
			return nil, err
		}
		defer done()
	}
	conn, err := w.Connect(ctx, cred)
	if err != nil {
		return nil, err
	}
	s := NewSession(conn, w.Target(), Traits)
	file, known := fileOf(ctx, conn)
	switch {
	case !known:
	case file == "":
		if s.private, err = w.isPrivate(ctx, conn); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		s.traits.RowsBlockWrites = !s.private
	default:
		s.file = realPath(file)
		w.file.CompareAndSwap(nil, &s.file)
		join(ctx, conn, s.file)
	}
	return s, nil
}

// isPrivate reports whether no other connection sees conn's database, which is in memory or
// a temporary file.
func (w *wrapped) isPrivate(ctx context.Context, conn driver.Conn) (bool, error) {
	if w.sharing.Load() == sharingUnknown {
		if err := w.learn(ctx, conn); err != nil {
			return false, err
		}
	}
	// If the sharing is not known, the connection is kept: this loses no data.
	return w.sharing.Load() != sharingAll, nil
}

// fileOf asks for the name of the main database's file. A database in memory and a temporary
// database have none. The question touches no file, and is not interrupted: a connection whose file is
// not known would close out of turn.
func fileOf(ctx context.Context, conn driver.Conn) (file string, known bool) {
	row, err := firstRow(context.WithoutCancel(ctx), conn, "PRAGMA database_list") // number, name, file
	if err != nil || len(row) != 3 || text(row[1]) != "main" {
		return "", false
	}
	file = text(row[2])
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return "", true // the name of a database in a VFS's memory (ncruces's memdb): SQLite has made every other file by now
	}
	return file, true
}

// probing lets one probe at a time run in the process: two probes of one database would
// confuse their marks.
var probing = make(chan struct{}, 1)

// probeTime bounds a probe, which waits while the database is locked in the process.
const probeTime = time.Second

// learn finds out, at the first connection, whether a second connection sees the same database. If
// so, the second connection becomes the anchor. It runs nothing from then on, so it holds no lock.
func (w *wrapped) learn(ctx context.Context, first driver.Conn) error {
	select {
	case probing <- struct{}{}:
		defer func() { <-probing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if w.sharing.Load() != sharingUnknown {
		return nil
	}
	second, err := w.Connect(ctx, nil)
	if err != nil {
		return nil // for example, the connector makes only one connection
	}
	shared, known := sameDatabase(ctx, first, second)
	switch {
	case !known:
		return second.Close()
	case !shared:
		w.sharing.Store(sharingNone)
		return second.Close()
	}
	w.mu.Lock()
	w.anchor = second
	w.mu.Unlock()
	w.sharing.Store(sharingAll)
	return nil
}

// sameDatabase looks whether two connections see one database in memory. It writes nothing: the
// program's hooks would see a commit, and a commit would fix settings (the page size) that the
// program may still want to choose.
func sameDatabase(ctx context.Context, first, second driver.Conn) (same, known bool) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	if same, known := sameCache(ctx, first, second); same || !known {
		return same, known
	}
	switch locking, err := answer(ctx, first, "PRAGMA locking_mode"); {
	case err != nil:
		return false, false
	case locking == "exclusive":
		return false, true // a temporary file
	}
	return sameLock(ctx, first, second)
}

// sameCache reports whether two connections show one database of cache=shared. A shared cache has one schema, which
// has one cache_size (sqlite3SchemaGet).
func sameCache(ctx context.Context, first, second driver.Conn) (same, known bool) {
	const size = "PRAGMA cache_size"
	before, err := answer(ctx, second, size)
	if err != nil {
		return false, false
	}
	mark := before + "1" // 2000 becomes 20001, and -2000 becomes -20001
	if command(ctx, second, size+" = "+mark) != nil {
		return false, false
	}
	seen, err := answer(ctx, first, size)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTime)
	defer cancel()
	undone := command(last, second, size+" = "+before)
	return seen == mark, err == nil && undone == nil
}

// sameLock reports whether two connections show one database of memdb, which has a lock for each name. The lock is taken and
// released: a hook for rollbacks sees this. The second connection takes the lock, because a lock
// fixes the page size of a private database. The first does not wait meanwhile: some drivers do not
// end a wait with its context.
func sameLock(ctx context.Context, first, second driver.Conn) (same, known bool) {
	const timeout = "PRAGMA busy_timeout"
	before, err := answer(ctx, first, timeout)
	if err != nil || command(ctx, first, timeout+" = 0") != nil {
		return false, false
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*probeTime)
	defer cancel()
	if command(ctx, second, "BEGIN EXCLUSIVE") == nil {
		_, err = firstRow(ctx, first, "PRAGMA schema_version")
		same = err != nil
		known = command(last, second, "ROLLBACK") == nil && (err == nil || isBusy(err))
	}
	return same, command(last, first, timeout+" = "+before) == nil && known
}

// isBusy reports whether an error is SQLITE_BUSY or SQLITE_LOCKED, by SQLite's own texts
// (sqlite3ErrStr): the drivers' types differ.
func isBusy(err error) bool {
	return strings.Contains(err.Error(), "database is locked") || strings.Contains(err.Error(), "database table is locked")
}

// command runs a text that has no rows.
func command(ctx context.Context, conn driver.Conn, query string) error {
	c := driverconn.New(conn)
	return c.Command(ctx, query)
}

// answer is the text of a query's first value.
func answer(ctx context.Context, conn driver.Conn, query string) (string, error) {
	row, err := firstRow(ctx, conn, query)
	if err != nil {
		return "", err
	}
	return text(row[0]), nil
}

// firstRow runs a query and returns its first row.
func firstRow(ctx context.Context, conn driver.Conn, query string, args ...driver.NamedValue) (_ []driver.Value, err error) {
	c := driverconn.New(conn)
	rows, err := driver.Rows(nil), driver.ErrSkip
	if c.CanQuery() {
		rows, err = c.Query(ctx, query, args)
	}
	if err == driver.ErrSkip {
		stmt, prepareErr := c.Prepare(ctx, query)
		if prepareErr != nil {
			return nil, prepareErr
		}
		defer func() { err = errors.Join(err, stmt.Close()) }()
		rows, err = driverconn.QueryStmt(ctx, stmt, args)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	row := make([]driver.Value, len(rows.Columns()))
	if err := rows.Next(row); err == io.EOF || len(row) == 0 {
		return nil, fmt.Errorf("%s: no answer", query)
	} else if err != nil {
		return nil, err
	}
	for i, v := range row {
		if b, ok := v.([]byte); ok {
			row[i] = string(b) // the driver's memory
		}
	}
	return row, nil
}

func text(v driver.Value) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// Close closes the connection that keeps a shared database in memory alive.
func (w *wrapped) Close() error {
	w.mu.Lock()
	anchor := w.anchor
	w.anchor = nil
	w.mu.Unlock()
	if anchor == nil {
		return w.Template.Close()
	}
	return errors.Join(anchor.Close(), w.Template.Close())
}
