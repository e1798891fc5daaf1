// Package pooldriver is a connection pool that works below database/sql.
//
//	import (
//		"github.com/pooldriver/pooldriver"
//		_ "github.com/pooldriver/pooldriver/dialects/postgres"
//	)
//
//	db := sql.OpenDB(pooldriver.New("postgres://app:secret@db/shop?pool_max_conns=20"))
//
// The result is an ordinary *sql.DB. This package promises:
//
//   - A real connection is opened when one is needed. The server never has more than
//     pool_max_conns sessions of a pool: a place becomes free when the server has ended the
//     session. If the server takes longer than 5 s, the place becomes free after 5 s, and
//     Stats.Orphans counts the session. The short connections that kill cancelled statements
//     are not counted: there is one per MySQL server, and over ODBC one per statement.
//   - Waiters are served in the order in which they came.
//   - The next borrower of a connection finds nothing that the last one has left: open
//     transactions are rolled back; session variables, roles, temporary tables and
//     advisory locks are cleaned.
//   - A statement inside a rows loop does not wait for the connection of that loop.
//   - A connection that died while idle is replaced before a statement runs on it. A
//     statement is executed again only if the server cannot have executed it, or has rolled it back.
//   - Some drivers prepare every query that has arguments. There pooldriver keeps the
//     prepared statement, and uses it again.
//   - Settings that a context has ([WithSettings]) are in force for its statements only.
//   - No way of printing a value of this package shows a password.
//
// # How it works
//
// database/sql pools virtual connections, which cost one object each. A checkout begins when
// database/sql takes a virtual connection, and ends when database/sql puts it back. The first
// operation of a checkout attaches a real connection from the pool. The real connection stays
// until the checkout ends, so a *sql.Tx or *sql.Conn keeps its session. Then it is lent again at
// once if nothing is left on it. If a transaction or session state is left, it is first rolled
// back and cleaned, in the background. If its state is uncertain, it is closed.
//
// SetMaxOpenConns and the other settings of the *sql.DB bound virtual connections. They
// cannot raise pool_max_conns. With a SetMaxOpenConns of pool_max_conns or less, a statement inside
// another one waits in database/sql: do not call it. With SetMaxIdleConns(1000), which [Open] sets, database/sql
// keeps virtual connections and does not make new ones.
//
// # Tasks
//
// A task is a context that is one logical session. [WithTask], [NewTask], [Do], [InTx] and
// httptask.Middleware make tasks. [Config].TaskKey finds tasks in the program's own contexts. The
// tasks of TaskKey, and of httptask without httptask.Join, are implicit: their statements share
// nothing, and behave as over plain database/sql. Everything that they leave open ends with the
// task. In an implicit task, WithTask, Do and InTx begin an explicit task.
//
// While the session of a task is clean, each checkout of the task takes a connection of its own.
// When a transaction begins, or a statement changes the session, that connection is pinned, and
// all statements of an explicit task use it, one after the other:
//
//	pin            from                               until
//	checkout       its first operation                database/sql puts it back
//	transaction    BeginTx, or the server reports it  commit, rollback, the task's end
//	session state  the statement                      the task's end
//	raw            Raw                                its function returns
//
// In a task that is not implicit, statements join the open transaction, and BeginTx is a
// savepoint in it ([Config].Ambient). Transactions end in the reverse order of their
// beginning; another order is an error. A BEGIN by hand counts as a transaction where the
// protocol reports it.
//
// A statement that needs a connection on which rows are open reads the rest of the rows
// into memory, up to Config.NestedBuffer for one statement and Config.NestedBufferTotal
// for all. Without a task this happens only to rows of a checkout that has done nothing
// else, when others have waited for 20 ms. When every connection is held by a task that waits for
// one more, and nothing has moved for Config.DeadlockAfter, the statement that came last gets
// [ErrDeadlock] (docs/adr/0008). An implicit task waits instead.
//
// A driver.Valuer is called before the task's connection is taken, so it may query. But pgx calls
// a Valuer while pgx uses the connection. So with pgx a Valuer that queries in the same task
// needs a second free connection. If a transaction is open, the query waits until its context
// ends.
//
// database/sql closes a prepared statement under the locks of the connections on which it was
// prepared. A task that holds a connection can always close a statement that it has prepared
// since it took the connection. If the statement was prepared before that, its Close inside the
// task may wait.
//
// # What a statement leaves behind
//
// The server says whether a transaction is open, if the protocol can say so (PostgreSQL, MySQL).
// pooldriver reads from a statement's text what else the statement changes in its session. If a
// text changes the session, or may change it, the connection is cleaned. No text shows that a
// trigger sets a session variable: pool_reset=always cleans after every checkout. The statements
// that pgx caches do not notice a temporary table that hides a table which they read
// (docs/settings.md).
//
// # Errors
//
// The driver's own errors come through unchanged. Other errors of a statement are:
//
//   - No connection: an [AcquireError] whose reason is [ErrTimeout] (pool_acquire_timeout; also a
//     context.DeadlineExceeded), [ErrTooManyWaiters], [ErrUnavailable] (the circuit breaker) or
//     the error of the statement's context; after Connector.Close or Drain, [ErrClosed].
//   - No dial: "pooldriver: connecting to …", or "pooldriver: a new connection to … is
//     closed: AfterConnect: …". After a refused login a statement may get an error that is a
//     few moments old; its text says so (docs/adr/0011).
//   - Unknown outcome: an io.ErrUnexpectedEOF, in place of an error that would make
//     somebody repeat a statement or COMMIT that may have been executed (docs/adr/0004).
//     The program has to find out whether it was executed.
//   - A context that has ended: errors.Is finds the context's error and its cause
//     (context.Cause). If database/sql answers by itself, its answer is the bare error: ask
//     context.Cause (docs/tasks.md).
//   - Of tasks: [ErrTaskEnded], [ErrTxLost], [ErrNestedBuffer] and [ErrDeadlock].
//
// # More
//
// docs/errors.md has each error and each line of the log, with what to do. docs/transparency.md is the
// closed list of differences from a driver without a pool.
// docs/servers.md explains several servers in one DSN (docs/adr/0010). CONTRIBUTING.md says
// where the source begins.
package pooldriver
