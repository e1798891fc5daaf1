package behaviour

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// reading is a way to read rows: after so many of a result set's rows it goes to
// the next set, or closes; -1 is after all.
type reading struct{ next, close int }

// transcript reads rows and writes down everything that a program can see of
// them. Before each step it calls interrupt, which may need the connection.
func transcript(rows *sql.Rows, how reading, interrupt func()) (lines []string) {
	note := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	describe := func() {
		interrupt()
		names, err := rows.Columns()
		note("columns %q %v", names, err)
		types, err := rows.ColumnTypes()
		note("%d types %v", len(types), err)
		for _, c := range types {
			length, hasLength := c.Length()
			precision, scale, hasDecimal := c.DecimalSize()
			nullable, hasNullable := c.Nullable()
			note("type %s %s %v %d %v %d %d %v %v %v", c.Name(), c.DatabaseTypeName(), c.ScanType(), length, hasLength, precision, scale, hasDecimal, nullable, hasNullable)
		}
	}
	for {
		describe()
		for n := 0; n != how.next; n++ {
			interrupt()
			if n == how.close {
				note("close %v", rows.Close())
				return lines
			}
			if !rows.Next() {
				break
			}
			interrupt() // the bytes of the row have to outlive it
			names, err := rows.Columns()
			if err != nil {
				note("columns %v", err)
			}
			row := make([]any, len(names))
			into := make([]any, len(names))
			for i := range row {
				into[i] = &row[i]
			}
			note("row %v %q", rows.Scan(into...), fmt.Sprintf("%#v", row))
		}
		interrupt()
		note("error %v", rows.Err())
		if !rows.NextResultSet() {
			break
		}
	}
	interrupt()
	note("end: error %v, close %v, %v", rows.Err(), rows.Close(), rows.Next())
	return lines
}

const someThings = `
	CREATE TABLE things (a INT NOT NULL, b VARCHAR(20), c DECIMAL(10,2), d BLOB, e TIMESTAMP);
	INSERT INTO things VALUES (1, 'one', '1.50', x'00ff00', TIMESTAMP '2024-02-29T12:00:00+01:00'), (2, NULL, NULL, NULL, NULL),
		(3, '', '0', x'', TIMESTAMP '2024-02-29T12:00:00Z'), (4, 'four', '4', x'01020304050607', NULL)`

var whole = reading{-1, -1}

// queries are what is read, with the faults that meet it.
var queries = []struct {
	name, text string
	how        reading
	faults     []fakedb.Fault
}{
	{name: "one set", text: "SELECT n FROM numbers LIMIT 5", how: whole},
	{name: "no rows", text: "SELECT n FROM numbers LIMIT 0", how: whole},
	{name: "no columns", text: "INSERT INTO things VALUES (5, NULL, NULL, NULL, NULL)", how: whole},
	{name: "all types and NULLs", text: "SELECT * FROM things", how: whole},
	{name: "bytes", text: "SELECT d, a, d FROM things", how: whole},
	{name: "several sets", text: "SELECT 1 AS one, 'x' AS text; SELECT * FROM things; SELECT d FROM things LIMIT 0; SELECT n FROM numbers LIMIT 3", how: whole},
	{name: "next set before the end", text: "SELECT n FROM numbers LIMIT 4; SELECT * FROM things; SELECT n FROM numbers LIMIT 2", how: reading{2, -1}},
	{name: "next set at once", text: "SELECT n FROM numbers LIMIT 4; SELECT * FROM things", how: reading{0, -1}},
	{name: "closed half way", text: "SELECT * FROM things", how: reading{-1, 2}},
	{name: "closed half way, several sets", text: "SELECT n FROM numbers LIMIT 4; SELECT * FROM things", how: reading{-1, 2}},
	{name: "error", text: "SELECT /*+ break 3 'lost' */ d FROM things", how: whole},
	{name: "error at once", text: "SELECT /*+ break 0 'lost' */ d FROM things", how: whole},
	{name: "error in the second set", text: "SELECT 1; SELECT /*+ break 2 'lost' */ d FROM things; SELECT 2", how: whole},
	{name: "error behind what was read", text: "SELECT /*+ break 3 'lost' */ d FROM things", how: reading{-1, 2}},
	{
		name: "error of NextResultSet", text: "SELECT 1; SELECT 2; SELECT 3", how: whole,
		faults: []fakedb.Fault{{Call: fakedb.RowsNextSet, Skip: 1, Err: errors.New("no set")}},
	},
	{
		name: "error of Close", text: "SELECT * FROM things", how: reading{-1, 2},
		faults: []fakedb.Fault{{Call: fakedb.RowsClose, Err: errors.New("cannot close")}},
	},
	{
		name: "error of Close at the end", text: "SELECT * FROM things", how: whole,
		faults: []fakedb.Fault{{Call: fakedb.RowsClose, Err: errors.New("cannot close")}},
	},
}

