package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// question is a query whose answer is compared.
type question struct {
	name  string
	query string
	args  []any
	// prepared: by a statement of its own.
	prepared bool
	rows     int    // before the end or the error
	sets     int    // 0: one
	fails    string // part of the error
	large    bool   // too much to be read in every way
	// suspect: its connection is not taken for those who starve.
	suspect bool
}

// preparer is what a program's statements and prepared statements go through.
type preparer interface {
	querier
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// ask returns the rows, and what to do after them.
func (q question) ask(ctx context.Context, via preparer) (*sql.Rows, func(), error) {
	if !q.prepared {
		rows, err := via.QueryContext(ctx, q.query, q.args...)
		return rows, func() {}, err
	}
	stmt, err := via.PrepareContext(ctx, q.query)
	if err != nil {
		return nil, nil, err
	}
	rows, err := stmt.QueryContext(ctx, q.args...)
	return rows, func() { _ = stmt.Close() }, err
}

// failingAt500 sends 499 rows and then an error.
var failingAt500 = map[string]question{
	"postgres": {query: "SELECT n, 1/(n-500) FROM generate_series(1,1000) n", fails: "22012"},
	"mysql": {query: "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 1000) " +
		"SELECT n, n + IF(n = 500, 9223372036854775807, 0) FROM s", fails: "1690"},
	"sqlite": {query: "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 1000) " +
		"SELECT n, CASE WHEN n = 500 THEN abs(-9223372036854775807 - 1) ELSE n END FROM s", fails: "integer overflow"},
}

func (d database) questions() []question {
	fails := failingAt500[d.kind]
	fails.name, fails.rows = "an error after 499 rows", 499
	beyond := "SELECT * FROM wide WHERE id > " + d.mark() + " ORDER BY id"
	questions := []question{
		{name: "all types", query: "SELECT * FROM wide ORDER BY id", rows: wideRows},
		{name: "all types, with an argument", query: beyond, args: []any{0}, rows: wideRows},
		{name: "all types, prepared", query: beyond, args: []any{0}, rows: wideRows, prepared: true},
		{name: "no rows", query: beyond, args: []any{wideRows}, rows: 0},
		{name: "expressions", query: "SELECT id, id + 1.5, NULL, 'x' AS x, NULL AS x FROM wide ORDER BY id", rows: wideRows},
		{name: "large values", query: "SELECT * FROM large ORDER BY id", rows: wideRows, large: true},
		fails,
	}
	if d.kind == "mysql" {
		questions = append(questions,
			// Text and binary protocol differ.
			question{name: "large values, with an argument", query: "SELECT * FROM large WHERE id > ? ORDER BY id", args: []any{0}, rows: wideRows, large: true},
			question{name: "several result sets", sets: 4, rows: 3 + wideRows + 2,
				query: "SELECT id FROM wide WHERE id <= 3; SELECT * FROM wide ORDER BY id; SELECT id FROM wide WHERE id < 0; SELECT id, 'x' FROM wide WHERE id <= 2"},
			question{name: "several result sets and an error", sets: 2, rows: 3 + 499, fails: "1690",
				query: "SELECT id FROM wide WHERE id <= 3; " + fails.query + "; SELECT 1"},
			question{name: "a procedure", query: "CALL several()", sets: 2, rows: 3 + wideRows, suspect: true},
		)
	}
	return questions
}

// way is how a program reads rows with something between them.
type way struct {
	name string
	// read opens rows by via, and calls between when it is time to.
	run func(ctx context.Context, db *sql.DB, work func(ctx context.Context, via preparer, between func() error) error) error
	// joined: what is between the rows shares their transaction.
	joined bool
	// taken: the connection has to be taken from the open rows.
	taken bool
}

// interlude uses a connection.
func interlude(ctx context.Context, via querier) error {
	n, err := count(ctx, via, "SELECT id FROM things ORDER BY id")
	if err == nil && n != things {
		err = fmt.Errorf("%d things", n)
	}
	if err != nil {
		return err
	}
	return insert(ctx, via, "between")
}

var ways = []way{
	{name: "in a task", run: func(ctx context.Context, db *sql.DB, work func(context.Context, preparer, func() error) error) error {
		return pooldriver.Do(ctx, func(ctx context.Context) error {
			return work(ctx, db, func() error { return interlude(ctx, db) })
		})
	}},
	{name: "in a task's transaction", joined: true, run: func(ctx context.Context, db *sql.DB, work func(context.Context, preparer, func() error) error) error {
		return pooldriver.Do(ctx, func(ctx context.Context) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			return work(ctx, db, func() error { return interlude(ctx, db) })
		})
	}},
	{name: "in InTx", joined: true, run: func(ctx context.Context, db *sql.DB, work func(context.Context, preparer, func() error) error) error {
		err := pooldriver.InTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
			if err := work(ctx, tx, func() error { return interlude(ctx, tx) }); err != nil {
				return err
			}
			return errRollback
		})
		if err == errRollback {
			return nil
		}
		return err
	}},
	{name: "without a task while others starve", taken: true, run: func(ctx context.Context, db *sql.DB, work func(context.Context, preparer, func() error) error) error {
		return work(ctx, db, func() error { return <-async(func() error { return interlude(ctx, db) }) })
	}},
}

