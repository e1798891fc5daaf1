package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// querier is what a program's statements go through: a *sql.DB or a *sql.Tx.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// nest is a program that finishes nothing before it begins the next: in the loop
// over its rows it queries, writes, begins transactions, and loops again.
type nest struct {
	db  *sql.DB
	via querier
}

// In all loops of nesting depth 3 together there are 2+4+8 rows, and for each of
// them one write of each kind.
const (
	nestDepth = 3
	nestRows  = 14
)

func (n nest) loop(ctx context.Context, depth int) error {
	if depth == 0 {
		return nil
	}
	rows, err := n.via.QueryContext(ctx, "SELECT id FROM things WHERE id <= 2 ORDER BY id")
	if err != nil {
		return err
	}
	defer rows.Close()
	for want := 1; rows.Next(); want++ {
		var id int
		if err := rows.Scan(&id); err != nil {
			return err
		}
		if id != want {
			return fmt.Errorf("row %d in place of %d", id, want)
		}
		if err := n.row(ctx, id, depth); err != nil {
			return err
		}
	}
	return rows.Err()
}

// row goes on to the next loop for the first row as it is, for the second in a
// nested transaction.
func (n nest) row(ctx context.Context, id, depth int) error {
	var seen int
	if err := n.via.QueryRowContext(ctx, "SELECT count(*) FROM things").Scan(&seen); err != nil {
		return err
	}
	if seen != things {
		return fmt.Errorf("%d things", seen)
	}
	if err := n.log(ctx, "written"); err != nil {
		return err
	}
	if id == 1 {
		if err := n.loop(ctx, depth-1); err != nil {
			return err
		}
	}
	if err := n.transaction(ctx, func(inner nest, tx *sql.Tx) error {
		if err := inner.log(ctx, "committed"); err != nil {
			return err
		}
		if id == 2 {
			if err := inner.loop(ctx, depth-1); err != nil {
				return err
			}
		}
		return tx.Commit()
	}); err != nil {
		return err
	}
	return n.transaction(ctx, func(inner nest, tx *sql.Tx) error {
		if err := inner.log(ctx, "rolled back"); err != nil {
			return err
		}
		return tx.Rollback()
	})
}

func (n nest) log(ctx context.Context, what string) error {
	_, err := n.via.ExecContext(ctx, "INSERT INTO log VALUES (1, '"+what+"')")
	return err
}

func (n nest) transaction(ctx context.Context, work func(nest, *sql.Tx) error) error {
	tx, err := n.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	inner := n
	if _, ok := n.via.(*sql.Tx); ok {
		inner.via = tx
	}
	return work(inner, tx)
}

// frame is what a program runs in.
type frame struct {
	name string
	run  func(ctx context.Context, db *sql.DB, work func(context.Context, querier) error) error
}

var frames = []frame{
	{"outside a transaction", func(ctx context.Context, db *sql.DB, work func(context.Context, querier) error) error {
		return work(ctx, db)
	}},
	{"in a transaction, through the DB", func(ctx context.Context, db *sql.DB, work func(context.Context, querier) error) error {
		return begun(ctx, db, func(*sql.Tx) error { return work(ctx, db) })
	}},
	{"in a transaction, through the Tx", func(ctx context.Context, db *sql.DB, work func(context.Context, querier) error) error {
		return begun(ctx, db, func(tx *sql.Tx) error { return work(ctx, tx) })
	}},
	{"in InTx, through the DB", func(ctx context.Context, db *sql.DB, work func(context.Context, querier) error) error {
		return pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error { return work(ctx, db) })
	}},
	{"in InTx, through the Tx", func(ctx context.Context, db *sql.DB, work func(context.Context, querier) error) error {
		return pooldriver.InTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error { return work(ctx, tx) })
	}},
}

// plainFrames are those that are written the same without tasks, and let a
// statement ask for a second connection.
var plainFrames = frames[:2]

