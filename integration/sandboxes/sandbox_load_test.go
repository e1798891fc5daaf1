package sandboxes

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
	"github.com/pooldriver/pooldriver/sandbox"
	"github.com/pooldriver/pooldriver/tests/schedules"
)

// TestSandboxThousandTestsInParallel: each test does what tests of services do, on ten connections.
func TestSandboxThousandTestsInParallel(t *testing.T) {
	t.Parallel()
	s := onServer(t, testbed.Postgres, "pool_max_conns=10", "application_name=thousand")
	mustExec(t, s.witness, "CREATE TABLE orders (id integer PRIMARY KEY, note text NOT NULL)")
	mustExec(t, s.witness, "GRANT ALL ON orders TO PUBLIC")
	most := s.account.Watch(t)
	t.Run("all", func(t *testing.T) {
		for i := range randomtest.Rounds(50, 1_000) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				serviceTest(t, sandbox.DB(t, s.connector), 10*i, "SELECT pg_sleep(60)")
			})
		}
	})
	require.LessOrEqual(t, most.Stop().Backends, 10)
	require.Zero(t, count(t, s.witness, "SELECT count(*) FROM orders"))
	require.Zero(t, s.connector.Stats().Pool.Lent)
	require.NoError(t, s.connector.Close())
	require.Eventually(t, func() bool {
		return count(t, s.witness, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'thousand'") == 0
	}, 10*time.Second, 10*time.Millisecond, "no session is left, by the server's word")
}

// TestSandboxTestsOneAfterTheOther: the same tests where sandboxes run one at a time.
func TestSandboxTestsOneAfterTheOther(t *testing.T) {
	t.Parallel()
	rounds := randomtest.Rounds(10, 200)
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		s := onServer(t, testbed.MySQL)
		mustExec(t, s.witness, "CREATE TABLE orders (id integer PRIMARY KEY, note varchar(50) NOT NULL)")
		t.Run("all", func(t *testing.T) {
			for i := range rounds {
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					t.Parallel()
					serviceTest(t, sandbox.DB(t, s.connector), 0, "SELECT sleep(60)")
				})
			}
		})
		require.Zero(t, count(t, s.witness, "SELECT count(*) FROM orders"))
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		connector := pooldriver.New("sqlite:"+t.TempDir()+"/test.db", quietly)
		db := sql.OpenDB(connector)
		defer db.Close()
		mustExec(t, db, "CREATE TABLE orders (id integer PRIMARY KEY, note text NOT NULL)")
		t.Run("all", func(t *testing.T) {
			for i := range rounds {
				t.Run(fmt.Sprint(i), func(t *testing.T) {
					t.Parallel()
					serviceTest(t, sandbox.DB(t, connector), 0, "SELECT test_pause() UNION ALL SELECT test_pause()")
				})
			}
		})
		require.Zero(t, count(t, db, "SELECT count(*) FROM orders"))
	})
}

// The driver registers for the whole program, once. Two pauses outlast serviceTest's deadline on
// every machine, and cost no work: after a stop of the machine during one of them, the deadline
// is known in the other.
func init() {
	sqlite.MustRegisterScalarFunction("test_pause", 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		time.Sleep(100 * time.Millisecond)
		return nil, nil
	})
}

// serviceTest is a test of a service: nested transactions, a handler with its own context, a
// statement that is cancelled, a constraint, a goroutine.
func serviceTest(t *testing.T, db *sql.DB, key int, slow string) {
	ctx := t.Context()
	insert := func(ctx context.Context, id int) error {
		_, err := db.ExecContext(ctx, fmt.Sprintf("INSERT INTO orders VALUES (%d, 'a')", id))
		return err
	}
	require.NoError(t, pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error {
		if err := insert(ctx, key); err != nil {
			return err
		}
		inner := pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error {
			if err := insert(ctx, key+1); err != nil {
				return err
			}
			return insert(ctx, key) // is there already
		})
		if inner == nil {
			return fmt.Errorf("a key is there twice")
		}
		return insert(ctx, key+2)
	}))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		tx, err := db.BeginTx(ctx, nil)
		if err == nil {
			_, err = tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO orders VALUES (%d, 'a')", key+3))
		}
		if err == nil {
			err = tx.Commit()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	server.Start()
	defer server.Close()
	answer, err := server.Client().Get(server.URL)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusOK, answer.StatusCode)

	short, cancel := context.WithTimeout(ctx, 2*time.Millisecond)
	defer cancel()
	_, err = db.ExecContext(short, slow)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Error(t, insert(ctx, key))

	failed := make(chan error)
	go func() { failed <- insert(ctx, key+4) }()
	require.NoError(t, <-failed)
	require.Equal(t, 4, count(t, db, fmt.Sprintf("SELECT count(*) FROM orders WHERE id >= %d AND id < %d", key, key+10)))
}

