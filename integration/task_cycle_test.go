package integration

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/httptask"
)

// told is how soon a closed cycle is an error with alarmed. Who is not told in that
// time will not be.
const told = time.Second

func alarmed(c *pooldriver.Config) { c.DeadlockAfter = 200 * time.Millisecond }

// insert writes a line of the log.
func insert(ctx context.Context, via querier, what string) error {
	_, err := via.ExecContext(ctx, "INSERT INTO log VALUES (1, '"+what+"')")
	return err
}

// insertInTx does so in a transaction of its own.
func insertInTx(ctx context.Context, db *sql.DB, what string) error {
	return begun(ctx, db, func(tx *sql.Tx) error { return insert(ctx, tx, what) })
}

// aside is a way of a task to want a connection beside its transaction's.
type aside struct {
	name string
	run  func(ctx context.Context, db *sql.DB) error
}

func ofItsOwn(run func(ctx context.Context, db *sql.DB, what string) error) func(context.Context, *sql.DB) error {
	return func(ctx context.Context, db *sql.DB) error {
		ctx, end := pooldriver.NewTask(ctx)
		defer end()
		return run(ctx, db, "aside")
	}
}

func outside(run func(ctx context.Context, db *sql.DB, what string) error) func(context.Context, *sql.DB) error {
	return func(ctx context.Context, db *sql.DB) error { return run(pooldriver.Outside(ctx), db, "aside") }
}

func plainly(run func(ctx context.Context, db *sql.DB, what string) error) func(context.Context, *sql.DB) error {
	return func(ctx context.Context, db *sql.DB) error { return run(ctx, db, "aside") }
}

func insertByDB(ctx context.Context, db *sql.DB, what string) error { return insert(ctx, db, what) }

func insertByInTx(ctx context.Context, db *sql.DB, what string) error {
	return pooldriver.InTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error { return insert(ctx, tx, what) })
}

func queryByDB(ctx context.Context, db *sql.DB, what string) error {
	if _, err := count(ctx, db, "SELECT id FROM things"); err != nil {
		return err
	}
	return insert(ctx, db, what)
}

var asides = []aside{
	{"a transaction of a new task", ofItsOwn(insertInTx)},
	{"InTx of a new task", ofItsOwn(insertByInTx)},
	{"a statement of a new task", ofItsOwn(insertByDB)},
	{"a query of a new task", ofItsOwn(queryByDB)},
	{"a transaction outside", outside(insertInTx)},
	{"a statement outside", outside(insertByDB)},
}

// requireCycle: the error names what holds the connections.
func requireCycle(t testing.TB, err error) {
	t.Helper()
	require.ErrorIs(t, err, pooldriver.ErrDeadlock)
	require.ErrorContains(t, err, "task")
	require.ErrorContains(t, err, "transaction")
}

func TestAClosedCycleIsAnError(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d database) {
		for _, a := range asides {
			t.Run(a.name, func(t *testing.T) {
				d.setUp(t)
				pulse := feelPulse(t, nil)
				db, connector := d.open(t, 1, alarmed)
				ctx, cancel := context.WithTimeout(t.Context(), slowMachine)
				defer cancel()
				require.NoError(t, pooldriver.Do(ctx, func(ctx context.Context) error {
					require.NoError(t, begun(ctx, db, func(tx *sql.Tx) error {
						require.NoError(t, insert(ctx, tx, "before"))
						_ = pulse.late()
						began := time.Now()
						err := a.run(ctx, db)
						require.Less(t, time.Since(began), told+3*pulse.late())
						requireCycle(t, err)
						return insert(ctx, tx, "after") // The holder is unharmed.
					}))
					return a.run(ctx, db) // And there is no cycle any more.
				}))
				d.requireRest(t, connector)
				require.Equal(t, map[string]int{"before": 1, "after": 1, "aside": 1}, d.logged(t))
			})
		}
	})
}

// TestACycleOfManyIsBrokenByOneError has as many tasks as there are connections
// hold one each, and then want one more each. The task that is told gives up; all
// others get what they want.
func TestACycleOfManyIsBrokenByOneError(t *testing.T) {
	const many = 10
	onEachServer(t, func(t *testing.T, d database) {
		for _, a := range asides {
			t.Run(a.name, func(t *testing.T) {
				for try := 1; ; try++ { // one that was told and does not run for long gives up nothing, so another is told, too
					if failed := d.breakCycle(t, many, a); failed == 1 {
						return
					}
					require.Less(t, try, mostTries, "as few as break the cycle")
				}
			})
		}
	})
}

