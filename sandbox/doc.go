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
// [Database] and [Schema] are for tests that need more than one transaction. They give a test a database
// or a schema of its own, on which the migrations have run.
package sandbox

import (
	"context"
	"database/sql"
	"testing"

	"github.com/pooldriver/pooldriver"
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

// Context returns a context for a program that has a global handle and passes contexts on: statements
// of db with this context, or with a context derived from it, run in the sandbox of the test, as with DB.
// Statements of db with other contexts go to the database as always: if they wait for a lock of the test, or
// the test's own goroutine writes with them, the log of the test says which. db is a handle over a
// *pooldriver.Connector; a library such as otelsql may stand between. The context ends as t.Context
// does.
//
// The first statement of a transaction or of a *sql.Conn decides where all of its statements go.
// A *sql.Conn from before the first sandbox on the Connector stays at the database.
func Context(t testing.TB, db *sql.DB) context.Context {
	t.Helper()
	of, err := beneathHandle(t.Context(), db)
	if err != nil {
		t.Fatalf("sandbox: Context: %v", err)
	}
	s := startOn(t, of)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byContext = true
	return context.WithValue(t.Context(), inContext{of}, s)
}

// Share lets every statement of every handle over the connector run in the sandbox of the test, with
// any context, until the test ends: for a program that has a global handle and passes no contexts on.
// A transaction or a *sql.Conn that has begun before stays where it is. Other tests would run in the
// same sandbox: like t.Setenv, Share fails a test that runs in parallel, and such a test cannot call
// t.Parallel afterwards.
func Share(t testing.TB, connector *pooldriver.Connector) {
	t.Helper()
	if refused := serialOnly(t); refused != nil {
		t.Fatalf("sandbox: Share lets all statements of the program run in the sandbox of %s, and other tests run in parallel with it: leave out t.Parallel, or use DB or Context", t.Name())
	}
	s := start(t, connector)
	before := share(s.of, s)
	t.Cleanup(func() { share(s.of, before) })
}

// serialOnly makes t a test that does not run in parallel, or returns why t cannot be such a test.
// Package testing has this rule for environment variables.
func serialOnly(t testing.TB) (refused any) {
	defer func() { refused = recover() }()
	t.Setenv("POOLDRIVER_SANDBOX_OF", t.Name())
	return nil
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
