package conformance

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// Env is what a case works with. Observations may be made by several
// goroutines, but their order must not depend on scheduling.
type Env struct {
	DB     *sql.DB
	SQL    Flavor
	Server *fakedb.Server // nil on real databases

	// Ctx is a context that never ends.
	Ctx context.Context

	connector driver.Connector // of DB; nil on real databases

	mu       sync.Mutex // protects notes and steps
	notes    []note
	steps    int // observations and cleanups; see hang
	stopped  string
	leaks    bool
	patience time.Duration // how long something in the background may take
	cleanups []func()
}

// note is one observation.
type note struct{ label, value string }

func (n note) String() string { return n.label + ": " + n.value }

func (e *Env) note(label, value string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notes = append(e.notes, note{label, value})
	e.steps++
}

func (e *Env) step() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.steps++
}

func (e *Env) taken() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.steps
}

func (e *Env) snapshot() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	lines := make([]string, 0, len(e.notes))
	for _, n := range e.notes {
		lines = append(lines, n.String())
	}
	return lines
}

// Value observes values, with their types.
func (e *Env) Value(label string, values ...any) {
	described := make([]string, 0, len(values))
	for _, v := range values {
		described = append(described, describe(v))
	}
	e.note(label, strings.Join(described, ", "))
}

// Err observes everything about an error.
func (e *Env) Err(label string, err error) { e.note(label, describeError(err)) }

// Is observes of an error only what errors.Is says, for errors whose text
// depends on a race.
func (e *Env) Is(label string, err error, targets ...error) { e.note(label, describeIs(err, targets)) }

// Must ends the case if err is not nil: what follows could not be observed.
func (e *Env) Must(err error) {
	if err != nil {
		panic(stop{describeError(err)})
	}
}

// Panics observes the value that f panics with.
func (e *Env) Panics(label string, f func()) {
	defer func() { e.Value(label, recover()) }()
	f()
}

// Outcome observes the value that f panics with, or its error.
func (e *Env) Outcome(label string, f func() error) {
	defer func() {
		if r := recover(); r != nil {
			e.note(label, "panic "+describe(r))
		}
	}()
	e.Err(label, f())
}

// Leaks says that database/sql itself loses a connection in this case: some of
// its paths do not give one back when the driver panics.
func (e *Env) Leaks() { e.leaks = true }

// Later runs f when the case is over, before the database is closed.
func (e *Env) Later(f func()) { e.cleanups = append(e.cleanups, f) }

// Await observes that something happens in the background. If it does not, the
// case ends.
func (e *Env) Await(label string, condition func() bool) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(e.patience)
	defer limit.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-limit.C:
			panic(stop{label + ": never"})
		}
	}
	e.note(label, "yes")
}

// Idle observes that no connection is in use any more.
func (e *Env) Idle() {
	e.Await("all connections are given back", func() bool { return e.DB.Stats().InUse == 0 })
}

// cancelled returns a context that has ended.
func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

type (
	execer interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	}
	queryer interface {
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	}
	session interface {
		execer
		queryer
		PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	}
)

// Exec executes and observes error and result. Placeholders in query are "?".
func (e *Env) Exec(label string, on execer, query string, args ...any) {
	res, err := on.ExecContext(e.Ctx, e.SQL.rebind(query), args...)
	e.Result(label, res, err)
}

// Result observes a result and its error.
func (e *Env) Result(label string, res sql.Result, err error) {
	e.Err(label, err)
	if err != nil {
		return
	}
	n, err := res.RowsAffected()
	e.Value(label+", rows affected", n, err)
	id, err := res.LastInsertId()
	e.Value(label+", last insert id", id, err)
}

// Do executes what a case takes for granted.
func (e *Env) Do(on execer, query string, args ...any) {
	_, err := on.ExecContext(e.Ctx, e.SQL.rebind(query), args...)
	e.Must(err)
}

// Query queries and observes error, columns and rows.
func (e *Env) Query(label string, on queryer, query string, args ...any) {
	rows, err := on.QueryContext(e.Ctx, e.SQL.rebind(query), args...)
	e.Rows(label, rows, err)
}

// Rows observes everything that rows give, and closes them.
func (e *Env) Rows(label string, rows *sql.Rows, err error) {
	e.Err(label, err)
	if err != nil {
		return
	}
	e.Set(label, rows)
	e.Err(label+", close", rows.Close())
}

// Set observes the current result set, to its end.
func (e *Env) Set(label string, rows *sql.Rows) {
	columns, err := rows.Columns()
	e.Value(label+", columns", columns, err)
	for rows.Next() {
		e.Row(label+", row", rows, len(columns))
	}
	e.Err(label+", end", rows.Err())
}

// Row scans and observes one row.
func (e *Env) Row(label string, rows *sql.Rows, columns int) {
	values, dest := make([]any, columns), make([]any, columns)
	for i := range values {
		dest[i] = &values[i]
	}
	err := rows.Scan(dest...)
	e.Value(label, append(values, err)...)
}

// Count observes the number of rows of a table.
func (e *Env) Count(label string, on queryer, table string) {
	var n int
	err := on.QueryRowContext(e.Ctx, "SELECT count(*) FROM "+table).Scan(&n)
	e.Value(label, n, err)
}

// Table makes a table of the name with these columns, written "a INT, b TEXT"
// in the fake's names of types, and drops it in the end.
func (e *Env) Table(name, columns string) {
	for fake, own := range e.SQL.Types {
		columns = strings.ReplaceAll(columns, fake, own)
	}
	if e.Server == nil {
		e.Do(e.DB, "DROP TABLE IF EXISTS "+name)
		e.Later(func() { e.Do(e.DB, "DROP TABLE IF EXISTS "+name) })
	}
	e.Do(e.DB, "CREATE TABLE "+name+" ("+columns+")")
}

// Prepare prepares what a case takes for granted.
func (e *Env) Prepare(on session, query string) *sql.Stmt {
	s, err := on.PrepareContext(e.Ctx, e.SQL.rebind(query))
	e.Must(err)
	return s
}

// Begin begins what a case takes for granted.
func (e *Env) Begin(ctx context.Context) *sql.Tx {
	tx, err := e.DB.BeginTx(ctx, nil)
	e.Must(err)
	return tx
}

// Conn takes a connection for granted; it is closed in the end.
func (e *Env) Conn() *sql.Conn {
	c, err := e.DB.Conn(e.Ctx)
	e.Must(err)
	e.Later(func() { _ = c.Close() })
	return c
}

// ID asks which connection this is.
func (e *Env) ID(on queryer) int64 {
	var id int64
	e.Must(on.QueryRowContext(e.Ctx, e.SQL.ConnectionID).Scan(&id))
	return id
}

// Alive observes that the database works.
func (e *Env) Alive() { e.Query("the database works", e.DB, "SELECT 1") }