// plainly is the transcript over the bare driver.
func plainly(t *testing.T, query string, how reading, faults []fakedb.Fault) []string {
	t.Helper()
	server := fakedb.NewServer()
	db := sql.OpenDB(server.Connector(fakedb.Variant{Features: fakedb.All}))
	defer db.Close()
	mustExec(t, t.Context(), db, someThings)
	for _, f := range faults {
		server.Inject(f)
	}
	rows, err := db.Query(query)
	require.NoError(t, err)
	lines := transcript(rows, how, func() {})
	require.Empty(t, server.Violations())
	return lines
}

// inTheWay opens rows by query, and interrupts their reading at the given steps
// by a statement that needs their connection, which is the only one.
func inTheWay(t *testing.T, ctx context.Context, server *fakedb.Server, db *sql.DB, query string, how reading, faults []fakedb.Fault, at func(step int) bool) (lines []string, steps int) {
	t.Helper()
	rows, err := db.QueryContext(ctx, query)
	require.NoError(t, err)
	for _, f := range faults {
		server.Inject(f)
	}
	lines = transcript(rows, how, func() {
		if at(steps) {
			if _, err := db.ExecContext(ctx, "SELECT 1"); !errors.Is(err, pooldriver.ErrNestedBuffer) {
				require.NoError(t, err)
			}
		}
		steps++
	})
	require.NoError(t, rows.Close())
	return lines, steps
}

func always(int) bool { return true }

func only(step int) func(int) bool { return func(s int) bool { return s == step } }

func TestRowsReadAheadAreTheRowsReadPlainly(t *testing.T) {
	t.Parallel()
	for _, q := range queries {
		t.Run(q.name, func(t *testing.T) {
			want := plainly(t, q.text, q.how, q.faults)
			for name, run := range map[string]func(ctx context.Context, db *sql.DB, fn func(context.Context) error) error{
				"in a task": func(ctx context.Context, _ *sql.DB, fn func(context.Context) error) error {
					return pooldriver.Do(ctx, fn)
				},
				"in a transaction": inTransaction,
			} {
				for _, limit := range []int64{16 << 20, 100, 0} {
					read := func(t *testing.T, at func(int) bool) (steps int) {
						server, db, c := openTasks(t, 1, func(c *pooldriver.Config) { c.NestedBuffer = limit })
						mustExec(t, t.Context(), db, someThings)
						require.NoError(t, run(t.Context(), db, func(ctx context.Context) error {
							var got []string
							got, steps = inTheWay(t, ctx, server, db, q.text, q.how, q.faults, at)
							require.Equal(t, want, got, "%s, limit %d", name, limit)
							return nil
						}))
						require.Zero(t, c.Stats().BufferedBytes)
						require.Zero(t, lent(c))
						return steps
					}
					synctest.Test(t, func(t *testing.T) { // rows too large are waited for
						for step := range read(t, always) {
							read(t, only(step))
						}
					})
				}
			}
		})
	}
}

func TestRowsTakenBackForOthersAreTheRowsReadPlainly(t *testing.T) {
	for _, q := range queries {
		if q.name == "no columns" {
			continue // an INSERT; what writes is taken back all the same, but not twice executed
		}
		t.Run(q.name, func(t *testing.T) {
			want := plainly(t, q.text, q.how, q.faults)
			server, db, c := openTasks(t, 1)
			mustExec(t, t.Context(), db, someThings)
			got, steps := inTheWay(t, t.Context(), server, db, q.text, q.how, q.faults, only(0))
			require.Equal(t, want, got)
			middle := steps / 2
			server.Heal()
			got, _ = inTheWay(t, t.Context(), server, db, q.text, q.how, q.faults, only(middle))
			require.Equal(t, want, got)
			require.NotZero(t, c.Stats().Reclaims)
			require.Zero(t, c.Stats().BufferedBytes)
			atRest(t, c)
		})
	}
}

func TestRowsGoOnWhereAnImpatientStatementGaveUpReadingThemAhead(t *testing.T) {
	const query = "SELECT d, a FROM things; SELECT n FROM numbers LIMIT 3"
	want := plainly(t, query, whole, nil)
	for skip := range 4 {
		server, db, c := openTasks(t, 1)
		mustExec(t, t.Context(), db, someThings)
		require.NoError(t, inTransaction(t.Context(), db, func(ctx context.Context) error {
			rows, err := db.QueryContext(ctx, query)
			require.NoError(t, err)
			gate := fakedb.NewGate()
			server.Inject(fakedb.Fault{Call: fakedb.RowsNext, Skip: skip, Gate: gate})
			impatient, cancel := context.WithCancel(ctx)
			nested := make(chan error, 1)
			go func() {
				_, err := db.ExecContext(impatient, "SELECT 1")
				nested <- err
			}()
			<-gate.Entered()
			cancel()
			gate.Open()
			require.ErrorIs(t, <-nested, context.Canceled)
			require.Equal(t, want, transcript(rows, whole, func() {}))
			return nil
		}))
		require.Zero(t, c.Stats().BufferedBytes)
	}
}

