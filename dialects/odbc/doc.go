// Package odbc is the dialect of databases behind ODBC, by
// github.com/alexbrainman/odbc. It needs cgo, unixODBC and a build tag:
//
//	apt-get install unixodbc-dev         # and the database's ODBC driver
//	go build -tags odbc ./...
//
// A blank import registers it:
//
//	import _ "github.com/pooldriver/pooldriver/dialects/odbc"
//
// Without the tag or without cgo the package builds, links no driver, and
// answers every DSN of its own with an error that says so.
//
// # DSN
//
//	odbc:DSN=shop;UID=app;PWD={secret}                  a data source of odbc.ini
//	odbc:Driver={PostgreSQL Unicode};Server=db;…        a driver of odbcinst.ini
//	Driver=SQLite3;Database=/var/lib/shop.db;pool_max_conns=4
//
// The keywords are those of the database's ODBC driver. A value with one of
// []{}(),;?*=!@ in it is written in braces, a closing brace twice: PWD={a;}}b}.
// Keywords that begin with pool_ are the pool's, and are taken out.
//
// A user, server or database with one of = & ; in it is refused, and a user with a
// comma or a colon: in a mistyped DSN that is where the password is, and all three
// are shown in errors.
//
// # What is behind it
//
// Every new connection is asked which database it leads to: PostgreSQL, MySQL
// or MariaDB, SQLite, or one that is not known. What statements leave behind,
// whether a transaction is open, how a session is cleaned and how a statement
// is stopped is then that database's own. One that is not known is treated as
// the generic dialect treats it: what may carry state is closed.
//
// # What the driver below does, and what becomes of it here
//
// All of it was seen with github.com/alexbrainman/odbc of June 2025, unixODBC
// 2.3.11, psqlODBC 13.02, MariaDB Connector/ODBC 3.1.15 and libsqliteodbc 0.9998:
//
//   - It says driver.ErrBadConn after a statement was executed, too: that is not
//     believed, and nothing is executed again.
//   - psqlODBC says that a transaction was committed whose connection is gone:
//     a connection that was lost is noticed at the statement, and its Commit is
//     an error.
//   - It always promises another result set, so that database/sql never lets go
//     of rows that are read to their end: the next one is looked for there.
//   - A query that gives no rows is executed and then an error. Here it gives no
//     rows.
//   - After a BeginTx that failed it believes to be in a transaction: the
//     connection is closed.
//   - Execution cannot be cancelled. Here the caller gets its context's error at
//     once, and the place in the pool is free when the statement has ended, or
//     after 5 s. PostgreSQL, MySQL and MariaDB are told to end the connection when it
//     is given back, over a second, short one. On SQLite and unknown databases the
//     statement runs to its end. SQLCancel is not called: unixODBC (its sources of
//     2025) frees the statement's errors there without a lock, and ODBC drivers what
//     it is using.
//   - A text that is longer than its column was said to be makes it panic. Here
//     it comes back whole.
//   - Columns stay bound to memory that is no longer there when a statement
//     comes to give others than before: that memory is kept.
//   - Isolation levels and read-only transactions are errors. Here they are set
//     by a statement, on PostgreSQL, MySQL and MariaDB.
//   - The driver manager may pool ([ODBC] Pooling = Yes in odbcinst.ini): what
//     one left then reaches the next. That is refused.
package odbc
