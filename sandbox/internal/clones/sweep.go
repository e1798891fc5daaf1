package clones

import (
	"context"
	"database/sql"
)

// sweepBehindAll calls behind for each guard. A guard is a lock: what it guards is removed only after
// the lock's holder is gone. All calls get one session of admin that holds none of the guards, because
// a session that holds a lock could always take it again.
func sweepBehindAll(ctx context.Context, admin *sql.DB, guards map[string]bool, behind func(ctx context.Context, conn *sql.Conn, guard string) error) error {
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
