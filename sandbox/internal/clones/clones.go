// Package clones makes databases, schemas and files for tests, and removes them.
//
// The words: a template is a database on which the migrations ran once. A clone is a copy of it
// for one test. The stock are clones that no test had yet. An owner is a process, as the server
// sees it: a session that holds a lock for as long as the process needs its clones. If the session
// is gone, whatever way the process ended, anybody may remove the owner's clones.
//
// Several processes use one server at the same time. All that they have to know of each other is
// on the server: locks, names and notes. So a process that is killed leaves nothing that the next
// one misunderstands.
package clones

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// Plan says what a clone is made of.
type Plan struct {
	Kind Kind
	DSN  string
	// Hash names what the migrations make: up to 10 letters and digits.
	Hash string
	// Keep is how long a template that nobody uses stays on the server.
	Keep time.Duration
	// Stock is how many clones are made ahead.
	Stock int
	// Open opens a DSN for the package's own statements, with at most conns connections.
	Open func(dsn string, conns int) (*sql.DB, error)
	// Migrate runs the migrations where the DSN leads to. It may be called from any goroutine.
	Migrate func(ctx context.Context, dsn string) error
}

// Kind is what a clone is.
type Kind string

// The kinds of clones.
const (
	PostgresDatabase Kind = "postgres database"
	PostgresSchema   Kind = "postgres schema"
	MySQLDatabase    Kind = "mysql database"
	SQLiteFile       Kind = "sqlite file"
)

// server is what a Shelf needs of a database server. Between open and close its methods are safe
// for concurrent use.
type server interface {
	// open takes the owner's lock, removes what owners that are gone have left, and makes the
	// template if nobody has made it.
	open(ctx context.Context) error
	// hold takes the owner's lock again if its session was lost. Others would remove the clones
	// that are in use. It is called before each take, by one goroutine at a time.
	hold(ctx context.Context) error
	// take gives a clone from the stock to the test, empty if there is none.
	take(ctx context.Context, test string) (name string, err error)
	// make makes a clone for the test, or for the stock if test is empty.
	make(ctx context.Context, test string) (name string, err error)
	// stocked counts the stock.
	stocked(ctx context.Context) (int, error)
	// remove removes a clone. Sessions that still use it are ended.
	remove(ctx context.Context, name string) error
	// keep leaves a clone on the server, for people, and returns the name under which it stays.
	keep(ctx context.Context, name, test string) (kept string, err error)
	// dsn leads to a clone.
	dsn(name string) string
	// close gives the owner's lock back. Clones of the stock stay.
	close()
}

// stock is how many clones are made ahead. To copy a file takes no time.
func (p *Plan) stock() int {
	if p.Kind == SQLiteFile {
		return 0
	}
	return p.Stock
}

func (p *Plan) server() server {
	switch p.Kind {
	case PostgresDatabase:
		return newPostgres(p, databases)
	case PostgresSchema:
		return newPostgres(p, schemas)
	case MySQLDatabase:
		return newMySQL(p)
	default:
		return newSQLite(p)
	}
}

// MigrationError is the error of the migrations themselves. They are not run again in this process.
type MigrationError struct {
	Test string // the test that met the error first; empty in that test's own error
	Err  error
}

func (e *MigrationError) Error() string {
	return fmt.Sprintf("the migrations failed: %v", e.Err)
}

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
