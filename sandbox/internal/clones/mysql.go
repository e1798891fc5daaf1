package clones

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pooldriver/pooldriver/internal/dsn"
)

// mysql makes databases on MySQL and MariaDB, which know no templates: copy says how. Notes are
// rows of a table in a database of the realm's own. Locks are those of GET_LOCK:
//
//   - the owner's lock is held by a process for as long as its clones are used;
//   - the template's lock is held by whoever makes or removes the template, or begins to use it.
type mysql struct {
	sqlServer
	registry string // the table of notes
	recipe   recipe // how the template is copied; written by open
}

func newMySQL(p *Plan) *mysql { return &mysql{sqlServer: sqlServer{plan: p}} }

const mysqlConns = 5 // the session with the lock, one for the stock and some for tests that begin or end

// isMaking and isOwner are states that only the table of notes has. The row of an owner is named
// like the owner, and says which template it uses.
const (
	isMaking state = "making"
	isOwner  state = "owner"
)

func (s *mysql) open(ctx context.Context) (err error) {
	if s.admin, err = s.plan.Open(s.plan.DSN, mysqlConns); err != nil {
		return err
	}
	var user, database sql.NullString
	if err := s.admin.QueryRowContext(ctx, "SELECT current_user(), database()").Scan(&user, &database); err != nil {
		return fmt.Errorf("connecting to the DSN's server: %w", err)
	}
	s.names = newNames(s.plan.Hash, string(s.plan.Kind), user.String, database.String)
	if err := s.openRegistry(ctx); err != nil {
		return s.rights(err)
	}
	if err := s.newSession(ctx); err != nil {
		return err
	}
	if err := s.sweep(ctx); err != nil {
		return fmt.Errorf("removing what ended processes have left: %w", err)
	}
	return s.prepare(ctx)
}

// newSession takes the owner's lock.
func (s *mysql) newSession(ctx context.Context) error {
	if err := s.connect(ctx, "SET SESSION wait_timeout = 604800"); err != nil {
		return err
	}
	_, err := lockMySQL(ctx, s.session, "owner "+s.names.owner, day)
	return err
}

func (s *mysql) hold(ctx context.Context) error {
	if lost, err := s.lost(ctx); !lost {
		return err
	}
	return s.newSession(ctx)
}

func (s *mysql) openRegistry(ctx context.Context) error {
	database := s.names.realm + "notes"
	s.registry = database + ".notes"
	if err := s.exec(ctx, "CREATE DATABASE IF NOT EXISTS "+database); err != nil {
		return err
	}
	return s.exec(ctx, "CREATE TABLE IF NOT EXISTS "+s.registry+` (
		name VARCHAR(64) PRIMARY KEY, template VARCHAR(64) NOT NULL, state VARCHAR(16) NOT NULL,
		owner VARCHAR(16) NOT NULL DEFAULT '', test VARCHAR(255) NOT NULL DEFAULT '', until BIGINT NOT NULL DEFAULT 0
	) ENGINE=InnoDB`)
}

// prepare makes the template unless there is one, and notes that this process uses it.
func (s *mysql) prepare(ctx context.Context) error {
	unlock, err := s.lockTemplate(ctx, day)
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.write(ctx, s.names.owner, note{state: isOwner, owner: s.names.owner}); err != nil {
		return err
	}
	all, err := s.rows(ctx)
	if err != nil {
		return err
	}
	done := note{state: isTemplate, until: time.Now().Add(s.plan.Keep)}
	if !slices.ContainsFunc(all, func(r row) bool { return r.name == s.names.template && r.note.state == isTemplate }) {
		if err := s.makeTemplate(ctx); err != nil {
			return errors.Join(err, s.remove(context.WithoutCancel(ctx), s.names.template))
		}
	}
	if err := s.write(ctx, s.names.template, done); err != nil {
		return err
	}
	s.recipe, err = readRecipe(ctx, s.admin, s.names.template)
	return err
}

