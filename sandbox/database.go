package sandbox

import (
	"fmt"
	"testing"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/sandbox/internal/clones"
)

// Database gives the test a database of its own, on which the migrations have run. The test may do
// whatever it likes there: commit, change tables, open many connections, let other processes in.
// If the database cannot be made, the test fails at once.
//
// The migrations run once per hash (see Migration), in a template, also if several processes begin
// at the same time. Each test gets a copy of the template:
//
//   - PostgreSQL: CREATE DATABASE … TEMPLATE. Nobody can connect to the template. The user needs
//     the right CREATEDB. Settings and rights of the database itself (ALTER DATABASE … SET,
//     GRANT … ON DATABASE) are not copied.
//   - MySQL, MariaDB: the tables of the template are created again, and their rows inserted. If
//     the template has views, triggers, routines, events or sequences, the migrations run for
//     each copy instead. The user needs all rights on databases whose names begin with sandbox_.
//   - SQLite: a copied file, in the user's own directory for temporary files.
//
// The template stays on the server for the next run. A template that nobody has used for a week is
// removed. A user who may not create databases tests with DB, in one transaction.
//
// When the test ends, the database is dropped. Sessions that still use it are ended. If the test
// has failed, and the flag -sandbox.keep is given or the environment has SANDBOX_KEEP=1, the
// database stays, and its name is in the test's log. The next process removes the databases that a
// killed process has left. For that, each database has a session on the DSN's database for as long
// as its test runs; on SQLite it is a file that is locked.
//
// The DSN leads to the server, and not to a pooler such as PgBouncer. Nothing is changed in its
// database. A template serves all processes whose DSN has the same user and database, or on SQLite the same
// file name and parameters.
//
// Database is called from the test's own goroutine, as t.Fatal is, by any number of tests at once
// and several times by one. It cannot be called inside a bubble of testing/synctest: the
// template is shared with other tests.
func Database(t testing.TB, dsn string, m Migration) *Place {
	t.Helper()
	kind, err := databaseKind(dsn)
	if err != nil {
		t.Fatalf("sandbox: no database for %s: %v", t.Name(), err)
	}
	return makePlace(t, kind, dsn, m)
}

// databaseKind chooses by the DSN what a database is.
func databaseKind(dsn string) (clones.Kind, error) {
	d, err := dialects.Find(dsn)
	if err != nil {
		return "", err
	}
	switch d.Name() {
	case "postgres":
		return clones.PostgresDatabase, nil
	case "mysql":
		return clones.MySQLDatabase, nil
	case "sqlite":
		return clones.SQLiteFile, nil
	}
	return "", fmt.Errorf("databases can be made on PostgreSQL, MySQL, MariaDB and SQLite, and not with the dialect %s; the DSN begins with postgres://, mysql:// or sqlite: then", d.Name())
}
