// Package pooldriver is a connection pool that lives below database/sql.
//
//	import (
//		"github.com/pooldriver/pooldriver"
//		_ "github.com/pooldriver/pooldriver/dialects/postgres"
//	)
//
//	db := sql.OpenDB(pooldriver.New("postgres://app:secret@db/shop?pool_max_conns=20"))
//
// The result is an ordinary *sql.DB, for every program, ORM and query builder
// that works with one. Behind it:
//
//   - Real connections are opened when they are needed, and there are never
//     more of them than pool_max_conns, as the server counts them: a place is
//     free only when the server has let go of the connection that had it, or
//     has kept it for 5 s after its end (Stats.Orphans). (One short connection
//     that kills a cancelled MySQL statement is exempt.)
//   - Waiters are served in the order they came.
//   - Nothing that one borrower leaves on a connection reaches the next one:
//     open transactions are rolled back; session variables, roles, temporary
//     tables and advisory locks are cleaned away.
//   - A connection that died while idle is replaced before a statement runs
//     on it. A statement is executed again only where the server cannot have
//     executed it before.
//   - No way of printing a value of this package shows a password.
//
// # How it works
//
// database/sql pools connections of its own. What it pools here are virtual
// connections, which cost an object each. A checkout is the time between
// database/sql taking a virtual connection and putting it back. The first
// operation of a checkout attaches a real connection from the pool; it stays
// until the checkout ends, so a *sql.Tx or *sql.Conn keeps its session. At the
// end of the checkout the real connection is looked at: with nothing left on
// it, it is lent again at once; with an open transaction or a changed session
// it is rolled back and cleaned first, behind the caller; in doubt it is
// closed.
//
// The settings of the *sql.DB (SetMaxOpenConns and so on) bound virtual
// connections and can be left alone. SetMaxIdleConns(1000) saves making them
// anew; Open does that.
//
// # What a statement leaves behind
//
// Whether a transaction is open is asked of the server, where the protocol
// tells it (PostgreSQL, MySQL). What else a statement does to its session is
// read from its text; a statement that changes the session, or may, has the
// connection cleaned. What no text shows, such as a trigger that sets a session
// variable, stays unseen: pool_reset=always cleans after every checkout.
//
// # Errors
//
// The driver's own errors come through as they are. Beside them a statement may
// fail for lack of a connection: with a *pool.AcquireError, whose reason is
// pool.ErrTimeout (pool_acquire_timeout; also a context.DeadlineExceeded),
// pool.ErrTooManyWaiters, pool.ErrUnavailable (the circuit breaker) or the
// error of the statement's context; or with the error of the dial it waited
// for, which begins "pooldriver: connecting to". One more stands for
// driver.ErrBadConn where the statement had been sent and may or may not have
// been executed: it is an io.ErrUnexpectedEOF, and the program has to look.
//
// # What is different from a driver without a pool below
//
// The list is closed, reviewed and tested: docs/transparency.md.
//
// # Reading the source
//
// README.md, this file, connector.go, conn.go, binding.go (which real
// connection serves an operation), pinning.go (when it goes back, and in what
// state), cleaning.go, then package pool.
package pooldriver
