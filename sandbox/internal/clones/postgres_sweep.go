package clones

import (
	"context"
	"database/sql"
	"time"
)

// sweep removes the clones of owners that are gone, templates that nobody has finished, and
// templates and stock whose time is over. It never waits for a lock: a lock that somebody holds
// guards something in use.
func (s *postgres) sweep(ctx context.Context) error {
	all, err := s.all(ctx)
	if err != nil {
		return err
	}
	return sweepBehindAll(ctx, s.admin, all, s.guard, s.sweepBehind)
}

// guard is the lock under which l may be removed, empty if l is not to be removed. Only the lock's
// holder changes the use of l, so l stays what it is under the lock.
func (s *postgres) guard(l listed) string {
	switch {
	case l.note.state == isUsed:
		return "owner " + l.note.owner
	case l.note.expired(time.Now()), l.name == s.names.templateOf(l.name)+unfinishedSuffix:
		return "template " + s.names.templateOf(l.name)
	case l.note == note{} && s.names.makerOf(l.name) != "":
		return "owner " + s.names.makerOf(l.name)
	}
	return ""
}

// sweepBehind removes what the lock guards, if nobody holds the lock. It asks for the list again: a
// clone of the earlier list may have been given to a test since.
func (s *postgres) sweepBehind(ctx context.Context, conn *sql.Conn, guard string) error {
	key := lockKey(guard)
	var free bool
	if err := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", key).Scan(&free); err != nil || !free {
		return err
	}
	// If the connection is lost, so is the lock.
	defer func() {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", key)
	}()
	all, err := s.all(ctx)
	if err != nil {
		return err
	}
	for _, l := range all {
		if s.guard(l) == guard {
			// What cannot be removed, because an administrator looks at it, is left to the next
			// process.
			_ = s.remove(ctx, l.name)
		}
	}
	return nil
}
