package clones

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver/sandbox/internal/dsn"
)

// postgres makes databases or schemas on PostgreSQL. Notes are comments. Locks are advisory locks
// in the database of the plan's DSN, which all processes with this DSN share:
//
//   - the owner's lock is held by a process for as long as its clones are used;
//   - the template's lock is held shared by each process that clones it, and alone by who makes or
//     removes it;
//   - the realm's lock is held for a transaction that takes a clone from the stock.
type postgres struct {
	plan  *Plan
	kind  postgresKind
	names names
	admin *sql.DB
	// session holds the owner's and the template's lock. Only open, hold and close use it.
	session *sql.Conn
}

// postgresKind is what databases and schemas differ in.
type postgresKind struct {
	list    string // names that begin with $1, and their comments
	object  string // in COMMENT ON and DROP
	options string // of DROP
	dsn     func(dsn, name string) string
	// hasTemplate: the server can copy one.
	hasTemplate bool
}

var databases = postgresKind{
	list: `SELECT datname, coalesce(shobj_description(oid, 'pg_database'), '') FROM pg_database
		WHERE starts_with(datname, $1)`,
	object: "DATABASE", options: "WITH (FORCE)",
	dsn: dsn.PostgresDatabase, hasTemplate: true,
}

var schemas = postgresKind{
	list: `SELECT nspname, coalesce(obj_description(oid, 'pg_namespace'), '') FROM pg_namespace
		WHERE starts_with(nspname, $1)`,
	object: "SCHEMA", options: "CASCADE",
	dsn: dsn.PostgresSchema,
}

func newPostgres(p *Plan, kind postgresKind) *postgres { return &postgres{plan: p, kind: kind} }

// postgresConns are the session with the locks, one for the stock and some for tests that begin
// or end.
const postgresConns = 5

func (s *postgres) open(ctx context.Context) (err error) {
	if s.admin, err = s.plan.Open(s.plan.DSN, postgresConns); err != nil {
		return err
	}
	var user, database string
	if err := s.admin.QueryRowContext(ctx, "SELECT current_user, current_database()").Scan(&user, &database); err != nil {
		return fmt.Errorf("connecting to the DSN's database, from which the others are made: %w", err)
	}
	s.names = newNames(s.plan.Hash, string(s.plan.Kind), user, database)
	if err := s.newSession(ctx); err != nil {
		return err
	}
	if err := s.sweep(ctx); err != nil {
		return fmt.Errorf("removing what ended processes have left: %w", err)
	}
	return s.prepare(ctx)
}

// newSession takes the owner's lock.
func (s *postgres) newSession(ctx context.Context) (err error) {
	if s.session, err = s.admin.Conn(ctx); err != nil {
		return err
	}
	// The server must not end a session that has nothing to do.
	if _, err := s.session.ExecContext(ctx, "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'"); err != nil {
		return err
	}
	return s.lock(ctx, "pg_advisory_lock", "owner "+s.names.owner)
}

func (s *postgres) hold(ctx context.Context) error {
	if _, err := s.session.ExecContext(ctx, "SELECT 1"); err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	_ = s.session.Close()
	if err := s.newSession(ctx); err != nil {
		return err
	}
	return s.lock(ctx, "pg_advisory_lock_shared", "template "+s.names.template)
}

// prepare makes the template, or the first clone where there are no templates. So it is here that
// broken migrations are met.
func (s *postgres) prepare(ctx context.Context) error {
	key := "template " + s.names.template
	if err := s.lock(ctx, "pg_advisory_lock_shared", key); err != nil {
		return err
	}
	all, err := s.all(ctx)
	if err != nil {
		return err
	}
	if !s.kind.hasTemplate {
		for _, l := range all {
			if l.note.state == inStock && s.names.isClone(l.name) {
				return nil
			}
		}
		_, err := s.make(ctx, "")
		return err
	}
	if t, found := find(all, s.names.template); found {
		return s.touch(ctx, t.note)
	}
	// Two processes that hold the lock shared would wait for each other.
	if err := s.lock(ctx, "pg_advisory_unlock_shared", key); err != nil {
		return err
	}
	if err := s.lock(ctx, "pg_advisory_lock", key); err != nil {
		return err
	}
	if err := s.makeTemplate(ctx); err != nil {
		return err
	}
	if err := s.lock(ctx, "pg_advisory_lock_shared", key); err != nil {
		return err
	}
	return s.lock(ctx, "pg_advisory_unlock", key)
}

