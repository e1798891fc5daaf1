package integration

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	_ "github.com/pooldriver/pooldriver/dialects/sqlite"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// database is what tasks are tested on: an account on a server, or a file of
// SQLite.
type database struct {
	kind       string // "postgres", "mysql" or "sqlite"
	account    testbed.Account
	file       string
	wrap       bool     // pooldriver.Wrap around a connector of the program's own
	parameters []string // of the DSN
}

// onEachDatabase runs the test on every kind of database and, in the long run, also
// through Wrap, whose tasks are the same code. Each time it is a database of its own, and
// they run side by side.
func onEachDatabase(t *testing.T, test func(t *testing.T, d database)) {
	t.Helper()
	t.Run("New", func(t *testing.T) {
		t.Parallel()
		onEachDSN(t, test)
	})
	if randomtest.Rounds(0, 1) == 0 {
		return
	}
	t.Run("Wrap", func(t *testing.T) {
		t.Parallel()
		onEachServer(t, func(t *testing.T, d database) {
			d.wrap = true
			test(t, d)
		})
	})
}

// onEachDSN leaves out Wrap, whose connector does not take the DSN's parameters.
func onEachDSN(t *testing.T, test func(t *testing.T, d database)) {
	t.Helper()
	onEachServer(t, test)
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, onSQLite(t))
	})
}

// onEachDSNInTurn is onEachDSN for tests that measure: nothing runs beside them.
func onEachDSNInTurn(t *testing.T, test func(t *testing.T, d database)) {
	t.Helper()
	onEachServerInTurn(t, test)
	t.Run("sqlite", func(t *testing.T) { test(t, onSQLite(t)) })
}

func onSQLite(t *testing.T) database {
	t.Helper()
	// In WAL mode those who read and the one who writes do not lock each other out.
	return database{kind: "sqlite", file: filepath.Join(t.TempDir(), "tasks.db"), parameters: []string{
		"_pragma=journal_mode(wal)", "_pragma=synchronous(off)", "_pragma=busy_timeout(10000)",
	}}
}

// onEachServer leaves out SQLite too.
func onEachServer(t *testing.T, test func(t *testing.T, d database)) {
	t.Helper()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		test(t, database{kind: account.Server.Engine.String(), account: account})
	})
}

func onEachServerInTurn(t *testing.T, test func(t *testing.T, d database)) {
	t.Helper()
	testbed.EachInTurn(t, func(t *testing.T, account testbed.Account) {
		test(t, database{kind: account.Server.Engine.String(), account: account})
	})
}

// with returns the same database, reached with more parameters in the DSN.
func (d database) with(parameters ...string) database {
	d.parameters = append(append([]string(nil), d.parameters...), parameters...)
	return d
}

// limited sets the pool's size, a front's way to say it.
func limited(max int) pooldriver.Option {
	return func(c *pooldriver.Config) { c.MaxConns = max }
}

// open returns a pool of at most max connections.
func (d database) open(t testing.TB, max int, options ...pooldriver.Option) (*sql.DB, *pooldriver.Connector) {
	t.Helper()
	options = append([]pooldriver.Option{quiet, limited(max)}, options...)
	var connector *pooldriver.Connector
	switch {
	case d.wrap:
		connector = pooldriver.Wrap(connectorOf(t, d.account), options...)
	case d.file != "":
		connector = pooldriver.New("sqlite:"+d.name(), options...)
	default:
		connector = pooldriver.New(d.account.URL(d.parameters...), options...)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db, connector
}

// openBare returns the bare driver under database/sql's own pool.
func (d database) openBare(t testing.TB, max int) *sql.DB {
	t.Helper()
	var db *sql.DB
	if d.file != "" {
		var err error
		db, err = sql.Open("sqlite", d.name())
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.Close() })
	} else {
		db = d.account.OpenBare(t, d.parameters...)
	}
	db.SetMaxOpenConns(max)
	return db
}

// witness returns a pool that counts against no limit.
func (d database) witness(t testing.TB) *sql.DB {
	t.Helper()
	if d.file != "" {
		return d.openBare(t, 1)
	}
	return d.account.Witness(t)
}