var errRollback = errors.New("roll back")

// tightWays are those in which nothing waits for long when the rows do not fit
// the buffer.
var tightWays = []way{ways[1], ways[2], {
	name: "without a task while others starve", run: func(ctx context.Context, db *sql.DB, work func(context.Context, preparer, func() error) error) error {
		var starving <-chan error
		err := work(ctx, db, func() error {
			starving = async(func() error { return interlude(ctx, db) })
			time.Sleep(50 * time.Millisecond) // more than the patience of those who starve
			return nil
		})
		return errors.Join(err, <-starving)
	},
}}

// comparison is of rows read plainly with rows between which something happens.
type comparison struct {
	database
	questions []question
	targets   []target
	ways      []way
	tight     bool // no rows fit the buffer
}

func TestRowsAreTheSameWhateverHappensBetweenThem(t *testing.T) {
	t.Parallel()
	onEachDSN(t, func(t *testing.T, d database) {
		d = d.makeAnswers(t)
		comparison{database: d, questions: d.questions(), targets: targets, ways: ways}.run(t)
		if d.kind == "mysql" {
			t.Run("parseTime", func(t *testing.T) {
				comparison{database: d.with("parseTime=true"), questions: d.questions()[:3], targets: targets, ways: ways}.run(t)
			})
		}
	})
}

// TestRowsThatDoNotFitTheBufferAreTheSame: a part of them has been read ahead.
func TestRowsThatDoNotFitTheBufferAreTheSame(t *testing.T) {
	t.Parallel()
	onEachDSN(t, func(t *testing.T, d database) {
		d = d.makeAnswers(t)
		comparison{database: d.with("pool_nested_buffer=100B"), questions: d.questions(), targets: []target{targets[0], targets[2]}, ways: tightWays, tight: true}.run(t)
	})
}

// makeAnswers makes what the questions are about, and returns the database as it
// is reached for them.
func (d database) makeAnswers(t testing.TB) database {
	t.Helper()
	d.setUp(t)
	d.makeWide(t)
	d.makeLarge(t)
	if d.kind == "mysql" {
		d.execute(t, "CREATE PROCEDURE several() BEGIN SELECT id FROM wide WHERE id <= 3; SELECT * FROM wide ORDER BY id; END")
		d = d.with("multiStatements=true")
	}
	return d
}

