package failover

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// onReplica opens an account of p, whose connections lead to the primary, with the standby as a replica.
func onReplica(t *testing.T, p *testbed.PostgresPair, parameters ...string) (*sql.DB, *pooldriver.Connector) {
	t.Helper()
	account := p.NewAccount(t).On(p.Primary)
	c := pooldriver.New(account.URL(append([]string{"pool_replicas=" + p.Standby.Addr}, parameters...)...), logged(t))
	require.NoError(t, c.Err())
	db := sql.OpenDB(c)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err := db.ExecContext(t.Context(), "CREATE TABLE IF NOT EXISTS item (id int PRIMARY KEY)")
	require.NoError(t, err)
	catchUp(t, p)
	return db, c
}

// catchUp returns when the standby has everything that is committed.
func catchUp(t *testing.T, p *testbed.PostgresPair) {
	t.Helper()
	primary, err := p.Primary.Admin()
	require.NoError(t, err)
	standby, err := p.Standby.Admin()
	require.NoError(t, err)
	var until string
	require.NoError(t, primary.QueryRowContext(t.Context(), "SELECT pg_current_wal_insert_lsn()").Scan(&until))
	require.Eventually(t, func() (there bool) {
		require.NoError(t, standby.QueryRowContext(t.Context(), "SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn", until).Scan(&there))
		return there
	}, time.Minute, 5*time.Millisecond)
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// isStandby asks the server that executes the query.
func isStandby(t *testing.T, ctx context.Context, q querier) (standby bool) {
	t.Helper()
	require.NoError(t, q.QueryRowContext(ctx, "SELECT pg_is_in_recovery()").Scan(&standby))
	return standby
}

// TestReadsGoToTheReplicaThatTheContextAsksFor asks the servers where statements run.
func TestReadsGoToTheReplicaThatTheContextAsksFor(t *testing.T) {
	p := testbed.StartPostgresPair(t)
	db, _ := onReplica(t, p)
	ctx := t.Context()
	onStandby := pooldriver.Replica(ctx)
	require.False(t, isStandby(t, ctx, db))
	require.True(t, isStandby(t, onStandby, db))

	t.Run("prepared", func(t *testing.T) {
		stmt, err := db.PrepareContext(ctx, "SELECT pg_is_in_recovery()")
		require.NoError(t, err)
		defer stmt.Close()
		for _, want := range []bool{true, false, true} {
			at, standby := ctx, false
			if want {
				at = onStandby
			}
			require.NoError(t, stmt.QueryRowContext(at).Scan(&standby))
			require.Equal(t, want, standby)
		}
	})
	t.Run("transactions", func(t *testing.T) {
		for opts, want := range map[sql.TxOptions]bool{
			{}:               false,
			{ReadOnly: true}: true,
			{ReadOnly: true, Isolation: sql.LevelRepeatableRead}: true,
			{ReadOnly: true, Isolation: sql.LevelSerializable}:   false,
		} {
			tx, err := db.BeginTx(onStandby, &opts)
			require.NoError(t, err)
			require.Equal(t, want, isStandby(t, ctx, tx), opts)
			require.Equal(t, want, isStandby(t, onStandby, tx), opts)
			require.NoError(t, tx.Commit())
		}
		tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
		require.NoError(t, err)
		require.False(t, isStandby(t, onStandby, tx))
		require.NoError(t, tx.Rollback())
	})
	t.Run("what does more than read", func(t *testing.T) {
		_, err := db.ExecContext(onStandby, "INSERT INTO item VALUES (1)")
		require.NoError(t, err)
		for _, text := range []string{"SELECT id FROM item FOR UPDATE", "SELECT pg_try_advisory_lock(1)", "CREATE TEMPORARY TABLE t (n int)"} {
			_, err = db.ExecContext(onStandby, text)
			require.NoError(t, err, text)
		}
	})
	t.Run("a task", func(t *testing.T) {
		ctx, end := pooldriver.WithTask(ctx)
		defer end()
		onStandby := pooldriver.Replica(ctx)
		require.True(t, isStandby(t, onStandby, db))
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		require.False(t, isStandby(t, onStandby, db), "a transaction of the task is open")
		inner, err := db.BeginTx(onStandby, &sql.TxOptions{})
		require.NoError(t, err)
		require.False(t, isStandby(t, onStandby, inner))
		require.NoError(t, inner.Rollback())
		require.NoError(t, tx.Rollback())
		// On a busy machine the standby is late with what the transaction may have shown.
		require.Eventually(t, func() bool { return isStandby(t, onStandby, db) }, time.Minute, 10*time.Millisecond)

		reading, err := db.BeginTx(onStandby, &sql.TxOptions{ReadOnly: true})
		require.NoError(t, err)
		require.True(t, isStandby(t, ctx, db), "it joins the task's transaction")
		require.NoError(t, reading.Commit())
		require.False(t, isStandby(t, ctx, db))
	})
	t.Run("a *sql.Conn", func(t *testing.T) {
		conn, err := db.Conn(ctx)
		require.NoError(t, err)
		defer conn.Close()
		require.True(t, isStandby(t, onStandby, conn))
		require.False(t, isStandby(t, ctx, conn))
		require.False(t, isStandby(t, onStandby, conn), "its session is on the primary now")
	})
}

// TestReadsGoToTheReplicaByThemselves opens Connectors whose programs ask for nothing.
func TestReadsGoToTheReplicaByThemselves(t *testing.T) {
	p := testbed.StartPostgresPair(t)
	ctx := t.Context()
	for mode, want := range map[string]struct{ statement, transaction bool }{
		"explicit": {}, "tx": {transaction: true}, "auto": {true, true},
	} {
		db, _ := onReplica(t, p, "pool_replica_reads="+mode)
		require.Equal(t, want.statement, isStandby(t, ctx, db), mode)
		for _, readOnly := range []bool{false, true} {
			tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: readOnly})
			require.NoError(t, err)
			require.Equal(t, readOnly && want.transaction, isStandby(t, ctx, tx), "%s, read-only: %t", mode, readOnly)
			require.NoError(t, tx.Commit())
		}
	}

	t.Run("what the replica refuses runs on the primary", func(t *testing.T) {
		db, _ := onReplica(t, p, "pool_replica_reads=auto")
		for _, text := range []string{
			"CREATE FUNCTION add() RETURNS int LANGUAGE sql AS 'INSERT INTO item VALUES ((SELECT count(*) FROM item)) RETURNING id'",
			"CREATE VIEW added AS SELECT add() AS id, pg_is_in_recovery() AS standby",
		} {
			_, err := db.ExecContext(ctx, text)
			require.NoError(t, err)
		}
		catchUp(t, p)
		for i := range 3 {
			var id int
			var standby bool
			require.NoError(t, db.QueryRowContext(ctx, "SELECT id, standby FROM added").Scan(&id, &standby))
			require.Equal(t, i, id)
			require.False(t, standby)
		}
		stmt, err := db.PrepareContext(ctx, "SELECT id FROM added WHERE $1")
		require.NoError(t, err)
		defer stmt.Close()
		var id int
		require.NoError(t, stmt.QueryRowContext(ctx, true).Scan(&id))
		require.Equal(t, 3, id)
	})
	t.Run("a cycle through both pools", func(t *testing.T) {
		db, _ := onReplica(t, p, "pool_max_conns=1", "pool_replica_max_conns=1", "pool_deadlock_after=300ms")
		reading, end := pooldriver.WithTask(ctx)
		defer end()
		onStandby, err := db.BeginTx(pooldriver.Replica(reading), &sql.TxOptions{ReadOnly: true})
		require.NoError(t, err)
		defer onStandby.Rollback()
		writing, end := pooldriver.WithTask(ctx)
		defer end()
		onPrimary, err := db.BeginTx(writing, nil)
		require.NoError(t, err)
		defer onPrimary.Rollback()

		failed := make(chan error)
		for _, of := range []context.Context{reading, pooldriver.Replica(writing)} {
			inner, end := pooldriver.NewTask(of)
			defer end()
			go func() {
				var n int
				failed <- db.QueryRowContext(inner, "SELECT 1").Scan(&n)
			}()
		}
		require.ErrorIs(t, <-failed, pooldriver.ErrDeadlock)
		require.NoError(t, onPrimary.Rollback())
		require.NoError(t, onStandby.Rollback())
		require.NoError(t, <-failed)
	})
}

