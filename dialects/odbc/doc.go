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
// The keywords are those of the database's ODBC driver. A value that contains one of []{}(),;?*=!@
// is written in braces, with a closing brace written twice: PWD={a;}}b}. Keywords that begin with
// pool_ belong to the pool, and are removed.
//
// A user, server or database with one of = & ; in it is refused, and a user with a
// comma or a colon: a mistyped DSN has its password there, and errors show all three.
//
// # The database
//
// Every new connection is asked which database it leads to: PostgreSQL, MySQL or MariaDB, SQLite,
// or an unknown database. The database then decides what statements leave behind, whether a
// transaction is open, how a session is cleaned and how a statement is stopped. An unknown database
// is treated as by the generic dialect: a connection that may carry state is closed.
//
// # Faults of the driver, and the remedies of this package
//
// All of these faults were seen with github.com/alexbrainman/odbc of June 2025, unixODBC
// 2.3.11, psqlODBC 13.02, MariaDB Connector/ODBC 3.1.15 and libsqliteodbc 0.9998:
//
//   - The driver returns driver.ErrBadConn also after a statement was executed: this package does
//     not believe the error, and executes nothing again.
//   - psqlODBC says that a transaction was committed although its connection is gone: this
//     package notices the lost connection at the statement, and Commit returns an error.
//   - The driver always promises another result set, so database/sql would never release rows that
//     are read to their end: this package looks for the next result set there.
//   - The driver executes a query that gives no rows, and then returns an error: this package
//     returns no rows.
//   - After a failed BeginTx the driver believes that a transaction is open: this package closes the
//     connection.
//   - Execution cannot be cancelled. Here the caller gets its context's error at
//     once, and the place in the pool is free when the statement has ended, or
//     after 5 s. When the connection is given back, PostgreSQL, MySQL and MariaDB are told over a
//     second, short connection to end the first connection. On SQLite and unknown databases the
//     statement runs to its end. SQLCancel is not called: in it unixODBC (its sources of 2025) frees the statement's
//     errors without a lock, and ODBC drivers free what the statement uses.
//   - The driver panics at a text that is longer than the declared length of its column. Here the whole
//     text comes back.
//   - When the columns of a statement change, the old columns stay bound to memory that may be
//     freed: this package keeps that memory.
//   - Isolation levels and read-only transactions are errors. Here they are set
//     by a statement, on PostgreSQL, MySQL and MariaDB.
//   - The driver manager may pool ([ODBC] Pooling = Yes in odbcinst.ini): then the state that one
//     session left reaches the next. This package refuses such a setting.
package odbc
