// Package fakedb is a database that lives in memory, with a driver for it that
// can be made to do what no real driver can be made to do on demand.
//
// A [Server] keeps the truth: which connections are open, which of them have a
// transaction, what their sessions hold, what was executed and every call that
// reached the driver. Tests ask the server, not the client under test.
//
// A [Variant] says which optional interfaces of database/sql/driver the
// connections, statements and rows have, and how the driver behaves where real
// drivers differ. A [Fault] fails, delays, panics or kills at a chosen call.
//
// The driver is strict: what no caller may do (use a connection from two
// goroutines at once, use it after Close, close it twice) is written down, see
// [Server.Violations]. It hands out byte slices of its own memory and reuses
// them, as real drivers do.
//
// # Language
//
// The language is a small part of SQL, in upper or lower case, with ? and
// :name for arguments and several statements separated by semicolons:
//
//	CREATE [TEMP] TABLE t (a INT NOT NULL, b VARCHAR(20), c DECIMAL(10,2))
//	DROP TABLE t
//	INSERT INTO t VALUES (?, 'text', 1.5), (2, NULL, x'00ff')
//	UPDATE t SET b = :b [WHERE a = 1 [AND ...]]
//	DELETE FROM t [WHERE ...]
//	SELECT * | count(*) | a, b FROM t [WHERE ...] [LIMIT n]
//	SELECT ?, 1 AS one, TIMESTAMP '2024-02-29T12:00:00+01:00', true
//	SELECT cursor(3)      one row whose value is a driver.Rows of three rows
//	BEGIN | START TRANSACTION, COMMIT, ROLLBACK
//	SAVEPOINT s, RELEASE SAVEPOINT s, ROLLBACK TO SAVEPOINT s
//	SET name = value, SHOW name
//	CALL out(?)           fills a sql.Out
//	PING
//
// The table "numbers" holds the integers from 0 in its column n; it has no end,
// so it needs a LIMIT. SHOW also knows what the session is: connection_id,
// transaction (open or none), isolation, read_only, options.
//
// A hint in a comment bends the statement that it stands in:
//
//	/*+ error 'text' */      refused with that error, not executed
//	/*+ badconn before */    driver.ErrBadConn, not executed; the session dies
//	/*+ badconn after */     executed, then driver.ErrBadConn; the session dies
//	/*+ panic 'text' */      the driver panics; nothing is executed
//	/*+ sleep 10ms */        waits that long, or for the context
//	/*+ break 2 'text' */    the rows fail with that error after two of them
//	/*+ breakconn 2 */       the rows fail with driver.ErrBadConn after two
//
// There are no locks between sessions, and what a transaction wrote is seen by
// all before its commit; a rollback undoes it.
package fakedb