// breakCycle closes a cycle of many, and returns how many were told.
func (d database) breakCycle(t *testing.T, many int, a aside) (failed int) {
	t.Helper()
	d.setUp(t)
	pulse := feelPulse(t, nil)
	db, connector := d.open(t, many, alarmed)
	end := d.guard(t, many)
	ctx, cancel := context.WithTimeout(t.Context(), slowMachine)
	defer cancel()
	completed := 0
	holding := newGate(many)
	var longest atomic.Int64
	for _, err := range parallel(many, func() error {
		return pooldriver.Do(ctx, func(ctx context.Context) error {
			return begun(ctx, db, func(tx *sql.Tx) error {
				if err := insert(ctx, tx, "holder"); err != nil {
					return err
				}
				if err := holding.pass(ctx); err != nil {
					return err
				}
				began := time.Now()
				err := a.run(ctx, db)
				if errors.Is(err, pooldriver.ErrDeadlock) {
					longest.Store(max(longest.Load(), int64(time.Since(began))))
				}
				return err // If any, it rolls back.
			})
		})
	}) {
		if err == nil {
			completed++
			continue
		}
		requireCycle(t, err)
		failed++
	}
	end()
	require.Equal(t, many, failed+completed)
	require.Positive(t, failed)
	require.Less(t, time.Duration(longest.Load()), told+5*pulse.late())
	d.requireRest(t, connector)
	require.NoError(t, db.Close())
	require.Equal(t, map[string]int{"holder": completed, "aside": completed}, d.logged(t))
	return failed
}

// TestTasksInTasksCloseACycleToo: each holds a connection and waits for the one
// within it.
func TestTasksInTasksCloseACycleToo(t *testing.T) {
	const max = 3
	var within func(ctx context.Context, db *sql.DB, depth int) error
	within = func(ctx context.Context, db *sql.DB, depth int) error {
		if depth == 0 {
			return nil
		}
		ctx, end := pooldriver.NewTask(ctx)
		defer end()
		return begun(ctx, db, func(tx *sql.Tx) error {
			n, err := count(ctx, tx, "SELECT id FROM things")
			require.NoError(t, err)
			require.Equal(t, things, n)
			return within(ctx, db, depth-1)
		})
	}
	onEachDatabase(t, func(t *testing.T, d database) {
		d.setUp(t)
		db, connector := d.open(t, max, alarmed)
		ctx, cancel := context.WithTimeout(t.Context(), slowMachine)
		defer cancel()
		require.NoError(t, within(ctx, db, max))
		pulse := feelPulse(t, d.witness(t)) // the inner tasks ask the server
		began := time.Now()
		requireCycle(t, within(ctx, db, max+1))
		require.Less(t, time.Since(began), told+5*pulse.late())
		d.requireRest(t, connector)
	})
}

// sessions are what a task may hold a connection by, beside a transaction.
var sessions = []struct {
	name  string // as the error has it
	begin map[string]string
}{
	{"session state", map[string]string{"postgres": "SET app.tenant = 'x'", "mysql": "SET @tenant = 'x'", "sqlite": "CREATE TEMP TABLE tenant (id integer)"}},
	{"transaction", map[string]string{"postgres": "BEGIN", "mysql": "BEGIN", "sqlite": "BEGIN"}},
}

func TestTheCycleNamesWhatHoldsTheConnection(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, d database) {
		for _, s := range sessions {
			t.Run(s.name, func(t *testing.T) {
				d.setUp(t)
				db, connector := d.open(t, 1, alarmed)
				require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error {
					_, err := db.ExecContext(ctx, s.begin[d.kind])
					require.NoError(t, err)
					err = outside(insertByDB)(ctx, db)
					require.ErrorIs(t, err, pooldriver.ErrDeadlock)
					require.ErrorContains(t, err, s.name)
					return nil
				}))
				d.requireRest(t, connector)
				require.Empty(t, d.logged(t))
			})
		}
	})
}

