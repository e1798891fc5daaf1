// Package clones makes databases and files for tests, and removes them.
//
// A template is a database on which the migrations ran once. A clone is a copy of it for one test. Each clone has a
// session on the server, or an open file, which holds a lock for as long as the test needs the clone. If the lock is free,
// whatever way the process ended, anybody may remove the clone.
package clones

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/pooldriver/pooldriver/internal/dsn"
)

// Plan says what a clone is made of.
type Plan struct {
	Kind Kind
	DSN  string
	// Hash names what the migrations make: 10 hexadecimal digits.
	Hash string
	// Keep is how long a template that nobody uses stays on the server.
	Keep time.Duration
	// Open opens a DSN for the package's own statements, with at most conns connections.
	Open func(dsn string, conns int) (*sql.DB, error)
	// Migrate runs the migrations where the DSN leads to.
	Migrate func(ctx context.Context, dsn string) error
}

// Kind is what a clone is.
type Kind string

// The kinds of clones.
const (
	PostgresDatabase Kind = "postgres database"
	MySQLDatabase    Kind = "mysql database"
	SQLiteFile       Kind = "sqlite file"
)

// server is what one clone needs of its server. One goroutine at a time uses it.
type server interface {
	// prepare removes what ended processes have left, makes the template if nobody has made it, and says that the
	// template is used.
	prepare(ctx context.Context) (recipe, error)
	// make makes the clone, and holds its lock.
	make(ctx context.Context, r recipe, test string) (name, dsn string, err error)
	// hold takes the clone's lock again if its session was lost.
	hold(ctx context.Context, name string) error
	// remove removes the clone. Sessions that still use it are ended.
	remove(ctx context.Context, name string) error
	// keep leaves the clone for people, and returns the name under which it stays.
	keep(ctx context.Context, name, test string) (kept string, err error)
	// close gives the lock back.
	close()
}

func (p Plan) open(ctx context.Context) (server, error) {
	switch p.Kind {
	case PostgresDatabase:
		return openPostgres(ctx, p)
	case MySQLDatabase:
		return openMySQL(ctx, p)
	default:
		return openSQLite(p), nil
	}
}

// Clone is the clone of one test.
type Clone struct {
	Name, DSN string

	server  server
	unwatch func()
}

// Take returns a clone for the test. If the migrations fail, the error is a MigrationError, for this call and for each
// later one.
func Take(ctx context.Context, p Plan, test string) (c *Clone, err error) {
	if p.Kind == SQLiteFile {
		p.DSN = dsn.SQLiteKind(p.DSN)
	}
	s, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	// Also if the migrations panic, or end the goroutine.
	defer func() {
		if c == nil {
			s.close()
		}
	}()
	t := templateOf(p)
	r, err := t.prepare(ctx, s, test)
	if err != nil {
		return nil, err
	}
	name, to, err := s.make(ctx, r, test)
	if err != nil {
		return nil, t.remember(err, test)
	}
	return &Clone{Name: name, DSN: to, server: s, unwatch: watch(s, name)}, nil
}

// Drop removes the clone. It is called once, instead of Keep.
func (c *Clone) Drop(ctx context.Context) error {
	c.unwatch()
	defer c.server.close()
	if err := c.server.hold(ctx, c.Name); err != nil {
		return err
	}
	return c.server.remove(ctx, c.Name)
}

// Keep leaves the clone for people, and returns the name under which it stays. It is called once, instead of Drop.
func (c *Clone) Keep(ctx context.Context, test string) (name string, err error) {
	c.unwatch()
	defer c.server.close()
	if err := c.server.hold(ctx, c.Name); err != nil {
		return c.Name, err
	}
	return c.server.keep(ctx, c.Name, test)
}

// A session may be lost while its test runs: the server is started again, or somebody ends the session. So the process of
// the test looks every holdEvery, and takes the lock again. Another process removes a clone only if the lock is free now
// and after the time grace, in which the first process has looked, and if nobody is connected to the clone.
const (
	holdEvery = 500 * time.Millisecond
	grace     = 4 * holdEvery
)

// watch holds the clone's lock until unwatch returns. Meanwhile nobody else uses s.
func watch(s server, name string) (unwatch func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(holdEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = s.hold(ctx, name) // the next tick tries again
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// MigrationError is the error of the migrations themselves. They are not run again in this process.
type MigrationError struct {
	Test string // the test that met the error first; empty in that test's own error
	Err  error
}

func (e *MigrationError) Error() string { return fmt.Sprintf("the migrations failed: %v", e.Err) }
func (e *MigrationError) Unwrap() error { return e.Err }

// migrate runs the plan's migrations. Its error is a MigrationError, unless ctx has ended: then
// the test is to blame, and not the migrations.
func (p *Plan) migrate(ctx context.Context, dsn string) error {
	err := p.Migrate(ctx, dsn)
	if err != nil && ctx.Err() == nil {
		return &MigrationError{Err: err}
	}
	return err
}

func unique() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // It never fails.
	return hex.EncodeToString(b)
}

// shorten returns the first digits of a text's hash.
func shorten(text string, digits int) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:digits]
}
