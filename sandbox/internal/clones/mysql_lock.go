package clones

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"
)

// day is how long a process waits for the migrations of another process. MySQL and MariaDB have no
// endless wait in common for GET_LOCK.
const day = 24 * time.Hour

// lockMySQL takes a lock for as long as conn's session lasts. It reports false if somebody else
// still has it after the wait.
func lockMySQL(ctx context.Context, conn *sql.Conn, key string, wait time.Duration) (bool, error) {
	var got sql.NullInt64
	err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", lockName(key), int(wait.Seconds())).Scan(&got)
	return got.Int64 == 1, err
}

// lockName is short enough for both servers.
func lockName(key string) string { return "sandbox " + shorten(key, 40) }

var errLocked = errors.New("another process has held the lock of the template for a day")

// lockTemplate takes the template's lock on a connection of its own.
func (s *mysql) lockTemplate(ctx context.Context, wait time.Duration) (unlock func(), err error) {
	conn, err := s.admin.Conn(ctx)
	if err != nil {
		return nil, err
	}
	got, err := lockMySQL(ctx, conn, "template "+s.names.template, wait)
	if err == nil && !got {
		err = errLocked
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return func() {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "DO RELEASE_LOCK(?)", lockName("template "+s.names.template))
		_ = conn.Close()
	}, nil
}

// isDenied reports whether the server has refused a statement for want of rights. The driver tells
// an error's number by a type of its own, which this package does not link, and in the text.
func isDenied(err error) bool {
	text := err.Error()
	return strings.Contains(text, "Error 1044") || strings.Contains(text, "Error 1142") || strings.Contains(text, "Error 1227")
}
