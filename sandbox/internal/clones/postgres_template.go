package clones

import (
	"context"
	"errors"
	"time"
)

// prepare makes the template, or the first clone where there are no templates. So prepare finds
// broken migrations.
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