// TestNoCycleIsClosedWhileOneHolderGoesOn: one task waits for a connection while
// it holds one, the other holds one and does something else.
func TestNoCycleIsClosedWhileOneHolderGoesOn(t *testing.T) {
	t.Parallel()
	onEachServer(t, func(t *testing.T, d database) {
		for _, a := range asides {
			t.Run(a.name, func(t *testing.T) {
				d.setUp(t)
				db, connector := d.open(t, 2, alarmed)
				ctx, cancel := context.WithTimeout(t.Context(), slowMachine)
				defer cancel()
				holder := func(work func(ctx context.Context) error) error {
					return pooldriver.Do(ctx, func(ctx context.Context) error {
						return begun(ctx, db, func(tx *sql.Tx) error {
							if err := insert(ctx, tx, "holder"); err != nil {
								return err
							}
							return work(ctx)
						})
					})
				}
				var waits <-chan error
				require.NoError(t, holder(func(context.Context) error {
					waits = async(func() error { return holder(func(ctx context.Context) error { return a.run(ctx, db) }) })
					awaitWaiting(t, connector, 1)
					time.Sleep(told)
					awaitWaiting(t, connector, 1)
					return nil
				}))
				require.NoError(t, <-waits)
				d.requireRest(t, connector)
				require.Equal(t, map[string]int{"holder": 2, "aside": 1}, d.logged(t))
			})
		}
	})
}

// async runs do in a goroutine and returns where its error comes.
func async(do func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return done
}

// awaitWaiting returns when n acquirers wait.
func awaitWaiting(t testing.TB, connector *pooldriver.Connector, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return connector.Stats().Pool.Waiting == n },
		slowMachine, time.Millisecond, "%d do not wait", n)
}

// bystanders hold nothing and want one connection.
var bystanders = []struct {
	name string
	run  func(ctx context.Context, db *sql.DB) error
}{
	{"a statement without a task", func(ctx context.Context, db *sql.DB) error { return insert(ctx, db, "bystander") }},
	{"a transaction without a task", func(ctx context.Context, db *sql.DB) error { return insertInTx(ctx, db, "bystander") }},
	{"a statement of another task", func(ctx context.Context, db *sql.DB) error {
		return pooldriver.Do(ctx, func(ctx context.Context) error { return insert(ctx, db, "bystander") })
	}},
	{"a transaction of another task", func(ctx context.Context, db *sql.DB) error {
		return pooldriver.Do(ctx, func(ctx context.Context) error { return insertInTx(ctx, db, "bystander") })
	}},
}

func TestWhoHoldsNothingWaitsWhileACycleIsBroken(t *testing.T) {
	t.Parallel()
	onEachDSN(t, func(t *testing.T, d database) {
		for _, a := range asides {
			t.Run(a.name, func(t *testing.T) {
				d.setUp(t)
				db, connector := d.open(t, 1, alarmed)
				ctx, cancel := context.WithTimeout(t.Context(), slowMachine)
				defer cancel()
				var waiting []<-chan error
				require.NoError(t, pooldriver.Do(ctx, func(task context.Context) error {
					return begun(task, db, func(tx *sql.Tx) error {
						require.NoError(t, insert(task, tx, "holder"))
						closed := async(func() error { return a.run(task, db) })
						require.Eventually(t, func() bool { // it waits, or was told already
							return connector.Stats().Pool.Waiting == 1 || len(closed) == 1
						}, slowMachine, time.Millisecond)
						// Younger than the one that closes the cycle.
						for _, b := range bystanders {
							waiting = append(waiting, async(func() error { return b.run(ctx, db) }))
						}
						requireCycle(t, <-closed)
						awaitWaiting(t, connector, len(bystanders))
						return nil
					})
				}))
				for i, b := range bystanders {
					require.NoError(t, <-waiting[i], b.name)
				}
				d.requireRest(t, connector)
				require.Equal(t, map[string]int{"holder": 1, "bystander": len(bystanders)}, d.logged(t))
			})
		}
	})
}

// TestWhoWaitsForATransactionThatDoesNothingIsNotInACycle: a program may think
// for as long as it likes.
func TestWhoWaitsForATransactionThatDoesNothingIsNotInACycle(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, d database) {
		d.setUp(t)
		db, connector := d.open(t, 1, alarmed)
		ctx, cancel := context.WithTimeout(t.Context(), slowMachine)
		defer cancel()
		var waiting []<-chan error
		require.NoError(t, pooldriver.Do(ctx, func(task context.Context) error {
			return begun(task, db, func(tx *sql.Tx) error {
				require.NoError(t, insert(task, tx, "holder"))
				for _, b := range bystanders {
					waiting = append(waiting, async(func() error { return b.run(ctx, db) }))
				}
				awaitWaiting(t, connector, len(bystanders))
				time.Sleep(told)
				awaitWaiting(t, connector, len(bystanders))
				return nil
			})
		}))
		for i, b := range bystanders {
			require.NoError(t, <-waiting[i], b.name)
		}
		d.requireRest(t, connector)
		require.Equal(t, map[string]int{"holder": 1, "bystander": len(bystanders)}, d.logged(t))
	})
}