func (c comparison) run(t *testing.T) {
	plain := c.bare(t)
	for _, q := range c.questions {
		t.Run(q.name, func(t *testing.T) {
			plainly := map[string]reading{}
			key := func(to target, k int) string { return fmt.Sprintf("%s, after row %d", to.name, k) }
			targets := c.targets
			if q.large {
				targets = targets[:min(3, len(targets))]
			}
			for _, to := range targets {
				for _, k := range q.moments() {
					rows, end, err := q.ask(t.Context(), plain)
					require.NoError(t, err)
					r := readAll(rows, to, k, func() {})
					end()
					q.requireWhole(t, r)
					plainly[key(to, k)] = r
				}
			}
			for _, w := range c.ways {
				if w.taken && q.suspect {
					continue // Who starves has to wait.
				}
				t.Run(w.name, func(t *testing.T) {
					db, connector := c.open(t, 1)
					refused := 0
					for _, to := range targets {
						for _, k := range q.moments() {
							r, between := q.readBy(t, w, db, to, k)
							require.Empty(t, difference(plainly[key(to, k)], r), key(to, k))
							switch {
							case c.tight && errors.Is(between, pooldriver.ErrNestedBuffer):
								refused++
							case c.kind == "postgres" && q.fails != "" && w.joined:
								// The transaction has failed with the rows.
								require.ErrorContains(t, between, "25P02", key(to, k))
							default:
								require.NoError(t, between, key(to, k))
							}
						}
					}
					if c.tight && w.joined && q.rows > 0 {
						require.NotZero(t, refused)
					}
					c.requireRest(t, connector)
					require.NoError(t, db.Close())
				})
			}
		})
	}
}

// bare opens the bare driver, which knows no parameters of the pool's.
func (c comparison) bare(t testing.TB) *sql.DB {
	t.Helper()
	d := c.database
	d.parameters = slices.DeleteFunc(slices.Clone(d.parameters), func(p string) bool { return strings.HasPrefix(p, "pool_") })
	return d.openBare(t, 1)
}

// moments are the numbers of rows after which something happens.
func (q question) moments() []int {
	var moments []int
	for _, k := range []int{0, 1, 7, q.rows} {
		if k <= q.rows && (k == 0 || moments[len(moments)-1] != k) {
			moments = append(moments, k)
		}
	}
	return moments
}

// requireWhole: what others are compared with is what was asked for.
func (q question) requireWhole(t testing.TB, r reading) {
	t.Helper()
	require.Equal(t, q.rows, r.rows())
	require.Equal(t, max(q.sets, 1), len(r.Sets))
	if q.fails == "" {
		require.Empty(t, r.Err)
	} else {
		require.Contains(t, r.Err, q.fails)
	}
}

// readBy returns, beside the reading, the error of what was between the rows.
func (q question) readBy(t testing.TB, w way, db *sql.DB, to target, k int) (r reading, between error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, w.run(ctx, db, func(ctx context.Context, via preparer, interlude func() error) error {
		rows, end, err := q.ask(ctx, via)
		if err != nil {
			return err
		}
		defer end()
		happened := false
		r = readAll(rows, to, k, func() { happened, between = true, interlude() })
		require.True(t, happened)
		return nil
	}))
	return r, between
}

// The pages do not fit the buffer.
const (
	smallBuffer = "pool_nested_buffer=64KiB"
	pages       = 300
	pageSize    = 1 << 10
)

func page(id int) string { return strings.Repeat(fmt.Sprintf("%04d", id), pageSize/4) }

func (d database) makePages(t testing.TB) {
	t.Helper()
	rows := make([]string, pages)
	for i := range rows {
		rows[i] = fmt.Sprintf("(%d, '%s')", i+1, page(i+1))
	}
	d.execute(t, "CREATE TABLE pages (id integer PRIMARY KEY, body text)", "INSERT INTO pages VALUES "+strings.Join(rows, ", "))
}

// readPages reads all of them, and calls between after each.
func readPages(ctx context.Context, t testing.TB, via querier, between func(id int)) {
	t.Helper()
	rows, err := via.QueryContext(ctx, "SELECT id, body FROM pages ORDER BY id")
	require.NoError(t, err)
	defer rows.Close()
	seen := 0
	for rows.Next() {
		var id int
		var body string
		require.NoError(t, rows.Scan(&id, &body))
		seen++
		require.Equal(t, seen, id)
		require.Equal(t, page(id), body)
		between(id)
	}
	require.NoError(t, rows.Err())
	require.Equal(t, pages, seen)
}

