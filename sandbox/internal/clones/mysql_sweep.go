package clones

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// row is a template, a clone or an owner, with the template that it belongs to.
type row struct {
	listed
	template string
}

func (s *mysql) rows(ctx context.Context) (all []row, err error) {
	rows, err := s.admin.QueryContext(ctx, "SELECT name, template, state, owner, test, until FROM "+s.registry)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		var until int64
		if err := rows.Scan(&r.name, &r.template, &r.note.state, &r.note.owner, &r.note.test, &until); err != nil {
			return nil, err
		}
		r.note.until = time.Unix(until, 0)
		all = append(all, r)
	}
	return all, rows.Err()
}

func (s *mysql) all(ctx context.Context) (all []listed, err error) {
	rows, err := s.rows(ctx)
	for _, r := range rows {
		all = append(all, r.listed)
	}
	return all, err
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
	rows, err := s.admin.QueryContext(ctx, "SHOW PROCESSLIST")
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	var ids []int64
	for rows.Next() {
		var id int64
		var at sql.NullString
		// Id, User, Host, db; MariaDB has more columns than MySQL.
		to := []any{&id, new(any), new(any), &at}
		for len(to) < len(columns) {
			to = append(to, new(any))
		}
		if err := rows.Scan(to...); err != nil {
			return err
		}
		if at.String == database {
			ids = append(ids, id)
		}
	}
	errs := []error{rows.Err(), rows.Close()}
	for _, id := range ids {
		// A session that has ended by itself meanwhile is an error to the server.
		_ = s.exec(ctx, fmt.Sprintf("KILL %d", id))
	}
	return errors.Join(errs...)
}
