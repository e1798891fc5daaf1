package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	sqlitedriver "modernc.org/sqlite"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/anysqlite"
	"github.com/pooldriver/pooldriver/dialects/internal/base"
)

// template opens one database.
type template struct {
	base.Destination
	source

	mu     sync.Mutex
	anchor driver.Conn // guarded by mu; keeps a database in memory alive
}

var _ dialects.Template = (*template)(nil)

func newTemplate(src source) *template {
	target := "sqlite " + src.path
	if src.memory {
		target = "sqlite :memory:"
	}
	t := &template{Destination: base.NewDestination(target, src.params), source: src}
	t.Tell(src.told, shownParams)
	return t
}

func (t *template) Driver() driver.Driver { return registeredDriver() }

// Traits of a connection that is the driver's for sure. Byte slices come only from a BLOB, whatever
// the column was declared as. Each is copied out of SQLite's memory (modernc.org/sqlite 1.55.0,
// rows.Next and conn.columnBlob).
func (t *template) Traits() dialects.Traits {
	own := anysqlite.Traits
	own.BytesKept, own.Reprepares = true, true
	own.ResetOnlyLooks = true // as IsValid does (modernc.org/sqlite 1.62.0)
	own.RowsBlockWrites = t.memory
	return own
}

func (t *template) TakesCredential() bool { return false }

func (t *template) Dial(ctx context.Context, cred *dialects.Credential) (dialects.Session, error) {
	if cred != nil {
		return nil, errors.New("SQLite has no users: a credential has no use")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !t.memory {
		return anysqlite.OpenFile(ctx, t.path, t.open, t.Target(), t.Traits())
	}
	if err := t.holdAnchor(); err != nil {
		return nil, err
	}
	conn, err := t.open()
	if err != nil {
		return nil, err
	}
	s := anysqlite.NewSession(conn, t.Target(), t.Traits())
	if s.Lent, err = lentConn(t.name, conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return s, nil
}

// holdAnchor opens the connection that keeps a database in memory alive while the pool has no
// connection. It never runs a statement, so it holds no lock.
func (t *template) holdAnchor() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.anchor != nil {
		return nil
	}
	anchor, err := t.open()
	if err != nil {
		return err
	}
	t.anchor = anchor
	return nil
}

func (t *template) open() (driver.Conn, error) {
	conn, err := registeredDriver().Open(t.name)
	if err != nil {
		return nil, t.explain(err)
	}
	return conn, nil
}

// cannotOpen is SQLITE_CANTOPEN. SQLite itself says only "unable to open database file".
const cannotOpen = 14

func (t *template) explain(err error) error {
	var e *sqlitedriver.Error
	if !errors.As(err, &e) || e.Code()&0xff != cannotOpen {
		return fmt.Errorf("open %s: %w", t.Target(), err)
	}
	if info, statErr := os.Stat(t.path); statErr == nil && info.IsDir() {
		return fmt.Errorf("open %s: it is a directory: %w", t.Target(), err)
	}
	dir := filepath.Dir(t.path)
	switch info, statErr := os.Stat(dir); {
	case errors.Is(statErr, os.ErrNotExist):
		return fmt.Errorf("open %s: there is no directory %s, and SQLite creates files only: %w", t.Target(), dir, err)
	case statErr != nil:
		return fmt.Errorf("open %s: %w: %w", t.Target(), statErr, err)
	case !info.IsDir():
		return fmt.Errorf("open %s: %s is not a directory: %w", t.Target(), dir, err)
	}
	return fmt.Errorf("open %s: it cannot be opened or created, see its permissions, its directory's and the parameter mode: %w", t.Target(), err)
}

// Close lets a database in memory go.
func (t *template) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.anchor == nil {
		return nil
	}
	anchor := t.anchor
	t.anchor = nil
	return anchor.Close()
}
