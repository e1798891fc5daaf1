package clones

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"time"
)

// row is a template, a clone or an owner, with the template that it belongs to.
type row struct {
	listed
	template string
}

func (s *mysql) rows(ctx context.Context) ([]row, error) {
	return collect(ctx, s.admin, func(rows *sql.Rows, r *row) error {
		var until int64
		err := rows.Scan(&r.name, &r.template, &r.note.state, &r.note.owner, &r.note.test, &until)
		r.note.until = time.Unix(until, 0)
		return err
	}, "SELECT name, template, state, owner, test, until FROM "+s.registry)
}

// sweep removes the clones of owners that are gone, templates that nobody has finished, and
// templates and stock whose time is over. It never waits for a lock: a lock that somebody holds
// guards something in use.
func (s *mysql) sweep(ctx context.Context) error {
	all, err := s.rows(ctx)
	if err != nil {
		return err
	}
	return sweepBehindAll(ctx, s.admin, all, s.guard, s.sweepBehind)
}

// guard is the lock under which r may be removed, empty if it is not to be removed.
func (s *mysql) guard(r row) string {
	switch {
	case r.name == r.template && r.note.state == isMaking, r.note.expired(time.Now()):
		return "template " + r.template
	case r.note.state == isUsed, r.note.state == isMaking, r.note.state == isOwner:
		return "owner " + r.note.owner
	}
	return ""
}

// sweepBehind removes what the lock guards, if nobody holds the lock. It asks for the list again: a
// clone of the earlier list may have been given to a test since.
func (s *mysql) sweepBehind(ctx context.Context, conn *sql.Conn, guard string) error {
	free, err := lockMySQL(ctx, conn, guard, 0)
	if err != nil || !free {
		return err
	}
	defer func() {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK(?)", lockName(guard))
	}()
	all, err := s.rows(ctx)
	if err != nil {
		return err
	}
	for _, r := range all {
		if s.guard(r) != guard {
			continue
		}
		if r.note.expired(time.Now()) {
			used, err := s.isUsed(ctx, r.template, all)
			if err != nil || used {
				return err
			}
		}
		// What cannot be removed is left to the next process.
		if r.note.state == isOwner {
			_ = s.forget(ctx, r.name)
		} else {
			_ = s.remove(ctx, r.name)
		}
	}
	return nil
}

// isUsed reports whether an owner that lives uses the template. The template's lock keeps new owners
// away.
func (s *mysql) isUsed(ctx context.Context, template string, all []row) (bool, error) {
	for _, r := range all {
		if r.note.state != isOwner || r.template != template {
			continue
		}
		var free sql.NullInt64
		err := s.admin.QueryRowContext(ctx, "SELECT IS_FREE_LOCK(?)", lockName("owner "+r.note.owner)).Scan(&free)
		if err != nil || free.Int64 == 0 {
			return true, err
		}
	}
	return false, nil
}

// remove drops a database and its note. Sessions that still use the database are ended first: the
// server would wait for their transactions.
func (s *mysql) remove(ctx context.Context, name string) error {
	if err := s.endSessions(ctx, name); err != nil {
		return fmt.Errorf("ending the sessions that use the database %s: %w", name, err)
	}
	if err := s.exec(ctx, "DROP DATABASE IF EXISTS "+quote(name)); err != nil {
		return err
	}
	return s.forget(ctx, name)
}

// forget removes a note.
func (s *mysql) forget(ctx context.Context, name string) error {
	return s.exec(ctx, "DELETE FROM "+s.registry+" WHERE name = ?", name)
}

func (s *mysql) endSessions(ctx context.Context, database string) error {
	type process struct {
		id int64
		at sql.NullString
	}
	all, err := collect(ctx, s.admin, func(rows *sql.Rows, p *process) error {
		columns, err := rows.Columns()
		// Id, User, Host, db; MariaDB has more columns than MySQL.
		to := []any{&p.id, new(any), new(any), &p.at}
		for len(to) < len(columns) {
			to = append(to, new(any))
		}
		return cmp.Or(err, rows.Scan(to...))
	}, "SHOW PROCESSLIST")
	for _, p := range all {
		if p.at.String == database {
			// A session that has ended by itself meanwhile is an error to the server.
			_ = s.exec(ctx, fmt.Sprintf("KILL %d", p.id))
		}
	}
	return err
}
