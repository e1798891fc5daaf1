package clones

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// sqlServer is a session on a server for one clone, with the names of what one user makes on one database. All names begin with realm,
// such as sandbox_3f2a11_; they need no quotes.
type sqlServer struct {
	plan            Plan
	dialect         sqlDialect
	handle          *handle
	conn            *sql.Conn // the session
	realm, template string
	strategy        string // PostgreSQL: how a template is copied, as an option of CREATE DATABASE
}

// sqlDialect is what differs between the servers. A lock has the name of what it guards, and lasts as long as the session.
type sqlDialect struct {
	keepAlive string // keeps the server from ending an idle session
	// identity returns the user, the database and the strategy.
	identity string
	// lock waits for a lock, tryLock does not. Both return whether the session has the lock then.
	lock, tryLock, unlock string
	// has returns whether a template is complete.
	has string
	// notes lists the names that begin with an argument, each with a space and its note.
	notes string
	// connected reports whether anybody is connected to a database.
	connected func(ctx context.Context, conn *sql.Conn, database string) (bool, error)
}

// connect opens the session.
func (s *sqlServer) connect(ctx context.Context) (err error) {
	if s.handle, err = openHandle(s.plan); err != nil {
		return err
	}
	if err := s.dial(ctx); err != nil {
		s.close()
		return fmt.Errorf("connecting to the DSN's server: %w", err)
	}
	return nil
}

func (s *sqlServer) dial(ctx context.Context) error {
	conn, err := s.handle.db.Conn(ctx)
	if err != nil {
		return err // s.conn is closed, so the next call of hold dials again
	}
	s.conn = conn
	var user, database sql.NullString
	if err := s.exec(ctx, s.dialect.keepAlive); err != nil {
		return err
	}
	if err := s.conn.QueryRowContext(ctx, s.dialect.identity).Scan(&user, &database, &s.strategy); err != nil {
		return err
	}
	s.realm = "sandbox_" + shorten(strings.Join([]string{string(s.plan.Kind), user.String, database.String}, "\x00"), 6) + "_"
	s.template = s.realm + s.plan.Hash
	return nil
}

// templateMaker is how a server makes templates. The methods are called under the template's lock.
type templateMaker interface {
	makeTemplate(ctx context.Context) error
	note(ctx context.Context, name, note string) error
	readRecipe(ctx context.Context) (recipe, error)
}

// prepareBy is server.prepare.
func (s *sqlServer) prepareBy(ctx context.Context, by templateMaker) (recipe, error) {
	if err := s.sweep(ctx); err != nil {
		return recipe{}, fmt.Errorf("removing what ended processes have left: %w", err)
	}
	if err := s.lock(ctx, s.template); err != nil { // waits for the process that makes it
		return recipe{}, err
	}
	defer s.unlock(ctx, s.template)
	var found bool
	err := s.conn.QueryRowContext(ctx, s.dialect.has, s.template).Scan(&found)
	if err == nil && !found {
		err = by.makeTemplate(ctx)
	}
	if err == nil {
		err = by.note(ctx, s.template, s.untilNote())
	}
	if err != nil {
		return recipe{}, err
	}
	return by.readRecipe(ctx)
}

// hold takes the clone's lock, and dials before that if the session was lost. A session may take its lock several times.
// If somebody else has the lock, the server has not seen yet that the old session is lost: then that one guards the clone
// until the next call.
func (s *sqlServer) hold(ctx context.Context, name string) error {
	if _, err := s.tryLock(ctx, s.dialect.tryLock, name); err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	_ = s.conn.Close()
	if err := s.dial(ctx); err != nil {
		return err
	}
	_, err := s.tryLock(ctx, s.dialect.tryLock, name)
	return err
}

var errLocked = errors.New("another process has held the lock of the template for a day")

func (s *sqlServer) lock(ctx context.Context, name string) error {
	got, err := s.tryLock(ctx, s.dialect.lock, name)
	if err == nil && !got {
		return errLocked
	}
	return err
}

func (s *sqlServer) tryLock(ctx context.Context, query, name string) (bool, error) {
	var got sql.NullBool
	err := s.conn.QueryRowContext(ctx, query, name).Scan(&got)
	return got.Bool, err
}

// unlock ends a lock, also if ctx has ended.
func (s *sqlServer) unlock(ctx context.Context, name string) {
	_ = s.exec(context.WithoutCancel(ctx), s.dialect.unlock, name)
}

func (s *sqlServer) exec(ctx context.Context, text string, args ...any) error {
	_, err := s.conn.ExecContext(ctx, text, args...)
	return err
}

// execAll runs statements until one fails.
func (s *sqlServer) execAll(ctx context.Context, texts ...string) error {
	for _, text := range texts {
		if err := s.exec(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// list returns the texts of a query of one column.
func (s *sqlServer) list(ctx context.Context, query string, args ...any) (texts []string, err error) {
	rows, err := s.conn.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return texts, rows.Err()
}

// close ends the session, and its locks with it.
func (s *sqlServer) close() {
	if s.conn != nil {
		_ = s.conn.Close()
	}
	s.handle.close()
}
