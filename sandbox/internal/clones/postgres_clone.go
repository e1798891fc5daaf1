package clones

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

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
		return s.exec(context.WithoutCancel(ctx), "CREATE DATABASE "+name+" TEMPLATE "+s.names.template+s.strategy)
	}
	if err := s.exec(ctx, "CREATE SCHEMA "+name); err != nil {
		return s.rights(err)
	}
	return s.plan.migrate(ctx, s.dsn(name))
}

// strategyOf chooses how a template is copied. To copy the files costs two checkpoints. On a
// server that does not wait for its disk (fsync=off) that took a third of the time of the default,
// which writes each page to the log. On a server that waits, it took three times as long.
func strategyOf(ctx context.Context, db *sql.DB) (strategy string, err error) {
	const query = `SELECT CASE WHEN current_setting('fsync') = 'off' AND current_setting('server_version_num')::int >= 150000
		THEN ' STRATEGY file_copy' ELSE '' END`
	err = db.QueryRowContext(ctx, query).Scan(&strategy)
	return strategy, err
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

func (s *postgres) keep(ctx context.Context, name, test string) (string, error) {
	return name, s.comment(ctx, name, note{state: isKept, test: test})
}

// remove drops a database or schema, if it exists. Sessions that hold locks in a schema are ended
// first, as FORCE does for a database: a session that is left at the end of a test was forgotten.
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
	drop := "DROP " + s.kind.object + " IF EXISTS " + name
	forced := drop + " " + s.kind.options
	err := s.exec(ctx, forced)
	if !s.kind.hasTemplate || !lacksRight(err) {
		return err
	}
	// FORCE fails if autovacuum is at work in the database, because no user may end it. Without
	// FORCE the server stops autovacuum itself, and waits 5 s for the end of all others.
	if s.exec(ctx, drop) == nil {
		return nil
	}
	return s.exec(ctx, forced)
}

// lacksRight reports whether the user has not got the right for a statement.
func lacksRight(err error) bool {
	var state interface{ SQLState() string }
	return errors.As(err, &state) && state.SQLState() == "42501"
}

// rights says what a user without rights needs.
func (s *postgres) rights(err error) error {
	if !lacksRight(err) {
		return err
	}
	if s.kind.hasTemplate {
		return fmt.Errorf("the user of the DSN may not create databases (ALTER ROLE … CREATEDB allows it; sandbox.Schema needs no such right): %w", err)
	}
	return fmt.Errorf("the user of the DSN may not create schemas in its database (GRANT CREATE ON DATABASE … allows it): %w", err)
}
