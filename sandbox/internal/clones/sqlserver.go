package clones

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sqlServer is a session on a server, with the names of what one user makes on one database. All names begin with realm,
// such as sandbox_3f2a11_; they need no quotes.
type sqlServer struct {
	plan            Plan
	dialect         sqlDialect
	admin           *sql.DB
	conn            *sql.Conn // the session
	realm, template string
	strategy        string // PostgreSQL: how a template is copied, as an option of CREATE DATABASE
}

// sqlDialect is what differs between the servers. A lock has the name of what it guards, and lasts as long as the session.
type sqlDialect struct {
	stay string // keeps the server from ending an idle session
	// identity returns the user, the database and the strategy.
	identity string
	// lock waits for a lock, tryLock does not. Both return whether the session has the lock then.
	lock, tryLock, unlock string
	// notes lists the names that begin with an argument, each with a space and its note.
	notes string
}

// connect opens the session.
func (s *sqlServer) connect(ctx context.Context) (err error) {
	if s.admin, err = s.plan.Open(s.plan.DSN, 1); err != nil {
		return err
	}
	if err := s.dial(ctx); err != nil {
		s.close()
		return fmt.Errorf("connecting to the DSN's server: %w", err)
	}
	return nil
}

func (s *sqlServer) dial(ctx context.Context) error {
	conn, err := s.admin.Conn(ctx)
	if err != nil {
		return err // s.conn is closed, and the next call of hold dials
	}
	s.conn = conn
	var user, database sql.NullString
	if err := s.exec(ctx, s.dialect.stay); err != nil {
		return err
	}
	if err := s.conn.QueryRowContext(ctx, s.dialect.identity).Scan(&user, &database, &s.strategy); err != nil {
		return err
	}
	s.realm = "sandbox_" + shorten(strings.Join([]string{string(s.plan.Kind), user.String, database.String}, "\x00"), 6) + "_"
	s.template = s.realm + s.plan.Hash
	return nil
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

// next is the name of a clone that is about to be made.
func (s *sqlServer) next() string { return s.template + "_" + unique() }

// A template that is being made may have a name of its own.
const unfinishedSuffix = "_new"

// ours are the names of templates and clones behind the realm. What else begins so is not ours.
var ours = regexp.MustCompile("^[0-9a-f]{10}(" + unfinishedSuffix + "|_[0-9a-f]{12})?$")

func (s *sqlServer) isClone(name string) bool { return len(name) == len(s.next()) }

// A note says what a database is for. Without a note it is in use or half made.
const (
	usedNote  = "sandbox used "  // and the test
	keptNote  = "sandbox kept "  // and the test
	untilNote = "sandbox until " // a template, and when it may be removed: seconds of Unix
)

// isOver reports whether a database with this note may be removed if nobody has its lock.
func isOver(note string) bool {
	if text, found := strings.CutPrefix(note, untilNote); found {
		until, err := strconv.ParseInt(text, 10, 64)
		return err != nil || time.Now().Unix() >= until
	}
	return !strings.HasPrefix(note, keptNote)
}

func (s *sqlServer) untilNote() string {
	return untilNote + strconv.FormatInt(time.Now().Add(s.plan.Keep).Unix(), 10)
}

// over lists what begins with prefix and may be removed if nobody has its lock.
func (s *sqlServer) over(ctx context.Context, prefix string) (names []string, err error) {
	all, err := s.list(ctx, s.dialect.notes, prefix)
	for _, entry := range all {
		name, note, _ := strings.Cut(entry, " ")
		if ours.MatchString(strings.TrimPrefix(name, s.realm)) && isOver(note) {
			names = append(names, name)
		}
	}
	return names, err
}

// sweep removes the clones whose lock is free, half-made templates, and templates whose time is over. It never waits for a
// lock. connected reports whether anybody is connected to a database.
func (s *sqlServer) sweep(ctx context.Context, connected func(ctx context.Context, name string) (bool, error)) error {
	names, err := s.over(ctx, s.realm)
	if err != nil {
		return err
	}
	// What cannot be removed is left to the next process.
	remove := func(name string) {
		// Another process may have used the template since names was read.
		if over, err := s.over(ctx, name); err != nil || !slices.Contains(over, name) {
			return
		}
		if used, err := connected(ctx, name); err == nil && !used {
			_ = s.exec(ctx, "DROP DATABASE IF EXISTS "+name)
		}
	}
	var free []string
	for _, name := range names {
		err := s.locked(ctx, name, func() {
			if s.isClone(name) {
				free = append(free, name)
			} else {
				remove(name)
			}
		})
		if err != nil {
			return err
		}
	}
	if len(free) == 0 {
		return nil
	}
	if err := pause(ctx, grace); err != nil {
		return err
	}
	for _, name := range free {
		if err := s.locked(ctx, name, func() { remove(name) }); err != nil {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// locked calls f under the lock of a database, if nobody else has it.
func (s *sqlServer) locked(ctx context.Context, name string, f func()) error {
	lock := strings.TrimSuffix(name, unfinishedSuffix)
	got, err := s.tryLock(ctx, s.dialect.tryLock, lock)
	if err != nil || !got {
		return err
	}
	defer s.unlock(ctx, lock)
	f()
	return nil
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
	_ = s.admin.Close()
}

// quoteText is a literal, also where a backslash escapes.
func quoteText(text string) string {
	return "'" + strings.NewReplacer("'", "''", "\\", "/").Replace(text) + "'"
}
