package clones

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/pooldriver/pooldriver/internal/dsn"
)

// postgres makes databases or schemas on PostgreSQL. Notes are comments. Locks are advisory locks
// in the database of the plan's DSN, which all processes with this DSN share:
//
//   - the owner's lock is held by a process for as long as its clones are used;
//   - the template's lock is held shared by each process that clones the template, and exclusively
//     by whoever makes or removes the template;
//   - the realm's lock is held for a transaction that takes a clone from the stock.
type postgres struct {
	sqlServer
	kind postgresKind
	// strategy is how a template is copied, as an option of CREATE DATABASE; written by open.
	strategy string
}

// postgresKind has the differences between databases and schemas.
type postgresKind struct {
	list    string // names that begin with $1, and their comments
	object  string // in COMMENT ON and DROP
	options string // of DROP
	dsn     func(dsn, name string) string
	// hasTemplate: the server can copy a template.
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

func newPostgres(p *Plan, kind postgresKind) *postgres {
	return &postgres{sqlServer: sqlServer{plan: p}, kind: kind}
}

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
	if s.strategy, err = strategyOf(ctx, s.admin); err != nil {
		return err
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
func (s *postgres) newSession(ctx context.Context) error {
	if err := s.connect(ctx, "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'"); err != nil {
		return err
	}
	return s.lock(ctx, "pg_advisory_lock", "owner "+s.names.owner)
}

func (s *postgres) hold(ctx context.Context) error {
	if lost, err := s.lost(ctx); !lost {
		return err
	}
	if err := s.newSession(ctx); err != nil {
		return err
	}
	return s.lock(ctx, "pg_advisory_lock_shared", "template "+s.names.template)
}

func (s *postgres) dsn(name string) string { return s.kind.dsn(s.plan.DSN, name) }

// lock calls a function of advisory locks on the session.
func (s *postgres) lock(ctx context.Context, function, key string) error {
	_, err := s.session.ExecContext(ctx, "SELECT "+function+"($1)", lockKey(key))
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

func (s *postgres) query(ctx context.Context, from queryer, prefix string) ([]listed, error) {
	return collect(ctx, from, func(rows *sql.Rows, l *listed) error {
		var comment string
		err := rows.Scan(&l.name, &comment)
		l.note = readNote(comment)
		return err
	}, s.kind.list, prefix)
}

func find(all []listed, name string) (listed, bool) {
	for _, l := range all {
		if l.name == name {
			return l, true
		}
	}
	return listed{}, false
}
