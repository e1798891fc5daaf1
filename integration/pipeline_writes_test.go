package integration

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

// textsThatWrite look like reads, and write their argument.
var textsThatWrite = []string{
	"SELECT n FROM by_view WHERE id = $1", "SELECT n FROM by_swallowing WHERE id = $1", "SELECT n FROM by_stable WHERE id = $1",
	"SELECT log($1::int::text)", "SELECT ==> $1::int",
	"SELECT i::int FROM items i WHERE id = $1", "SELECT (i).touch FROM items i WHERE id = $1", "SELECT n FROM guarded WHERE id = $1",
}

// makeWriters makes what textsThatWrite call, over the tables items and written. body is that of the function which writes i.
func makeWriters(t *testing.T, db *sql.DB, body string) {
	t.Helper()
	for _, text := range []string{
		"CREATE TABLE written (n int)",
		"CREATE FUNCTION writes(i int) RETURNS int LANGUAGE plpgsql AS 'BEGIN " + body + " END'",
		"CREATE FUNCTION swallows(i int) RETURNS int LANGUAGE plpgsql AS 'BEGIN BEGIN PERFORM writes(i); EXCEPTION WHEN OTHERS THEN NULL; END; RETURN i; END'",
		"CREATE FUNCTION hides(i int) RETURNS int LANGUAGE sql STABLE AS 'SELECT writes(i)'",
		"CREATE FUNCTION log(i text) RETURNS int LANGUAGE sql AS 'SELECT writes(i::int)'",
		"CREATE OPERATOR ==> (RIGHTARG = int, FUNCTION = writes)",
		"CREATE VIEW by_view AS SELECT id, writes(id) AS n FROM items",
		"CREATE VIEW by_swallowing AS SELECT id, swallows(id) AS n FROM items",
		"CREATE VIEW by_stable AS SELECT id, hides(id) AS n FROM items",
		"CREATE FUNCTION touch(i items) RETURNS int LANGUAGE sql AS 'SELECT writes((i).id)'",
		"CREATE CAST (items AS int) WITH FUNCTION touch(items)",
		"CREATE TABLE guarded AS SELECT id, n FROM items",
		"CREATE UNIQUE INDEX ON guarded (id)",
		"CREATE POLICY counts ON guarded USING (writes(id) IS NOT NULL)",
		"ALTER TABLE guarded ENABLE ROW LEVEL SECURITY",
		"ALTER TABLE guarded FORCE ROW LEVEL SECURITY",
	} {
		mustExec(t, db, text)
	}
}

// TestAQueryThatHasWrittenIsInNoPipeline: its text only reads, as far as it shows. The server says that it got a transaction id
// where it ran alone.
func TestAQueryThatHasWrittenIsInNoPipeline(t *testing.T) {
	a := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	p := openCrowd(t, a)
	makeWriters(t, p.db, "INSERT INTO written VALUES (i); RETURN i;")
	mustExec(t, p.db, "CREATE VIEW harmless AS SELECT id, n FROM items")
	calls := 0
	pipelined := func(text string) uint64 {
		for range 3 {
			require.NoError(t, p.ask(t, text, 0), text)
			calls++
		}
		before := p.c.Stats().Pipelined
		for range 4 {
			p.prepare(t)
		}
		own := p.c.Stats().Pipelined
		require.Greater(t, own, before, "others are pipelined")
		for range 4 {
			p.together(t, text, text, text)()
			calls += 3
		}
		return p.c.Stats().Pipelined - own
	}
	for _, text := range textsThatWrite {
		require.Zero(t, pipelined(text), text)
	}
	var written int
	require.NoError(t, p.db.QueryRow("SELECT count(*) FROM written").Scan(&written))
	require.Equal(t, calls, written, "each once")
	for try := 0; pipelined("SELECT n FROM harmless WHERE id = $1") == 0; try++ {
		require.Less(t, try, mostTries)
	}
}
