package clones

import (
	"context"
	"database/sql"
)

// sweepBehindAll calls behind for each guard of all. A guard is a lock: what it guards is removed only after
// the lock's holder is gone. All calls get one session of admin that holds none of the guards, because
// a session that holds a lock could always take it again.
func sweepBehindAll[L any](ctx context.Context, admin *sql.DB, all []L, guardOf func(L) string, behind func(ctx context.Context, conn *sql.Conn, guard string) error) error {
	guards := map[string]bool{}
	for _, l := range all {
		guards[guardOf(l)] = true
	}
	delete(guards, "") // nothing is to be removed
	if len(guards) == 0 {
		return nil
	}
	conn, err := admin.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for guard := range guards {
		if err := behind(ctx, conn, guard); err != nil {
			return err
		}
	}
	return nil
}