func begun(ctx context.Context, db *sql.DB, work func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// nested is the whole program of a task.
func nested(ctx context.Context, db *sql.DB, f frame) error {
	return pooldriver.Do(ctx, func(ctx context.Context) error {
		return f.run(ctx, db, func(ctx context.Context, via querier) error {
			return nest{db: db, via: via}.loop(ctx, nestDepth)
		})
	})
}

var manyTasks = randomtest.Rounds(25, 100)

func TestTasksNestEverythingOnOneConnection(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, d database) {
		for _, f := range frames {
			t.Run(f.name, func(t *testing.T) {
				d.setUp(t)
				db, connector := d.open(t, 1, patient)
				end := d.guard(t, 1)
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
				defer cancel()
				for _, err := range parallel(manyTasks, func() error { return nested(ctx, db, f) }) {
					require.NoError(t, err)
				}
				end()
				d.requireRest(t, connector)
				require.NoError(t, db.Close())
				require.Equal(t, map[string]int{"written": manyTasks * nestRows, "committed": manyTasks * nestRows}, d.logged(t))
			})
		}
	})
}

// TestTasksOfAllKindsShareFewConnections: those in a transaction hold one, and
// those outside hold one for their rows and take another where they can.
func TestTasksOfAllKindsShareFewConnections(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, d database) {
		if d.kind == "mysql" && testbed.MySQL == testbed.OracleMySQL {
			// At REPEATABLE READ rolled back INSERTs of several tasks leave locks between the
			// rows, and MySQL ends one of the tasks as a deadlock.
			d.parameters = append(d.parameters, "transaction_isolation=%27READ-COMMITTED%27")
		}
		for _, max := range []int{2, 10} {
			t.Run(fmt.Sprintf("max=%d", max), func(t *testing.T) {
				d.setUp(t)
				db, connector := d.open(t, max, patient)
				end := d.guard(t, max)
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
				defer cancel()
				var number atomic.Int64
				for _, err := range parallel(manyTasks, func() error {
					return nested(ctx, db, frames[int(number.Add(1))%len(frames)])
				}) {
					require.NoError(t, err)
				}
				end()
				d.requireRest(t, connector)
				require.NoError(t, db.Close())
				require.Equal(t, map[string]int{"written": manyTasks * nestRows, "committed": manyTasks * nestRows}, d.logged(t))
			})
		}
	})
}

// TestATaskDoesNotLockItselfOutOfSQLite: in SQLite's default mode open rows on one
// connection keep every other one from writing.
func TestATaskDoesNotLockItselfOutOfSQLite(t *testing.T) {
	t.Parallel()
	for _, f := range frames {
		t.Run(f.name, func(t *testing.T) {
			d := database{kind: "sqlite", file: filepath.Join(t.TempDir(), "tasks.db")}
			d.setUp(t)
			db, connector := d.open(t, 10)
			require.NoError(t, nested(t.Context(), db, f))
			d.requireRest(t, connector)
			require.Equal(t, map[string]int{"written": nestRows, "committed": nestRows}, d.logged(t))
		})
	}
}

// TestOtherTasksInARowsLoopHaveItsConnection: the rows are all that holds it.
func TestOtherTasksInARowsLoopHaveItsConnection(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, d database) {
		for _, a := range asides {
			t.Run(a.name, func(t *testing.T) {
				d.setUp(t)
				db, connector := d.open(t, 1)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				require.NoError(t, pooldriver.Do(ctx, func(ctx context.Context) error {
					rows, err := db.QueryContext(ctx, "SELECT id FROM things ORDER BY id")
					require.NoError(t, err)
					defer rows.Close()
					for rows.Next() {
						require.NoError(t, a.run(ctx, db))
					}
					return rows.Err()
				}))
				d.requireRest(t, connector)
				require.Equal(t, map[string]int{"aside": things}, d.logged(t))
			})
		}
	})
}

// rowsInRows reads things, and for each of them all the things before it. When it
// has its first row it passes the gate.
func rowsInRows(ctx context.Context, db *sql.DB, d database, g *gate) error {
	rows, err := db.QueryContext(ctx, "SELECT id FROM things ORDER BY id")
	if err != nil {
		return err
	}
	defer rows.Close()
	seen := 0
	for rows.Next() {
		if seen++; seen == 1 {
			if err := g.pass(ctx); err != nil {
				return err
			}
		}
		var id int
		if err := rows.Scan(&id); err != nil {
			return err
		}
		before, err := count(ctx, db, "SELECT id FROM things WHERE id <= "+d.mark(), id)
		if err != nil {
			return err
		}
		if id != seen || before != seen {
			return fmt.Errorf("row %d is %d, of %d", seen, id, before)
		}
	}
	if rows.Err() == nil && seen != things {
		return fmt.Errorf("%d things", seen)
	}
	return rows.Err()
}