// TestWhatATaskSendsOffWaitsForItsTransaction: the task does not wait for it, so
// there is no cycle.
func TestWhatATaskSendsOffWaitsForItsTransaction(t *testing.T) {
	t.Parallel()
	works := []struct {
		name   string
		sleeps bool
		work   func(ctx context.Context, d database, tx *sql.Tx) error
	}{
		{"short statements", false, func(ctx context.Context, _ database, tx *sql.Tx) error {
			for end := time.Now().Add(told); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				if err := insert(ctx, tx, "work"); err != nil {
					return err
				}
			}
			return nil
		}},
		{"a long statement", true, func(ctx context.Context, d database, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, sleepFor(d.account.Server.Engine, told))
			return err
		}},
	}
	onEachDSN(t, func(t *testing.T, d database) {
		for _, a := range []aside{asides[0], asides[5]} {
			for _, w := range works {
				if w.sleeps && d.file != "" {
					continue // SQLite cannot.
				}
				t.Run(a.name+" beside "+w.name, func(t *testing.T) {
					d.setUp(t)
					db, connector := d.open(t, 1, alarmed)
					ctx, cancel := context.WithTimeout(t.Context(), slowMachine)
					defer cancel()
					require.NoError(t, pooldriver.Do(ctx, func(ctx context.Context) error {
						var sent <-chan error
						require.NoError(t, begun(ctx, db, func(tx *sql.Tx) error {
							require.NoError(t, insert(ctx, tx, "work"))
							sent = async(func() error { return a.run(ctx, db) })
							awaitWaiting(t, connector, 1)
							require.NoError(t, w.work(ctx, d, tx))
							awaitWaiting(t, connector, 1)
							return nil
						}))
						return <-sent
					}))
					d.requireRest(t, connector)
					require.Equal(t, 1, d.logged(t)["aside"])
				})
			}
		}
	})
}

// TestAGoroutineBesideATransactionThatIsBusyElsewhereWaits: two requests, and two
// connections. Each has a transaction open while it calls a service for a second, and
// a goroutine beside it writes. The drivers' own pools wait.
func TestAGoroutineBesideATransactionThatIsBusyElsewhereWaits(t *testing.T) {
	t.Parallel()
	explicit := func(ctx context.Context, work func(ctx context.Context) error) error { return pooldriver.Do(ctx, work) }
	implicit := func(ctx context.Context, work func(ctx context.Context) error) (err error) {
		httptask.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { err = work(r.Context()) })).
			ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		return err
	}
	onEachServer(t, func(t *testing.T, d database) {
		d.setUp(t)
		ctx, cancel := context.WithTimeout(t.Context(), slowMachine)
		defer cancel()
		request := func(ctx context.Context, db *sql.DB, held *gate, beside func(context.Context, *sql.DB) error) error {
			var written <-chan error
			err := begun(ctx, db, func(tx *sql.Tx) error {
				if err := errors.Join(insert(ctx, tx, "holder"), held.pass(ctx)); err != nil {
					return err
				}
				written = async(func() error { return beside(ctx, db) })
				time.Sleep(time.Second)
				return nil
			})
			if err != nil {
				return err
			}
			return <-written
		}
		var all sync.WaitGroup
		run := func(name string, db *sql.DB, task func(context.Context, func(context.Context) error) error, beside func(context.Context, *sql.DB) error) {
			held := newGate(2)
			for range 2 {
				all.Go(func() {
					if err := task(ctx, func(ctx context.Context) error { return request(ctx, db, held, beside) }); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
		}
		many := 0
		for _, a := range asides {
			db, _ := d.open(t, 2)
			run(a.name, db, explicit, a.run)
			many++
		}
		for _, a := range append([]aside{
			{"a transaction", plainly(insertInTx)},
			{"a statement", plainly(insertByDB)},
		}, asides...) {
			db, _ := d.open(t, 2)
			run(a.name+", implicit", db, implicit, a.run)
			many++
		}
		bare := d.openBare(t, 2)
		run("bare", bare, func(ctx context.Context, work func(context.Context) error) error { return work(ctx) }, plainly(insertInTx))
		many++
		all.Wait()
		require.Equal(t, map[string]int{"holder": 2 * many, "aside": 2 * many}, d.logged(t))
	})
}
