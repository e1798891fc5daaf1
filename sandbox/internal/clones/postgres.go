package clones

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/pooldriver/pooldriver/internal/dsn"
)

// postgres copies databases by CREATE DATABASE … TEMPLATE. Notes are comments. Locks are advisory locks in the database of
// the plan's DSN, which all processes with this DSN share.
type postgres struct{ sqlServer }

// To copy the files costs two checkpoints. On a server that does not wait for its disk (fsync=off) that took a third of the
// time of the default, which writes each page to the log. On a server that waits, it took three times as long.
var onPostgres = sqlDialect{
	keepAlive: `SELECT CASE WHEN current_setting('server_version_num')::int >= 140000
		THEN set_config('idle_session_timeout', '0', false) END`,
	identity: `SELECT current_user, current_database(),
		CASE WHEN current_setting('fsync') = 'off' AND current_setting('server_version_num')::int >= 150000
		THEN ' STRATEGY file_copy' ELSE '' END`,
	lock:    "SELECT pg_advisory_lock(hashtextextended($1, 0)) IS NOT NULL",
	tryLock: "SELECT pg_try_advisory_lock(hashtextextended($1, 0))",
	unlock:  "SELECT pg_advisory_unlock(hashtextextended($1, 0))",
	has:     "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)",
	notes: `SELECT datname || ' ' || coalesce(shobj_description(oid, 'pg_database'), '') FROM pg_database
		WHERE starts_with(datname, $1)`,
	connected: func(ctx context.Context, conn *sql.Conn, database string) (found bool, err error) {
		// Autovacuum's workers do not count: they leave by themselves.
		const query = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend')"
		err = conn.QueryRowContext(ctx, query, database).Scan(&found)
		return found, err
	},
}

func openPostgres(ctx context.Context, p Plan) (server, error) {
	s := &postgres{sqlServer{plan: p, dialect: onPostgres}}
	return s, s.connect(ctx)
}

func (s *postgres) prepare(ctx context.Context) (recipe, error) { return s.prepareBy(ctx, s) }

// readRecipe implements templateMaker: the server knows how to copy.
func (s *postgres) readRecipe(context.Context) (recipe, error) { return recipe{}, nil }

// makeTemplate implements templateMaker. The template gets its name when it is complete.
func (s *postgres) makeTemplate(ctx context.Context) error {
	name := s.template + unfinishedSuffix
	if err := s.remove(ctx, name); err != nil { // of a process that was killed
		return err
	}
	if err := s.exec(ctx, "CREATE DATABASE "+name); err != nil {
		return s.explainDenied(err)
	}
	err := s.plan.migrate(ctx, dsn.PostgresDatabase(s.plan.DSN, name))
	if err == nil {
		err = s.execAll(ctx,
			// The server copies no database to which somebody is connected: the migrations may have left sessions.
			"ALTER DATABASE "+name+" WITH ALLOW_CONNECTIONS false",
			"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = current_user AND datname = "+quoteText(name),
			"ALTER DATABASE "+name+" RENAME TO "+s.template)
	}
	if err != nil {
		return errors.Join(err, s.remove(context.WithoutCancel(ctx), name))
	}
	return nil
}

func (s *postgres) make(ctx context.Context, _ recipe, test string) (name, to string, err error) {
	name = s.next()
	if err := s.lock(ctx, name); err != nil {
		return "", "", err
	}
	// The server finishes what it has begun, whoever waits for it.
	err = s.exec(context.WithoutCancel(ctx), "CREATE DATABASE "+name+" TEMPLATE "+s.template+s.strategy)
	if err == nil {
		err = s.note(ctx, name, usedNote+test)
	}
	if err != nil {
		return "", "", errors.Join(err, s.remove(context.WithoutCancel(ctx), name))
	}
	return name, dsn.PostgresDatabase(s.plan.DSN, name), nil
}

func (s *postgres) keep(ctx context.Context, name, test string) (string, error) {
	return name, s.note(ctx, name, keptNote+test)
}

func (s *postgres) note(ctx context.Context, name, note string) error {
	return s.exec(ctx, "COMMENT ON DATABASE "+name+" IS "+quoteText(note))
}

// remove drops a database, if it exists, and ends the sessions that are left there. FORCE fails if autovacuum is at work,
// because no user may end it. Without FORCE the server stops autovacuum itself, and waits 5 s for the end of all others.
func (s *postgres) remove(ctx context.Context, name string) error {
	drop := "DROP DATABASE IF EXISTS " + name + " WITH (FORCE)"
	err := s.exec(ctx, drop)
	switch {
	case !lacksRight(err):
		return err
	case s.exec(ctx, "DROP DATABASE IF EXISTS "+name) == nil:
		return nil
	}
	return s.exec(ctx, drop)
}

// lacksRight reports whether the user has not got the right for a statement.
func lacksRight(err error) bool {
	var state interface{ SQLState() string }
	return errors.As(err, &state) && state.SQLState() == "42501"
}

// explainDenied says what a user without rights needs.
func (s *postgres) explainDenied(err error) error {
	if lacksRight(err) {
		return fmt.Errorf("the user of the DSN may not create databases (ALTER ROLE … CREATEDB allows it; sandbox.DB needs no such right): %w", err)
	}
	return err
}