// touch says that the template is used, at most twice in the time that it is kept.
func (s *postgres) touch(ctx context.Context, n note) error {
	if n.state == isTemplate && time.Until(n.until) > s.plan.Keep/2 {
		return nil
	}
	return s.comment(ctx, s.names.template, note{state: isTemplate, until: time.Now().Add(s.plan.Keep)})
}

// makeTemplate is called under the template's lock. The template gets its name when it is
// complete.
func (s *postgres) makeTemplate(ctx context.Context) error {
	all, err := s.all(ctx)
	if err != nil {
		return err
	}
	if _, found := find(all, s.names.template); found {
		return nil // another process has made it meanwhile
	}
	unfinished := s.names.unfinished()
	if err := s.remove(ctx, unfinished); err != nil { // of a process that was killed
		return err
	}
	if err := s.exec(ctx, "CREATE DATABASE "+unfinished); err != nil {
		return s.rights(err)
	}
	if err := s.finish(ctx, unfinished); err != nil {
		return errors.Join(err, s.remove(context.WithoutCancel(ctx), unfinished))
	}
	return nil
}

// finish migrates the template and closes it to connections: the server copies no database to
// which somebody is connected.
func (s *postgres) finish(ctx context.Context, unfinished string) error {
	if err := s.plan.migrate(ctx, s.dsn(unfinished)); err != nil {
		return err
	}
	if err := s.exec(ctx, "ALTER DATABASE "+unfinished+" WITH ALLOW_CONNECTIONS false"); err != nil {
		return err
	}
	// Sessions that the migrations have left open.
	if err := s.exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND usename = current_user", unfinished); err != nil {
		return err
	}
	if err := s.exec(ctx, "ALTER DATABASE "+unfinished+" RENAME TO "+s.names.template); err != nil {
		return err
	}
	return s.touch(ctx, note{})
}

func (s *postgres) make(ctx context.Context, test string) (string, error) {
	name := s.names.next()
	err := s.copy(ctx, name)
	if err == nil {
		err = s.comment(ctx, name, s.plan.forTest(s.names.owner, test))
	}
	if err != nil {
		return "", errors.Join(err, s.remove(context.WithoutCancel(ctx), name))
	}
	return name, nil
}

// copy makes the clone. A schema cannot be copied: the migrations make it.
func (s *postgres) copy(ctx context.Context, name string) error {
	if s.kind.hasTemplate {
		// The server finishes what it has begun, whoever waits for it.
		return s.exec(context.WithoutCancel(ctx), "CREATE DATABASE "+name+" TEMPLATE "+s.names.template)
	}
	if err := s.exec(ctx, "CREATE SCHEMA "+name); err != nil {
		return s.rights(err)
	}
	return s.plan.migrate(ctx, s.dsn(name))
}

// take changes the note of a clone in the stock, under the realm's lock.
func (s *postgres) take(ctx context.Context, test string) (string, error) {
	tx, err := s.admin.BeginTx(ctx, nil)
	if err != nil {
		return "", err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", lockKey("realm "+s.names.realm)); err != nil {
		return "", err
	}
	all, err := s.query(ctx, tx, s.names.template+"_")
	if err != nil {
		return "", err
	}
	for _, l := range all {
		if l.note.state != inStock {
			continue
		}
		n := s.plan.forTest(s.names.owner, test)
		if _, err := tx.ExecContext(ctx, s.commentText(l.name, n)); err != nil {
			return "", err
		}
		return l.name, tx.Commit()
	}
	return "", nil
}