func TestTheStandbysOfTheDSNAreTheReplicas(t *testing.T) {
	p := testbed.StartPostgresPair(t)
	account := p.NewAccount(t)
	catchUp(t, p)
	c := pooldriver.New(account.URL("target_session_attrs=read-write", "pool_replicas=auto", "pool_replica_fallback=off"), logged(t))
	db := sql.OpenDB(c)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	for range 5 {
		require.True(t, isStandby(t, pooldriver.Replica(t.Context()), db), "the other host is the primary, and no replica")
	}
	require.False(t, isStandby(t, t.Context(), db))
}

func TestThePrimaryServesWhatNoReplicaCanServe(t *testing.T) {
	p := testbed.StartPostgresPair(t)
	db, _ := onReplica(t, p)
	refusing, _ := onReplica(t, p, "pool_replica_fallback=off")
	onStandby := pooldriver.Replica(t.Context())
	require.True(t, isStandby(t, onStandby, db))
	require.True(t, isStandby(t, onStandby, refusing))
	p.Standby.Kill(t)
	for range 5 {
		require.False(t, isStandby(t, onStandby, db))
	}
	tx, err := db.BeginTx(onStandby, &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	require.False(t, isStandby(t, onStandby, tx))
	require.NoError(t, tx.Commit())
	var standby bool
	for range 5 {
		err = refusing.QueryRowContext(onStandby, "SELECT pg_is_in_recovery()").Scan(&standby)
		require.Error(t, err)
	}
	require.ErrorIs(t, err, pooldriver.ErrNoReplica)
}

// lagBehind has the standby replay nothing until the returned function is called.
func lagBehind(t *testing.T, p *testbed.PostgresPair) (goOn func()) {
	t.Helper()
	standby, err := p.Standby.Admin()
	require.NoError(t, err)
	_, err = standby.ExecContext(t.Context(), "SELECT pg_wal_replay_pause()")
	require.NoError(t, err)
	return func() {
		_, err := standby.ExecContext(t.Context(), "SELECT pg_wal_replay_resume()")
		require.NoError(t, err)
	}
}

func TestAContextReadsItsOwnWritesOnAReplica(t *testing.T) {
	p := testbed.StartPostgresPair(t)
	db, _ := onReplica(t, p, "pool_replica_wait=10ms")
	patient, _ := onReplica(t, p, "pool_replica_wait=1m")
	id := 0
	for title, write := range map[string]func(t *testing.T, ctx context.Context, db *sql.DB) error{
		"a statement": func(t *testing.T, ctx context.Context, db *sql.DB) error {
			_, err := db.ExecContext(ctx, "INSERT INTO item VALUES ($1)", id)
			return err
		},
		"a query": func(t *testing.T, ctx context.Context, db *sql.DB) error {
			return db.QueryRowContext(ctx, "INSERT INTO item VALUES ($1) RETURNING id", id).Scan(new(int))
		},
		"a prepared query": func(t *testing.T, ctx context.Context, db *sql.DB) error {
			stmt, err := db.PrepareContext(ctx, "INSERT INTO item VALUES ($1) RETURNING id")
			require.NoError(t, err)
			defer stmt.Close()
			return stmt.QueryRowContext(ctx, id).Scan(new(int))
		},
		"a transaction": func(t *testing.T, ctx context.Context, db *sql.DB) error {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			defer tx.Rollback()
			_, err = tx.ExecContext(ctx, "INSERT INTO item VALUES ($1)", id)
			require.NoError(t, err)
			return tx.Commit()
		},
	} {
		t.Run(title, func(t *testing.T) {
			id++
			ctx, end := pooldriver.WithTask(t.Context())
			defer end()
			onStandby := pooldriver.Replica(ctx)
			require.True(t, isStandby(t, onStandby, db))
			goOn := lagBehind(t, p)
			defer goOn()
			require.NoError(t, write(t, ctx, db))
			require.False(t, isStandby(t, onStandby, db), "the standby is behind")
			require.True(t, isStandby(t, pooldriver.Replica(t.Context()), db), "the write is another one's")

			id++
			ctx, end = pooldriver.WithTask(t.Context())
			defer end()
			require.NoError(t, write(t, ctx, patient))
			time.AfterFunc(20*time.Millisecond, goOn)
			var there, standby bool
			require.NoError(t, patient.QueryRowContext(pooldriver.Replica(ctx), "SELECT EXISTS (SELECT FROM item WHERE id = $1), pg_is_in_recovery()", id).Scan(&there, &standby))
			require.True(t, there)
			require.True(t, standby, "it has waited")
			require.Eventually(t, func() bool { return isStandby(t, onStandby, db) }, time.Minute, time.Millisecond)
		})
	}
}