// makeTemplate is called under the template's lock.
func (s *mysql) makeTemplate(ctx context.Context) error {
	name := s.names.template
	if err := s.remove(ctx, name); err != nil { // of a process that was killed
		return err
	}
	if err := s.write(ctx, name, note{state: isMaking, owner: s.names.owner}); err != nil {
		return err
	}
	if err := s.exec(ctx, "CREATE DATABASE "+name); err != nil {
		return s.rights(err)
	}
	return s.migrate(ctx, name)
}

func (s *mysql) migrate(ctx context.Context, name string) error {
	to, err := dsn.MySQLDatabase(s.plan.DSN, name)
	if err != nil {
		return err
	}
	return s.plan.migrate(ctx, to)
}

func (s *mysql) make(ctx context.Context, test string) (string, error) {
	name := s.names.next()
	err := s.write(ctx, name, note{state: isMaking, owner: s.names.owner})
	if err == nil {
		err = s.copy(ctx, name)
	}
	if err == nil {
		err = s.write(ctx, name, s.plan.forTest(s.names.owner, test))
	}
	if err != nil {
		return "", errors.Join(err, s.remove(context.WithoutCancel(ctx), name))
	}
	return name, nil
}

// copy makes the clone by the template's recipe. If the template has something that the recipe does
// not know, or the copy fails, the migrations make the clone.
func (s *mysql) copy(ctx context.Context, name string) error {
	if s.recipe.complete {
		err := s.recipe.copyTo(ctx, s.admin, name)
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	if err := s.exec(ctx, "DROP DATABASE IF EXISTS "+name); err != nil {
		return err
	}
	if err := s.exec(ctx, "CREATE DATABASE "+name+s.recipe.defaults); err != nil {
		return err
	}
	return s.migrate(ctx, name)
}

func (s *mysql) take(ctx context.Context, test string) (string, error) {
	tx, err := s.admin.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return "", err
	}
	defer tx.Rollback()
	var name string
	err = tx.QueryRowContext(ctx, "SELECT name FROM "+s.registry+" WHERE state = ? AND template = ? LIMIT 1 FOR UPDATE SKIP LOCKED",
		inStock, s.names.template).Scan(&name)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	n := s.plan.forTest(s.names.owner, test)
	if _, err := tx.ExecContext(ctx, "UPDATE "+s.registry+" SET state = ?, owner = ?, test = ? WHERE name = ?",
		n.state, n.owner, cut(n.test), name); err != nil {
		return "", err
	}
	return name, tx.Commit()
}

func (s *mysql) stocked(ctx context.Context) (n int, err error) {
	err = s.admin.QueryRowContext(ctx, "SELECT count(*) FROM "+s.registry+" WHERE state = ? AND template = ?", inStock, s.names.template).Scan(&n)
	return n, err
}

func (s *mysql) keep(ctx context.Context, name, test string) (string, error) {
	return name, s.write(ctx, name, note{state: isKept, test: test})
}

func (s *mysql) dsn(name string) string {
	to, _ := dsn.MySQLDatabase(s.plan.DSN, name) // open has seen that it can be changed
	return to
}

// close ends the session, and its lock with it.
func (s *mysql) close() {
	if s.session != nil {
		_ = s.forget(context.Background(), s.names.owner)
	}
	s.sqlServer.close()
}

// write notes something of a template, a clone or an owner.
func (s *mysql) write(ctx context.Context, name string, n note) error {
	return s.exec(ctx, "REPLACE INTO "+s.registry+" (name, template, state, owner, test, until) VALUES (?, ?, ?, ?, ?, ?)",
		name, s.names.template, n.state, n.owner, cut(n.test), n.until.Unix())
}

// cut shortens a test's name to what the table of notes can have.
func cut(test string) string { return test[:min(len(test), 255)] }

// rights says what a user without rights needs.
func (s *mysql) rights(err error) error {
	if isDenied(err) {
		return fmt.Errorf("the user of the DSN may not create databases whose names begin with sandbox_ (GRANT ALL ON `sandbox\\_%%`.* TO … allows it): %w", err)
	}
	return err
}
