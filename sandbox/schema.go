package sandbox

import (
	"fmt"
	"testing"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/sandbox/internal/clones"
)

// Schema gives the test a schema of its own in the DSN's database, on which the migrations have
// run. It is like Database, for PostgreSQL only, and needs no right to create databases: the user
// needs the right CREATE on the database. If the schema cannot be made, the test fails at once.
//
// The schema is first in the search_path of every connection of Place.DB and Place.DSN. Behind it
// comes the search_path of dsn, if dsn has one: say search_path=public to see what is in public,
// such as extensions. Text that names another schema, such as public.orders, leaves the sandbox.
//
// PostgreSQL cannot copy a schema, so the migrations run for each one, and some are made ahead.
// With many migrations Database is faster.
func Schema(t testing.TB, dsn string, m Migration) *Place {
	t.Helper()
	d, err := dialects.Find(dsn)
	if err == nil && d.Name() != "postgres" {
		err = fmt.Errorf("Schema works on PostgreSQL only, and the DSN is one for %s; use Database", d.Name())
	}
	if err != nil {
		t.Fatalf("sandbox: no schema for %s: %v", t.Name(), err)
	}
	return makePlace(t, clones.PostgresSchema, dsn, m)
}
