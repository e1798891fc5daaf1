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
//     has kept it for 5 s after its end (Stats.Orphans). (Exempt are the short
//     connections that kill cancelled statements: one for each MySQL server;
//     over ODBC, one for each statement that has to be killed.)
//   - Waiters are served in the order they came.
//   - Nothing that one borrower leaves on a connection reaches the next one:
//     open transactions are rolled back; session variables, roles, temporary
//     tables and advisory locks are cleaned away.
//   - A context may carry a task: one logical session, with its transaction and
//     state, whichever library's statements; rolled back and cleaned at its end.
//   - A statement inside a rows loop never waits for the connection that the
//     loop holds.
//   - A query with arguments is run by a prepared statement that is kept, where the
//     driver would prepare one each time.
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
// # Tasks
//
// WithTask makes a context that carries a task; Do, InTx and httptask.Middleware
// do it for a function or a request, WithTaskKey for contexts that carry
// something of the program's own. The last one's tasks, and httptask's unless it is
// told httptask.Join, are implicit: statements and transactions in them keep the
// meaning they have over plain database/sql, until the program begins a task itself.
//
// While the task's session is clean, each of its checkouts takes a connection of its
// own. From the moment a transaction begins or a statement changes the session, its
// connection is pinned, and all statements of the task go there one after the other,
// until the transaction has ended, or the task.
//
//	pin            from                          until
//	checkout       its first operation           database/sql puts it back
//	transaction    BeginTx, or the server's word commit, rollback, the task's end
//	session state  the statement                 the task's end
//	raw            Raw                           its function returns
//
// Where a connection is needed on which rows are open, the rest of the rows is
// read into memory, up to Config.NestedBuffer, and up to Config.NestedBufferTotal for
// those of all statements. Without a task that is done when others have waited for 20 ms,
// for rows of a checkout that has done nothing else, and for one after the other: where
// memory is full the others wait on. What remains is the wait cycle of tasks that hold every
// connection and wait for one more: ErrDeadlock, when nothing has moved for
// Config.DeadlockAfter. In implicit tasks statements wait for that as over plain
// database/sql: docs/adr/0008.
//
// In a task that is not implicit, statements join the transaction that is open, and
// BeginTx is a savepoint then (Config.Ambient). Transactions end in the reverse order
// of their beginning, anything else is an error. A transaction that was begun by hand
// (BEGIN) counts as one, too, where the protocol tells of it.
//
// database/sql closes a prepared statement under the lock of the virtual
// connections on which it was prepared. One that a task has prepared while it
// holds a connection can be closed at any time; one that was prepared before, and
// is closed inside, may have to wait for those who use it.
//
// A Valuer is called before the task's connection is taken, so it may query. Under
// pgx it is called by the driver, on the connection: there a Valuer that queries
// in its own task needs a second connection to be free, and cannot be used in a
// transaction: it would wait for itself until its context ends.
//
// # What a statement leaves behind
//
// Whether a transaction is open is asked of the server, where the protocol
// tells it (PostgreSQL, MySQL). What else a statement does to its session is
// read from its text; a statement that changes the session, or may, has the
// connection cleaned. What no text shows, such as a trigger that sets a session
// variable, stays unseen: pool_reset=always cleans after every checkout.
// PostgreSQL does not plan a prepared statement anew, and so neither pgx's cached
// ones, when a temporary table comes to hide a table that it reads.
//
// # Several servers
//
// A DSN may name several servers, and by target_session_attrs which of them will
// do. Connections to one that no longer does are replaced as they come back: see
// docs/servers.md, and docs/adr/0010.
//
// # Errors
//
// The driver's own errors come through as they are. Beside them a statement may
// fail for lack of a connection: with a *pool.AcquireError, whose reason is
// pool.ErrTimeout (pool_acquire_timeout; also a context.DeadlineExceeded),
// pool.ErrTooManyWaiters, pool.ErrUnavailable (the circuit breaker) or the
// error of the statement's context; or with the error of the dial it waited
// for, which begins "pooldriver: connecting to" or, from AfterConnect, "pooldriver:
// a connection to" and may, during an outage, be a moment old, which it says then:
// docs/adr/0011; after Connector.Close, with pool.ErrClosed. One more stands for
// driver.ErrBadConn where the statement, or COMMIT, had been sent and may or may not
// have been executed: it is an io.ErrUnexpectedEOF, and the program has to look.
// Where nobody counts what is sent (Wrap), it stands for every error of a statement or
// COMMIT that calls itself safe to repeat.
//
// Where an error follows from the end of a context, errors.Is finds that one's error
// (context.Canceled, context.DeadlineExceeded) and its cause (context.Cause) in it. In
// a task that is ErrTaskEnded, if the task's end or pool_task_timeout ended the context.
// What database/sql answers by itself is the bare error of the context: before a
// statement whose context has ended, from Rows.Err, from Commit.
//
// The errors of tasks are ErrTaskEnded, ErrTxLost, ErrNestedBuffer and
// ErrDeadlock.
//
// # What is different from a driver without a pool below
//
// The list is closed, reviewed and tested: docs/transparency.md.
//
// # Reading the source
//
// README.md, this file, connector.go, conn.go, task.go, binding.go (which real
// connection serves an operation), seat.go (the session's lock), pinning.go (when
// it goes back, and in what state), cleaning.go, role.go (whether its server still
// does), starvation.go, waitcycle.go, then package pool.
// Statements are in stmt.go, plain.go and internal/stmtcache; transactions in tx.go,
// ambient.go and lazy.go; rows in rows.go and buffer.go.
package pooldriver
