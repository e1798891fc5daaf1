package replicas

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// What was wrong once. The server is the witness.

type executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func mustExec(t *testing.T, on executor, texts ...string) {
	t.Helper()
	for _, text := range texts {
		_, err := on.ExecContext(t.Context(), text)
		require.NoError(t, err, text)
	}
}

// keepers are contexts that keep what they have written.
var keepers = map[string]func(context.Context) (context.Context, func()){
	"task":      pooldriver.WithTask,
	"WithReads": func(ctx context.Context) (context.Context, func()) { return pooldriver.WithReads(ctx), func() {} },
}

func eachKeeper(t *testing.T, test func(t *testing.T, ctx context.Context)) {
	for name, keep := range keepers {
		t.Run(name, func(t *testing.T) {
			ctx, end := keep(t.Context())
			defer end()
			test(t, ctx)
		})
	}
}

func TestAReadInsideTheRowsOfAWriteSeesTheWrite(t *testing.T) {
	s := onStage(t, testbed.Postgres)
	bare := s.account.OpenBare(t)
	mustExec(t, bare, "CREATE TABLE jobs (id int PRIMARY KEY, done bool NOT NULL)", "INSERT INTO jobs SELECT i, false FROM generate_series(1, 20) i")
	s.CatchUp(t)
	for _, mode := range []string{"explicit", "auto"} {
		db := s.open(t, "pool_replica_reads="+mode)
		eachKeeper(t, func(t *testing.T, ctx context.Context) {
			mustExec(t, bare, "UPDATE jobs SET done = false")
			s.CatchUp(t)
			reading := ctx
			if mode == "explicit" {
				reading = pooldriver.Replica(ctx)
			}
			rows, err := db.QueryContext(ctx, "UPDATE jobs SET done = true WHERE NOT done RETURNING id")
			require.NoError(t, err)
			defer rows.Close()
			n := 0
			for ; rows.Next(); n++ {
				var id int
				var done bool
				require.NoError(t, rows.Scan(&id))
				require.NoError(t, db.QueryRowContext(reading, "SELECT done FROM jobs WHERE id = $1", id).Scan(&done))
				require.True(t, done, "%s: job %d", mode, id)
			}
			require.NoError(t, rows.Err())
			require.Equal(t, 20, n)
		})
	}
}