// name is SQLite's file with its parameters.
func (d database) name() string {
	name := d.file
	for i, parameter := range d.parameters {
		name += []string{"?", "&"}[min(i, 1)] + parameter
	}
	return name
}

// mark is the first placeholder of a statement.
func (d database) mark() string {
	if d.kind == "postgres" {
		return "$1"
	}
	return "?"
}

// execute runs statements and leaves no connection behind.
func (d database) execute(t testing.TB, statements ...string) {
	t.Helper()
	db := d.openBare(t, 1)
	for _, statement := range statements {
		mustExec(t, db, statement)
	}
	require.NoError(t, db.Close())
	d.requireGone(t)
}

// requireGone waits until the server has no connection of the account.
func (d database) requireGone(t testing.TB) {
	t.Helper()
	if d.file != "" {
		return
	}
	require.Eventually(t, func() bool {
		counted, _, err := d.account.Backends(context.Background())
		return err == nil && counted == 0
	}, 10*time.Second, 2*time.Millisecond)
}

// things is how many things there are; their ids count from 1.
const things = 20

// setUp makes the tables of the programs: things to read, and an empty log.
func (d database) setUp(t testing.TB) {
	t.Helper()
	insert := "INSERT INTO things VALUES (1)"
	for id := 2; id <= things; id++ {
		insert += fmt.Sprintf(", (%d)", id)
	}
	d.execute(t, "DROP TABLE IF EXISTS things", "DROP TABLE IF EXISTS log",
		"CREATE TABLE things (id integer PRIMARY KEY)", "CREATE TABLE log (who integer, what varchar(30))", insert)
}

// logged returns what the log says, and how often.
func (d database) logged(t testing.TB) map[string]int {
	t.Helper()
	db := d.witness(t)
	rows, err := db.QueryContext(t.Context(), "SELECT what, count(*) FROM log GROUP BY what")
	require.NoError(t, err)
	defer rows.Close()
	seen := map[string]int{}
	for rows.Next() {
		var what string
		var n int
		require.NoError(t, rows.Scan(&what, &n))
		seen[what] = n
	}
	require.NoError(t, rows.Err())
	require.NoError(t, rows.Close())
	require.NoError(t, db.Close())
	return seen
}

// guard makes the server refuse a connection too many, and watches how many it
// has. The function it returns ends the watch; it may be called once. SQLite has
// no server that could count.
func (d database) guard(t testing.TB, max int) (end func()) {
	t.Helper()
	if d.file != "" {
		return func() {}
	}
	d.requireGone(t) // of those closed before
	d.account.LimitConnections(t, max)
	watch := d.account.Watch(t)
	return func() {
		t.Helper()
		watch.Look(t.Context())
		peak := watch.Stop()
		require.LessOrEqual(t, peak.Backends, max)
		require.Positive(t, peak.Backends, "nothing was watched: %+v", peak)
	}
}

// requireRest waits until every connection is idle, and asks the server about
// transactions left open.
func (d database) requireRest(t testing.TB, connector *pooldriver.Connector) {
	t.Helper()
	require.Eventually(t, func() bool {
		s := connector.Stats().Pool
		return s.Active == 0 && s.Waiting == 0 && s.Idle == s.Count
	}, slowMachine, time.Millisecond, "not at rest")
	if d.file != "" {
		// Only without another's transaction a write can begin.
		other, err := sql.Open("sqlite", d.file+"?_pragma=busy_timeout(0)")
		require.NoError(t, err)
		mustExec(t, other, "BEGIN IMMEDIATE")
		require.NoError(t, other.Close())
		return
	}
	require.Eventually(t, func() bool {
		open, err := d.account.OpenTransactions(t.Context())
		return err == nil && open == 0
	}, slowMachine, 10*time.Millisecond, "a transaction is open")
}

// gate lets nobody pass until as many as it was made for have come.
type gate struct {
	missing atomic.Int64
	open    chan struct{}
}

func newGate(n int) *gate {
	g := &gate{open: make(chan struct{})}
	g.missing.Store(int64(n))
	return g
}

func (g *gate) pass(ctx context.Context) error {
	if g.missing.Add(-1) == 0 {
		close(g.open)
	}
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