// count reads the rows of a query one by one.
func count(ctx context.Context, via querier, query string, args ...any) (n int, err error) {
	rows, err := via.QueryContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		n++
	}
	return n, rows.Err()
}

const manyLoops = 50

func TestRowsInRowsCompleteWithoutATask(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, d database) {
		d.setUp(t)
		for _, max := range []int{10, 1} {
			t.Run(fmt.Sprintf("max=%d", max), func(t *testing.T) {
				db, connector := d.open(t, max, patient)
				end := d.guard(t, max)
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
				defer cancel()
				g := newGate(max)
				for _, err := range parallel(manyLoops, func() error { return rowsInRows(ctx, db, d, g) }) {
					require.NoError(t, err)
				}
				end()
				d.requireRest(t, connector)
				require.NoError(t, db.Close())
			})
		}
	})
}

func TestTheSameProgramsHangWithTheBareDriver(t *testing.T) {
	t.Parallel()
	const patience = time.Second
	onEachDSN(t, func(t *testing.T, d database) {
		d.setUp(t)
		hang := func(name string, max, n int, program func(ctx context.Context, db *sql.DB) error) {
			t.Run(name, func(t *testing.T) {
				db := d.openBare(t, max)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				for _, err := range parallel(n, func() error { return program(ctx, db) }) {
					require.ErrorIs(t, err, context.DeadlineExceeded)
				}
				require.NoError(t, db.Close())
			})
		}
		for _, f := range plainFrames {
			hang(f.name, 1, manyTasks, func(ctx context.Context, db *sql.DB) error { return nested(ctx, db, f) })
		}
		for _, max := range []int{10, 1} {
			g := newGate(max)
			hang(fmt.Sprintf("rows in rows at %d", max), max, manyLoops, func(ctx context.Context, db *sql.DB) error {
				return rowsInRows(ctx, db, d, g)
			})
		}
	})
}

// lookup is an argument whose value the database knows.
type lookup struct {
	ctx context.Context
	via querier
}

func (l lookup) Value() (driver.Value, error) {
	var last int64
	err := l.via.QueryRowContext(l.ctx, "SELECT max(id) FROM things").Scan(&last)
	return last, err
}

// TestAnArgumentMayAskTheDatabaseForItsValue: pgx converts arguments while it
// has the connection, so there a second one is needed, and no transaction.
func TestAnArgumentMayAskTheDatabaseForItsValue(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, d database) {
		max, frames := 1, frames
		if d.kind == "postgres" {
			max, frames = 2, frames[:1]
		}
		query := "SELECT id FROM things WHERE id = " + d.mark()
		for _, f := range frames {
			t.Run(f.name, func(t *testing.T) {
				d.setUp(t)
				db, connector := d.open(t, max, patient)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				require.NoError(t, pooldriver.Do(ctx, func(ctx context.Context) error {
					return f.run(ctx, db, func(ctx context.Context, via querier) error {
						// Through the Tx the argument would wait for the lock that
						// sql.Tx holds meanwhile.
						value := lookup{ctx, db}
						var id int
						require.NoError(t, via.QueryRowContext(ctx, query, value).Scan(&id))
						require.Equal(t, things, id)
						_, err := via.ExecContext(ctx, "INSERT INTO log VALUES ("+d.mark()+", 'looked up')", value)
						require.NoError(t, err)
						n, err := count(ctx, via, "SELECT who FROM log WHERE who = "+d.mark(), value)
						require.Equal(t, 1, n)
						return err
					})
				}))
				d.requireRest(t, connector)
				require.Equal(t, map[string]int{"looked up": 1}, d.logged(t))
			})
		}
		t.Run("of a prepared statement", func(t *testing.T) {
			db, connector := d.open(t, max, patient)
			require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error {
				stmt, err := db.PrepareContext(ctx, query)
				require.NoError(t, err)
				defer stmt.Close()
				for range 3 {
					var id int
					require.NoError(t, stmt.QueryRowContext(ctx, lookup{ctx, db}).Scan(&id))
					require.Equal(t, things, id)
				}
				return nil
			}))
			d.requireRest(t, connector)
		})
	})
}

// patient leaves it to the context how long a statement waits: on a slow machine a hundred
// tasks on one connection take longer than pool_acquire_timeout.
func patient(c *pooldriver.Config) { c.AcquireTimeout = 0 }