func TestRowsClosedWithTheTaskLeaveNothingInMemory(t *testing.T) {
	for name, limit := range map[string]int64{"all in memory": 16 << 20, "some in memory": 100} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the one waits for its connection
			_, db, c := openTasks(t, 1, func(c *pooldriver.Config) { c.NestedBuffer = limit })
			ctx, end := pooldriver.WithTask(t.Context())
			rows, err := db.QueryContext(context.WithoutCancel(ctx), "SELECT n FROM numbers LIMIT 50")
			require.NoError(t, err)
			require.True(t, rows.Next())
			_, err = db.ExecContext(ctx, "SET a = 1")
			if limit == 100 {
				require.ErrorIs(t, err, pooldriver.ErrNestedBuffer)
			}
			require.NotZero(t, c.Stats().BufferedBytes)
			end()
			for rows.Next() {
				require.EqualValues(t, 16<<20, limit, "the connection of what is not in memory is gone")
			}
			_ = rows.Close()
			require.Zero(t, c.Stats().BufferedBytes)
			require.Zero(t, lent(c))
		})
	}
}

func TestWhatHasBeenReadOfRowsDoesNotCountAgainstTheLimit(t *testing.T) {
	_, db, c := openTasks(t, 1, func(c *pooldriver.Config) { c.NestedBuffer = 100 }) // four rows
	require.NoError(t, inTransaction(t.Context(), db, func(ctx context.Context) error {
		rows, err := db.QueryContext(ctx, "SELECT n FROM numbers LIMIT 7")
		require.NoError(t, err)
		require.ErrorIs(t, insertTwo(ctx, db), pooldriver.ErrNestedBuffer)
		for range 5 {
			require.True(t, rows.Next())
		}
		require.NoError(t, insertTwo(ctx, db), "two rows are left")
		return rows.Close()
	}))
	require.Zero(t, c.Stats().BufferedBytes)
}

// Rows that a *sql.Conn has open, and that could not be read ahead for its next
// statement, keep their connection when the Conn goes on in a transaction.
func TestAConnectionOnWhichRowsAreOpenIsNobodyElses(t *testing.T) {
	for _, how := range []string{"too large", "impatient"} {
		t.Run(how, func(t *testing.T) {
			server, db, c := openTasks(t, 2, func(c *pooldriver.Config) {
				if how == "too large" {
					c.NestedBuffer = 100
				}
			})
			ctx, end := pooldriver.WithTask(t.Context())
			defer end()
			conn, err := db.Conn(ctx)
			require.NoError(t, err)
			rows, err := conn.QueryContext(ctx, "SELECT n FROM numbers LIMIT 50")
			require.NoError(t, err)
			defer rows.Close()
			require.True(t, rows.Next())
			if how == "too large" {
				require.ErrorIs(t, insertTwo(ctx, conn), pooldriver.ErrNestedBuffer)
			} else {
				impatient, cancel := context.WithCancel(ctx)
				gate := server.Block(fakedb.RowsNext)
				go func() { <-gate.Entered(); cancel(); gate.Open() }()
				require.ErrorIs(t, insertTwo(impatient, conn), context.Canceled)
			}
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			require.NoError(t, insertTwo(ctx, conn), "in the transaction")
			require.Equal(t, 1, server.State().OpenRows())
			require.Equal(t, 2, lent(c), "the transaction's, and that of the rows")
			stranger, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			require.ErrorIs(t, insertTwo(stranger, db), context.DeadlineExceeded)
			seen := 1
			for rows.Next() {
				seen++
			}
			require.NoError(t, rows.Err())
			require.Equal(t, 50, seen)
			require.NoError(t, rows.Close())
			require.NoError(t, tx.Rollback())
			require.NoError(t, conn.Close())
			end()
			require.Zero(t, lent(c))
		})
	}
}

func TestAStatementWaitsForRowsOfItsTaskThatAreBeingRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db, _ := openTasks(t, 1, func(c *pooldriver.Config) { c.NestedBuffer = 100 })
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		rows, err := db.QueryContext(ctx, "SELECT n FROM numbers LIMIT 1000")
		require.NoError(t, err)
		inserted := make(chan error, 1)
		go func() { inserted <- insertTwo(ctx, db) }()
		for rows.Next() {
			time.Sleep(5 * time.Millisecond)
		}
		require.NoError(t, rows.Err())
		require.NoError(t, rows.Close())
		require.NoError(t, <-inserted)
	})
}