func (s *postgres) stocked(ctx context.Context) (int, error) {
	all, err := s.query(ctx, s.admin, s.names.template+"_")
	n := 0
	for _, l := range all {
		if l.note.state == inStock {
			n++
		}
	}
	return n, err
}

func (s *postgres) drop(ctx context.Context, name string) error { return s.remove(ctx, name) }

func (s *postgres) keep(ctx context.Context, name, test string) (string, error) {
	return name, s.comment(ctx, name, note{state: isKept, test: test})
}

func (s *postgres) dsn(name string) string { return s.kind.dsn(s.plan.DSN, name) }

// close ends the session, and its locks with it.
func (s *postgres) close() {
	if s.session != nil {
		_ = s.session.Close()
	}
	if s.admin != nil {
		_ = s.admin.Close()
	}
}

// remove drops a database or schema, if it exists. Sessions that hold locks in a schema are ended
// first, as FORCE does for a database: at the end of a test somebody has forgotten them.
func (s *postgres) remove(ctx context.Context, name string) error {
	if !s.kind.hasTemplate {
		const holders = `SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
			JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_stat_activity a ON a.pid = l.pid
			WHERE n.nspname = $1 AND a.usename = current_user AND l.pid <> pg_backend_pid()
			AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`
		if err := s.exec(ctx, holders, name); err != nil {
			return err
		}
	}
	return s.exec(ctx, strings.Join([]string{"DROP", s.kind.object, "IF EXISTS", name, s.kind.options}, " "))
}

// lock calls a function of advisory locks on the session.
func (s *postgres) lock(ctx context.Context, function, key string) error {
	_, err := s.session.ExecContext(ctx, "SELECT "+function+"($1)", lockKey(key))
	return err
}

func (s *postgres) exec(ctx context.Context, text string, args ...any) error {
	_, err := s.admin.ExecContext(ctx, text, args...)
	return err
}

func (s *postgres) comment(ctx context.Context, name string, n note) error {
	return s.exec(ctx, s.commentText(name, n))
}

func (s *postgres) commentText(name string, n note) string {
	return "COMMENT ON " + s.kind.object + " " + name + " IS '" + strings.ReplaceAll(n.String(), "'", "''") + "'"
}

// all lists everything of the realm.
func (s *postgres) all(ctx context.Context) ([]listed, error) {
	return s.query(ctx, s.admin, s.names.realm)
}

type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func (s *postgres) query(ctx context.Context, from queryer, prefix string) ([]listed, error) {
	rows, err := from.QueryContext(ctx, s.kind.list, prefix)
	if err != nil {
		return nil, err
	}
	return readListed(rows)
}

func readListed(rows *sql.Rows) (all []listed, err error) {
	defer rows.Close()
	for rows.Next() {
		var l listed
		var comment string
		if err := rows.Scan(&l.name, &comment); err != nil {
			return nil, err
		}
		l.note = readNote(comment)
		all = append(all, l)
	}
	return all, rows.Err()
}

func find(all []listed, name string) (listed, bool) {
	for _, l := range all {
		if l.name == name {
			return l, true
		}
	}
	return listed{}, false
}

// rights says what a user without rights needs.
func (s *postgres) rights(err error) error {
	var state interface{ SQLState() string }
	if !errors.As(err, &state) || state.SQLState() != "42501" {
		return err
	}
	if s.kind.hasTemplate {
		return fmt.Errorf("the user of the DSN may not create databases (ALTER ROLE … CREATEDB allows it; sandbox.Schema needs no such right): %w", err)
	}
	return fmt.Errorf("the user of the DSN may not create schemas in its database (GRANT CREATE ON DATABASE … allows it): %w", err)
}