// TestRowsLargerThanTheBufferStayReadable: the nested statement is refused, as
// long as what is left does not fit; the rows are not harmed.
func TestRowsLargerThanTheBufferStayReadable(t *testing.T) {
	t.Parallel()
	onEachDSN(t, func(t *testing.T, d database) {
		d.makePages(t)
		for _, f := range frames {
			t.Run(f.name, func(t *testing.T) {
				d.setUp(t)
				// Outside of a transaction each refusal takes pool_deadlock_after.
				db, connector := d.with(smallBuffer, fmt.Sprintf("pool_deadlock_after=%dms", randomtest.Rounds(500, 5000))).open(t, 1)
				require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error {
					return f.run(ctx, db, func(ctx context.Context, via querier) error {
						readPages(ctx, t, via, func(id int) {
							switch id {
							case 1, 2, 7, 100:
								require.ErrorIs(t, interlude(ctx, via), pooldriver.ErrNestedBuffer, "after row %d", id)
							case pages - 1, pages:
								require.NoError(t, interlude(ctx, via), "after row %d", id)
							}
						})
						return interlude(ctx, via)
					})
				}))
				d.requireRest(t, connector)
				require.Equal(t, map[string]int{"between": 3}, d.logged(t))
			})
		}
	})
}

// TestRowsThatWereReadTakeNoRoomInTheBuffer: a statement was refused when there
// were 70 rows left, and part of them read ahead. When 10 are left they fit.
func TestRowsThatWereReadTakeNoRoomInTheBuffer(t *testing.T) {
	t.Parallel()
	onEachDSN(t, func(t *testing.T, d database) {
		d.setUp(t)
		d.makePages(t)
		db, connector := d.with(smallBuffer).open(t, 1)
		require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error {
			return begun(ctx, db, func(tx *sql.Tx) error {
				readPages(ctx, t, tx, func(id int) {
					switch id {
					case pages - 70:
						require.ErrorIs(t, interlude(ctx, tx), pooldriver.ErrNestedBuffer)
					case pages - 10:
						require.NoError(t, interlude(ctx, tx))
					}
				})
				return nil
			})
		}))
		d.requireRest(t, connector)
		require.Equal(t, map[string]int{"between": 1}, d.logged(t))
	})
}

func TestRowsLargerThanTheBufferNeedNoneBesideAFreeConnection(t *testing.T) {
	t.Parallel()
	onEachDSN(t, func(t *testing.T, d database) {
		d.setUp(t)
		d.makePages(t)
		db, connector := d.with(smallBuffer).open(t, 2)
		end := d.guard(t, 2)
		require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error {
			readPages(ctx, t, db, func(id int) {
				n, err := count(ctx, db, "SELECT id FROM things")
				require.NoError(t, err, "after row %d", id)
				require.Equal(t, things, n)
			})
			return nil
		}))
		end()
		d.requireRest(t, connector)
	})
}

// TestRowsTooLargeToBeTakenAreLeftAlone: whoever starves has to wait for them.
func TestRowsTooLargeToBeTakenAreLeftAlone(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, d database) {
		d.setUp(t)
		d.makePages(t)
		db, connector := d.with(smallBuffer).open(t, 1)
		var starving <-chan error
		readPages(t.Context(), t, db, func(id int) {
			if id == 1 {
				starving = async(func() error { return interlude(t.Context(), db) })
				awaitWaiting(t, connector, 1)
				time.Sleep(200 * time.Millisecond) // ten times the patience of those who starve
				awaitWaiting(t, connector, 1)
			}
		})
		require.NoError(t, <-starving)
		d.requireRest(t, connector)
	})
}