func TestAWriteCountsWhateverContextBeganItsTransaction(t *testing.T) {
	s := onStage(t, testbed.Postgres)
	first, second := s.open(t), s.open(t)
	ways := map[string]func(ctx context.Context, n int) error{
		"Begin without a context": func(ctx context.Context, n int) error {
			tx, err := first.Begin()
			if err != nil {
				return err
			}
			if _, err = tx.ExecContext(ctx, s.insert, 0, n); err != nil {
				return err
			}
			return tx.Commit()
		},
		"COMMIT by text under another context": func(ctx context.Context, n int) error {
			conn, err := first.Conn(t.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			if _, err = conn.ExecContext(t.Context(), "BEGIN"); err != nil {
				return err
			}
			if _, err = conn.ExecContext(ctx, s.insert, 0, n); err != nil {
				return err
			}
			_, err = conn.ExecContext(t.Context(), "COMMIT")
			return err
		},
		"another Connector": func(ctx context.Context, n int) error { return s.write(ctx, second, 0, n) },
	}
	n := 0
	for name, write := range ways {
		t.Run(name, func(t *testing.T) {
			eachKeeper(t, func(t *testing.T, ctx context.Context) {
				for range 30 {
					n++
					require.NoError(t, write(ctx, n))
					got, _, err := s.read(pooldriver.Replica(ctx), first, 0)
					require.NoError(t, err)
					require.Equal(t, n, got)
				}
			})
		})
	}
}

// TestOneHeldReplicaKeepsNobodyWaiting, because the other one has the write.
func TestOneHeldReplicaKeepsNobodyWaiting(t *testing.T) {
	s := onStage(t, testbed.Postgres)
	c := pooldriver.New(s.account.URL("pool_replicas="+s.proxies[0].Addr()+","+s.proxies[1].Addr(), "pool_replica_wait=1s"))
	require.NoError(t, c.Err())
	db := sql.OpenDB(c)
	defer func() { require.NoError(t, db.Close()) }()
	s.requireServes(t, db)
	require.NoError(t, s.Replicas[0].Hold(t.Context()))
	defer func() { require.NoError(t, s.Replicas[0].Release(context.Background())) }()
	for n := range 40 {
		ctx := pooldriver.WithReads(t.Context())
		require.NoError(t, s.write(ctx, db, 1, n))
		for range 3 {
			begun := time.Now()
			got, _, err := s.read(pooldriver.Replica(ctx), db, 1)
			require.NoError(t, err)
			require.Equal(t, n, got)
			require.Less(t, time.Since(begun), 900*time.Millisecond)
		}
	}
	require.Zero(t, c.Stats().Replica.Reads[pooldriver.ReplicaBehind])
}

// testNothingIsWrittenOnAReplica has an account that may write on a server that is read only, and a view whose function writes.
func testNothingIsWrittenOnAReplica(t *testing.T, s *stage) {
	s.empty(t)
	admin, err := s.Primary.Admin()
	require.NoError(t, err)
	mustExec(t, admin, fmt.Sprintf("GRANT ALL ON *.* TO '%s'@'%%'", s.account.User))
	bare := s.account.OpenBare(t)
	mustExec(t, bare,
		"CREATE FUNCTION writes() RETURNS int DETERMINISTIC MODIFIES SQL DATA BEGIN INSERT INTO counters VALUES (7, (SELECT coalesce(max(n), 0) + 1 FROM (SELECT n FROM counters WHERE worker = 7) own)); RETURN 1; END",
		"CREATE VIEW writing AS SELECT writes() AS n")
	defer mustExec(t, bare, "DROP VIEW writing", "DROP FUNCTION writes")
	s.CatchUp(t)
	for _, mode := range []string{"explicit", "auto"} {
		db := s.open(t, "pool_replica_reads="+mode)
		s.requireServes(t, db)
		for range 6 {
			require.NoError(t, db.QueryRowContext(pooldriver.Replica(t.Context()), "SELECT n FROM writing").Scan(new(int)))
		}
	}
	s.CatchUp(t)
	const count = "SELECT count(*) FROM counters WHERE worker = 7"
	for _, server := range []*testbed.Server{s.Primary, s.Replicas[0], s.Replicas[1]} {
		var n int
		require.NoError(t, s.account.On(server).OpenBare(t).QueryRowContext(t.Context(), count).Scan(&n))
		require.Equal(t, 12, n)
	}
}

// testWhatAStatementHasLeftStays asks on a *sql.Conn for what the statement before it has left, which a question of ours would
// overwrite.
func testWhatAStatementHasLeftStays(t *testing.T, s *stage) {
	s.empty(t)
	bare := s.account.OpenBare(t)
	mustExec(t, bare, "INSERT INTO counters VALUES (1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (1, 6), (1, 7)")
	s.CatchUp(t)
	for _, mode := range []string{"explicit", "tx", "auto"} {
		db := s.open(t, "pool_replica_reads="+mode)
		s.requireServes(t, db)
		eachKeeper(t, func(t *testing.T, ctx context.Context) {
			conn, err := db.Conn(ctx)
			require.NoError(t, err)
			defer conn.Close()
			ask := func(text string) (n int) {
				t.Helper()
				require.NoError(t, conn.QueryRowContext(ctx, text).Scan(&n))
				return n
			}
			require.Equal(t, 1, ask("SELECT SQL_CALC_FOUND_ROWS n FROM counters WHERE worker = 1 LIMIT 1"))
			require.Equal(t, 7, ask("SELECT FOUND_ROWS()"))
			mustExec(t, conn, "UPDATE counters SET n = n + 100 WHERE worker = 1 AND n IN (1, 2)")
			require.Equal(t, 2, ask("SELECT ROW_COUNT()"))
			mustExec(t, conn, "UPDATE counters SET n = n - 100 WHERE worker = 1 AND n > 100")
			_, err = conn.ExecContext(ctx, "INSERT IGNORE INTO counters VALUES (1, 3)")
			require.NoError(t, err)
			rows, err := conn.QueryContext(ctx, "SHOW WARNINGS")
			require.NoError(t, err)
			require.True(t, rows.Next())
			require.NoError(t, rows.Close())
		})
	}
}

func TestAnAdvisoryLockIsNotTakenOnAReplica(t *testing.T) {
	s := onStage(t, testbed.Postgres)
	db := s.openOne(t, "pool_replica_reads=tx")
	s.requireServes(t, db)
	const lock = "SELECT pg_advisory_xact_lock(42)"
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	_, err = tx.Exec(lock)
	require.ErrorContains(t, err, "pooldriver.Primary(ctx)")
	require.NoError(t, tx.Rollback())
	tx, err = db.BeginTx(pooldriver.Primary(t.Context()), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	_, err = tx.Exec(lock)
	require.NoError(t, err)
	var taken bool
	require.NoError(t, s.account.OpenBare(t).QueryRow("SELECT pg_try_advisory_xact_lock(42)").Scan(&taken))
	require.False(t, taken)
	require.NoError(t, tx.Rollback())
}

// TestATextThatThePrimaryRefusesAsWellGoesToReplicasAgain: a view that is not populated is 55000 on each server.
func TestATextThatThePrimaryRefusesAsWellGoesToReplicasAgain(t *testing.T) {
	s := onStage(t, testbed.Postgres)
	db, bare := s.open(t), s.account.OpenBare(t)
	mustExec(t, bare, "CREATE MATERIALIZED VIEW later AS SELECT 1 AS n WITH NO DATA")
	s.CatchUp(t)
	s.requireServes(t, db)
	const read = "SELECT pg_is_in_recovery() FROM later"
	var onReplica bool
	require.ErrorContains(t, db.QueryRowContext(pooldriver.Replica(t.Context()), read).Scan(&onReplica), "55000")
	mustExec(t, bare, "REFRESH MATERIALIZED VIEW later")
	s.CatchUp(t)
	require.NoError(t, db.QueryRowContext(pooldriver.Replica(t.Context()), read).Scan(&onReplica))
	require.True(t, onReplica)
}

func TestAStandbyOfAnotherClusterServesNothing(t *testing.T) {
	s, other := onStage(t, testbed.Postgres), testbed.StartReplicaSet(t, testbed.Postgres)
	same := s.account.On(other.Primary)
	admin, err := other.Primary.Admin()
	require.NoError(t, err)
	mustExec(t, admin, fmt.Sprintf("CREATE ROLE %q LOGIN PASSWORD '%s'", same.User, same.Password))
	mustExec(t, admin, fmt.Sprintf("CREATE DATABASE %q OWNER %q", same.Database, same.User))
	mustExec(t, same.OpenBare(t), "CREATE TABLE counters (worker integer NOT NULL, n integer NOT NULL)")
	other.CatchUp(t)
	db := open(t, connect(t, s.account.URL("pool_replicas="+other.Replicas[0].Addr)))
	require.NoError(t, s.write(t.Context(), db, 0, 1))
	for range 100 {
		n, onReplica, err := s.read(pooldriver.Replica(t.Context()), db, 0)
		require.NoError(t, err)
		require.False(t, onReplica)
		require.Equal(t, 1, n)
	}
}

// TestARefusalOfAfterConnectByAStandbyIsInTheLog: its reads go to the primary.
func TestARefusalOfAfterConnectByAStandbyIsInTheLog(t *testing.T) {
	s := onStage(t, testbed.Postgres)
	var log lines
	c := pooldriver.New(s.account.URL("pool_replicas="+s.proxies[0].Addr()), func(c *pooldriver.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c.AfterConnect = func(ctx context.Context, dc driver.Conn) error {
			_, err := dc.(driver.ExecerContext).ExecContext(ctx, "CREATE TEMPORARY TABLE own (n int)", nil)
			return err
		}
	})
	require.NoError(t, c.Err())
	db := sql.OpenDB(c)
	defer func() { require.NoError(t, db.Close()) }()
	_, onReplica, err := s.read(pooldriver.Replica(t.Context()), db, 0)
	require.NoError(t, err)
	require.False(t, onReplica)
	require.Contains(t, log.String(), "AfterConnect")
	require.Contains(t, log.String(), s.proxies[0].Addr())
}

type lines struct {
	mu   sync.Mutex // protects following fields
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestTwoSilentReplicasHoldUpNoEnd: Drain lets a read finish that has begun on one of them, and Close waits for both at once.
func TestTwoSilentReplicasHoldUpNoEnd(t *testing.T) {
	s := onStage(t, testbed.Postgres)
	for _, end := range []string{"Drain", "Close"} {
		t.Run(end, func(t *testing.T) {
			c := pooldriver.New(s.account.URL("pool_replicas=" + s.proxies[0].Addr() + "," + s.proxies[1].Addr()))
			require.NoError(t, c.Err())
			db := sql.OpenDB(c)
			defer db.Close()
			var all sync.WaitGroup
			for range 20 { // both have connections
				all.Go(func() {
					var asleep sql.NullString
					if err := db.QueryRowContext(pooldriver.Replica(t.Context()), "SELECT pg_sleep(0.1)::text").Scan(&asleep); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			for _, p := range s.proxies {
				p.Unplug()
				defer p.Plug()
			}
			if end == "Close" {
				begun := time.Now()
				require.NoError(t, c.Close())
				require.Less(t, time.Since(begun), 3*time.Second)
				return
			}
			read := make(chan error)
			go func() {
				_, _, err := s.read(pooldriver.Replica(t.Context()), db, 0)
				read <- err
			}()
			time.Sleep(200 * time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			require.NoError(t, c.Drain(ctx))
			require.NoError(t, <-read)
		})
	}
}
