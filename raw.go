package pooldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/pooldriver/pooldriver/internal/virtual"
)

// Raw calls fn with the driver's own connection behind conn, for features that only the
// driver has: COPY with pgx, backups with SQLite. (LISTEN: see Connector.Listen.) (conn.Raw gives
// the virtual connection, on which a type assertion to the driver's type
// fails: docs/migrating.md.) Raw also finds the connection beneath a wrapper such as otelsql:
// docs/wrappers.md. On a SQLite database in memory fn gets our connection around the driver's,
// with the same methods.
//
//	err := pooldriver.Raw(ctx, conn, func(dc driver.Conn) error {
//		pg := dc.(*stdlib.Conn).Conn()
//		_, err := pg.CopyFrom(ctx, …)
//		return err
//	})
//
// The connection belongs to fn until fn returns; fn must not keep or close it. Until then every
// other use of conn, by fn or by another goroutine, is an error at once: a statement, a BeginTx,
// another Raw, a read of rows that conn has open. A transaction of conn that is to end meanwhile
// is rolled back when fn returns. pooldriver does not see what fn does, so it cleans the session
// afterwards, when conn is closed (not with ResetOff). ctx is only for the connection that Raw
// takes from the pool if conn has none yet. Raw returns an error of fn as it is;
// driver.ErrBadConn closes the connection. If fn panics, the connection is closed, and the panic
// goes on.
func Raw(ctx context.Context, sqlConn *sql.Conn, fn func(driver.Conn) error) (err error) {
	switch {
	case sqlConn == nil:
		return errors.New("pooldriver: Raw was given no *sql.Conn")
	case fn == nil:
		return errors.New("pooldriver: Raw was given no function")
	}
	// database/sql's Raw holds a lock. Under that lock every use of sqlConn by fn would wait for
	// ever. So fn is called between two calls of database/sql's Raw.
	var l *virtual.Loan
	if err := sqlConn.Raw(func(dc any) (err error) {
		l, err = virtual.Lend(ctx, dc)
		return err
	}); err != nil {
		return err
	}
	err = virtual.ErrRawPanicked
	defer func() {
		ended := false
		_ = sqlConn.Raw(func(any) error {
			ended = true
			l.End(err)
			if err == virtual.ErrRawPanicked {
				return driver.ErrBadConn // database/sql closes sqlConn
			}
			return err
		})
		if !ended {
			l.EndWithoutLock(err)
		}
	}()
	err = l.Call(fn)
	return err
}