// TestSandboxAfterAContextThatEnds has the programs by which other libraries lose the transaction
// of a test: a context that ends right after its query, or while a transaction is open.
func TestSandboxAfterAContextThatEnds(t *testing.T) {
	t.Parallel()
	for _, engine := range testbed.Engines() {
		t.Run(engine.String(), func(t *testing.T) {
			t.Parallel()
			db := sandbox.DB(t, onServer(t, engine).connector)
			mustExec(t, db, "INSERT INTO ledger VALUES (1, 'a')")
			for range randomtest.Rounds(60, 10_000) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				var n int
				require.NoError(t, db.QueryRowContext(ctx, "SELECT count(*) FROM ledger").Scan(&n))
				cancel()
				require.Equal(t, 1, n)
				ctx, cancel = context.WithCancel(t.Context())
				tx, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				_, err = tx.Exec("DELETE FROM ledger")
				require.NoError(t, err)
				cancel() // database/sql rolls back in a goroutine of its own
				mustExec(t, db, "UPDATE ledger SET note = 'b'")
				tx, err = db.Begin()
				require.NoError(t, err)
				_, err = db.Begin()
				require.ErrorContains(t, err, "would wait for ever")
				require.NoError(t, tx.Rollback())
				require.Equal(t, 1, count(t, db, "SELECT count(*) FROM ledger"))
			}
		})
	}
}

// TestSandboxRandomSchedulesEnd: goroutines use the handle of a test at random.
func TestSandboxRandomSchedulesEnd(t *testing.T) {
	t.Parallel()
	for _, engine := range testbed.Engines() {
		t.Run(engine.String(), func(t *testing.T) {
			t.Parallel()
			s := onServer(t, engine)
			mustExec(t, s.witness, "ALTER TABLE ledger DROP COLUMN note")
			connector := pooldriver.New(s.account.URL(), quietly, func(c *pooldriver.Config) { c.DeadlockAfter = 500 * time.Millisecond })
			seed := randomtest.Seed(t)
			rounds := randomtest.Rounds(10, 1_000)
			if engine == testbed.MySQL {
				rounds = randomtest.Rounds(4, 200) // one after the other
			}
			t.Run("all", func(t *testing.T) {
				for i := range rounds {
					t.Run(fmt.Sprint("seed ", seed+uint64(i)), func(t *testing.T) {
						t.Parallel()
						defer randomtest.Watch(t, 5*time.Minute)()
						schedules.Schedule{
							First: 10_000 * i, Random: rand.New(rand.NewPCG(seed+uint64(i), 0)), Rows: "SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3",
							Pause: 20 * time.Millisecond,
						}.Run(t, sandbox.DB(t, connector))
					})
				}
			})
			require.NoError(t, connector.Close())
		})
	}
}

// TestSandboxCostsLittle: next to BEGIN and ROLLBACK by hand, on the same machine.
func TestSandboxCostsLittle(t *testing.T) {
	if !randomtest.Long() {
		t.Parallel() // nothing is required of the figures
	}
	s := onServer(t, testbed.Postgres)
	plain := sql.OpenDB(s.connector)
	defer plain.Close()
	byHand, boxed := measure(t, func() {
		tx, err := plain.Begin()
		require.NoError(t, err)
		require.NoError(t, tx.Rollback())
	}), measure(t, func() {
		r := record(t)
		sandbox.DB(r, s.connector)
		require.Empty(t, r.end())
	})
	t.Logf("BEGIN and ROLLBACK by hand: %v, a sandbox: %v (%.2f times)", byHand, boxed, float64(boxed)/float64(byHand))
	if randomtest.Long() {
		require.LessOrEqual(t, float64(boxed)/float64(byHand), 1.5)
	}
}

// measure is the median of many runs.
func measure(t *testing.T, fn func()) time.Duration {
	t.Helper()
	var all []time.Duration
	for range randomtest.Rounds(100, 3000) {
		begun := time.Now()
		fn()
		all = append(all, time.Since(begun))
	}
	slices.Sort(all)
	return all[len(all)/2]
}
