// Package sandbox lets each test of a program run in one transaction, which is rolled back at the
// end of the test:
//
//	func TestOrders(t *testing.T) {
//		t.Parallel()
//		db := sandbox.DB(t, connector) // a *pooldriver.Connector that all tests share
//		…
//	}
//
// In the sandbox a transaction of the program is a savepoint. Everything else behaves as in
// production: tasks, settings by context, retries, nested queries, contexts that end. Where a
// savepoint differs from a transaction, the sandbox corrects or reports the difference: see docs/testing.md.
//
// [Database] is for tests that need more than one transaction. It gives a test a database of its own, on
// which the migrations have run.
package sandbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/beneath"
)

// DB returns a handle for a test. Every statement of the handle, from any goroutine and with any
// context, runs in the test's one session, in a transaction that is rolled back at the end of the
// test. DB waits for its turn, and takes one connection of the connector for as long as the test runs.
// If the connector has several connections, one of them is left for statements that go to the database
// itself. A second call in the same test returns the same handle.
//
// BeginTx, Commit and Rollback of the program work as in production, on savepoints. A statement that
// fails, or whose context ends, is undone alone. Two goroutines take turns, as with a pool of one
// connection: rows that are open are read into memory when another statement needs the session. Two
// transactions at the same time in one goroutine, which would wait for each other for ever, are an
// error at once. The error names both places.
//
// On PostgreSQL tests with a sandbox run in parallel. On MySQL, MariaDB and SQLite they run one after
// the other, also across programs on MySQL and MariaDB: see Together.
//
// In a subtest, DB makes a level in the sandbox of the test around it, if that test has one on the
// same connector: the subtest sees what the test has written, and what the subtest writes is undone
// at its end. Until then only the handle of the subtest can be used. A subtest that runs in parallel
// cannot have such a level.
//
// At the end of the test DB fails the test if rows, transactions, prepared statements or connections
// are open, and says which line has opened them. t.Context() ends before the cleanups of the test, so what
// was opened with it has to end before the function of the test returns. A statement that comes after the end gets
// an error with the name of the test. The program must not close the connector before.
//
// DB fails the test if it gets no connection, or if the database is none of PostgreSQL, MySQL,
// MariaDB and SQLite.
func DB(t testing.TB, connector *pooldriver.Connector) *sql.DB {
	t.Helper()
	return start(t, connector).db.Load()
}

// Connector returns the connector of the handle that DB returns, for what takes a Connector: a pool of package pgxpooldriver, River,
// a library that traces, the program's own set-up. All handles over it are in the sandbox of the test. Closing one of them closes
// the Connector, as in production, and leaves the connector that was given as it is.
//
// Do not limit such a handle (SetMaxOpenConns): a wait inside of database/sql is seen by nobody.
func Connector(t testing.TB, connector *pooldriver.Connector) *pooldriver.Connector {
	t.Helper()
	return start(t, connector).inner
}

// Together lets sandboxes on a connector to MySQL, MariaDB or SQLite run at the same time. On MySQL
// and MariaDB two tests then can deadlock on locks of gaps between rows, although they use different
// rows: that fails one of the tests, whose whole transaction the server has rolled back, and the
// error names the other one. On SQLite tests wait for each other's locks. Call it before the first
// test, as in TestMain. On PostgreSQL it does nothing.
func Together(connector *pooldriver.Connector) {
	if of, err := beneathConnector(connector); err == nil {
		turns.together(of)
	}
}

// beneathConnector returns the inside of a Connector. A virtual connection has it, and takes no real one.
func beneathConnector(connector *pooldriver.Connector) (beneath.Beneath, error) {
	if connector == nil {
		return nil, errors.New("no connector was given")
	}
	dc, err := connector.Connect(context.Background())
	if err != nil {
		return nil, fmt.Errorf("the connector cannot be used: %w", err)
	}
	defer func() { _ = dc.Close() }()
	of := dc.(beneath.Conn).Beneath()
	if of == nil {
		return nil, errors.New("this Connector is that of a sandbox")
	}
	return of, nil
}
