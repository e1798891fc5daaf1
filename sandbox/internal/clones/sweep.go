package clones

import (
	"context"
	"slices"
	"strings"
	"time"
)

// sweep removes the clones whose lock is free, half-made templates, and templates whose time is over. It never waits for a
// lock. What cannot be removed is left to the next process.
func (s *sqlServer) sweep(ctx context.Context) error {
	names, err := s.over(ctx, s.realm)
	if err != nil {
		return err
	}
	var free []string
	for _, name := range names {
		err := s.locked(ctx, name, func() {
			if s.isClone(name) {
				free = append(free, name)
			} else {
				s.removeUnused(ctx, name)
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
		if err := s.locked(ctx, name, func() { s.removeUnused(ctx, name) }); err != nil {
			return err
		}
	}
	return nil
}

// removeUnused is called under the lock of the database. It asks again whether the database may be removed: another process
// may have used the template since the list was made.
func (s *sqlServer) removeUnused(ctx context.Context, name string) {
	if over, err := s.over(ctx, name); err != nil || !slices.Contains(over, name) {
		return
	}
	if used, err := s.dialect.connected(ctx, s.conn, name); err == nil && !used {
		_ = s.exec(ctx, "DROP DATABASE IF EXISTS "+name)
	}
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
