package failover

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// openVitess opens a pool over a vtgate with two shards. The binary takes minutes to
// compile: "make test-long" does, and names it.
func openVitess(t *testing.T) (v *testbed.Vitess, open func(max int) (*sql.DB, *pooldriver.Connector)) {
	t.Helper()
	binary := os.Getenv("POOLDRIVER_VTCOMBO")
	if binary == "" {
		t.Skip("POOLDRIVER_VTCOMBO names no vtcombo; make test-long builds one")
	}
	v = testbed.StartVitess(t, binary)
	_, err := v.OpenBare(t).Exec("CREATE TABLE ledger (id BIGINT PRIMARY KEY, amount BIGINT)")
	require.NoError(t, err)
	return v, func(max int) (*sql.DB, *pooldriver.Connector) {
		c := pooldriver.New(v.URL(), func(c *pooldriver.Config) { c.MaxConns = max })
		db := sql.OpenDB(c)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		return db, c
	}
}

func TestVitess(t *testing.T) {
	v, open := openVitess(t)
	t.Run("NothingOfASessionReachesTheNextBorrower", func(t *testing.T) { testVitessState(t, open) })
	t.Run("TransactionsAndPreparedStatements", func(t *testing.T) { testVitessTx(t, open) })
	t.Run("NestedQueriesInATaskOnOneConnection", func(t *testing.T) { testVitessNested(t, open) })
	t.Run("AStatementThatIsCancelledReturns", func(t *testing.T) { testVitessCancel(t, open) })
	t.Run("ARandomMixLosesAndDoublesNothing", func(t *testing.T) { testVitessMix(t, v, open) })
}

// testVitessState: Vitess answers COM_RESET_CONNECTION and keeps everything.
func testVitessState(t *testing.T, open func(int) (*sql.DB, *pooldriver.Connector)) {
	db, c := open(1)
	for set, ask := range map[string]string{
		"SET @tenant = 'alice'":                            "SELECT coalesce(@tenant, 'none')",
		"SET time_zone = '+03:00'":                         "SELECT @@time_zone",
		"SET sql_mode = 'ANSI'":                            "SELECT @@sql_mode",
		"SET SESSION transaction_isolation='SERIALIZABLE'": "SELECT @@transaction_isolation",
		"SET workload = 'olap'":                            "SELECT @@workload",
	} {
		before := answer(t, db, ask)
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		_, err = conn.ExecContext(t.Context(), set)
		require.NoError(t, err, set)
		require.NotEqual(t, before, answer(t, conn, ask), set)
		require.NoError(t, conn.Close())
		require.Equal(t, before, answer(t, db, ask), "after %s", set)
	}
	require.Positive(t, c.Stats().Discards, "such connections are replaced")
}

func answer(t *testing.T, q interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
}, query string) (text string) {
	t.Helper()
	require.NoError(t, q.QueryRowContext(t.Context(), query).Scan(&text), query)
	return text
}

func testVitessTx(t *testing.T, open func(int) (*sql.DB, *pooldriver.Connector)) {
	db, _ := open(2)
	insert, err := db.Prepare("INSERT INTO ledger (id, amount) VALUES (?, ?)")
	require.NoError(t, err)
	defer insert.Close()
	for id, commit := range map[int]bool{1: true, 2: false} {
		tx, err := db.Begin()
		require.NoError(t, err)
		_, err = tx.Stmt(insert).Exec(id, 5)
		require.NoError(t, err)
		if commit {
			require.NoError(t, tx.Commit())
		} else {
			require.NoError(t, tx.Rollback())
		}
	}
	_, err = db.Exec("BEGIN")
	require.NoError(t, err)
	require.Equal(t, "1", answer(t, db, "SELECT count(*) FROM ledger"))
	_, err = db.Exec("DELETE FROM ledger")
	require.NoError(t, err)
}

func testVitessNested(t *testing.T, open func(int) (*sql.DB, *pooldriver.Connector)) {
	db, _ := open(1)
	for id := range 10 {
		_, err := db.Exec("INSERT INTO ledger (id, amount) VALUES (?, ?)", id, id)
		require.NoError(t, err)
	}
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	rows, err := db.QueryContext(ctx, "SELECT id FROM ledger")
	require.NoError(t, err)
	defer rows.Close()
	read := 0
	for ; rows.Next(); read++ {
		var id int
		require.NoError(t, rows.Scan(&id))
		_, err := db.ExecContext(ctx, "UPDATE ledger SET amount = amount + 1 WHERE id = ?", id)
		require.NoError(t, err)
	}
	require.NoError(t, rows.Err())
	require.Equal(t, 10, read)
	require.Equal(t, "55", answer(t, db, "SELECT sum(amount) FROM ledger"))
	_, err = db.Exec("DELETE FROM ledger")
	require.NoError(t, err)
}

func testVitessCancel(t *testing.T, open func(int) (*sql.DB, *pooldriver.Connector)) {
	db, _ := open(1)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begun := time.Now()
	_, err := db.ExecContext(ctx, "SELECT SLEEP(30) FROM dual")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(begun), 20*time.Second)
	require.Equal(t, "1", answer(t, db, "SELECT 1"))
}

// testVitessMix: the bare driver is asked what is stored.
func testVitessMix(t *testing.T, v *testbed.Vitess, open func(int) (*sql.DB, *pooldriver.Connector)) {
	seed := randomtest.Seed(t)
	db, _ := open(3)
	var mu sync.Mutex // protects want
	want := map[int]bool{}
	var all sync.WaitGroup
	for worker := range 6 {
		r := rand.New(rand.NewPCG(seed, uint64(worker)))
		all.Go(func() {
			for i := range randomtest.Rounds(50, 500) {
				id := worker*100_000 + i
				stays, err := vitessStep(t.Context(), db, r.IntN(4), id)
				if err != nil {
					t.Errorf("step %d of %d: %v", i, worker, err)
					return
				}
				if stays {
					mu.Lock()
					want[id] = true
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	rows, err := v.OpenBare(t).Query("SELECT id FROM ledger")
	require.NoError(t, err)
	defer rows.Close()
	got := map[int]bool{}
	for rows.Next() {
		var id int
		require.NoError(t, rows.Scan(&id))
		require.False(t, got[id], "%d is there twice", id)
		got[id] = true
	}
	require.NoError(t, rows.Err())
	require.Equal(t, want, got)
}

// vitessStep writes id in one of several ways, and reports whether it is stored.
func vitessStep(ctx context.Context, db *sql.DB, way, id int) (stays bool, err error) {
	insert := fmt.Sprintf("INSERT INTO ledger (id, amount) VALUES (%d, 1)", id)
	switch way {
	case 0:
		_, err = db.ExecContext(ctx, insert)
		return true, err
	case 1: // what it sets must reach nobody
		conn, err := db.Conn(ctx)
		if err != nil {
			return false, err
		}
		defer conn.Close()
		if _, err := conn.ExecContext(ctx, "SET @@autocommit = 0"); err != nil {
			return false, err
		}
		_, err = conn.ExecContext(ctx, insert) // rolled back at Close
		return false, err
	default:
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return false, err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(ctx, insert); err != nil || way == 2 {
			return false, err
		}
		return true, tx.Commit()
	}
}
