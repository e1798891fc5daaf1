package replicas

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"log/slog"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/pgxpooldriver"
)

// writer is a way to write the row (1, n).
type writer func(ctx context.Context, db *sql.DB, pool *pgxpooldriver.Pool, n int) error

const insert = "INSERT INTO counters VALUES (1, $1)"

// writers are ways of database/sql and of pgx.
var writers = map[string]writer{
	"RETURNING": func(ctx context.Context, db *sql.DB, _ *pgxpooldriver.Pool, n int) error {
		return db.QueryRowContext(ctx, insert+" RETURNING n", n).Scan(&n)
	},
	"CTE": func(ctx context.Context, db *sql.DB, _ *pgxpooldriver.Pool, n int) error {
		return db.QueryRowContext(ctx, "WITH w AS ("+insert+" RETURNING n) SELECT n FROM w", n).Scan(&n)
	},
	"CTE on a replica's context": func(ctx context.Context, db *sql.DB, _ *pgxpooldriver.Pool, n int) error {
		return db.QueryRowContext(pooldriver.Replica(ctx), "WITH w AS ("+insert+" RETURNING n) SELECT n FROM w", n).Scan(&n)
	},
	"function": func(ctx context.Context, db *sql.DB, _ *pgxpooldriver.Pool, n int) error {
		return db.QueryRowContext(ctx, "SELECT adds($1)", n).Scan(&n)
	},
	"view that writes": func(ctx context.Context, db *sql.DB, _ *pgxpooldriver.Pool, _ int) error {
		return db.QueryRowContext(pooldriver.Replica(ctx), "SELECT n FROM writing").Scan(new(int))
	},
	"prepared": func(ctx context.Context, db *sql.DB, _ *pgxpooldriver.Pool, n int) error {
		s, err := db.PrepareContext(ctx, insert)
		if err != nil {
			return err
		}
		defer s.Close()
		_, err = s.ExecContext(ctx, n)
		return err
	},
	"prepared RETURNING": func(ctx context.Context, db *sql.DB, _ *pgxpooldriver.Pool, n int) error {
		s, err := db.PrepareContext(ctx, insert+" RETURNING n")
		if err != nil {
			return err
		}
		defer s.Close()
		return s.QueryRowContext(ctx, n).Scan(&n)
	},
	"rows closed early": func(ctx context.Context, db *sql.DB, _ *pgxpooldriver.Pool, n int) error {
		rows, err := db.QueryContext(ctx, "INSERT INTO counters SELECT 1, i FROM generate_series($1::int, $1::int + 100) i RETURNING n", 1000*n)
		if err != nil {
			return err
		}
		return rows.Close()
	},
	"conn": func(ctx context.Context, db *sql.DB, _ *pgxpooldriver.Pool, n int) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.ExecContext(ctx, insert, n)
		return err
	},
	"by hand": func(ctx context.Context, db *sql.DB, _ *pgxpooldriver.Pool, n int) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err = conn.ExecContext(ctx, "BEGIN"); err != nil {
			return err
		}
		if _, err = conn.ExecContext(ctx, insert, n); err != nil {
			return err
		}
		_, err = conn.ExecContext(ctx, "COMMIT")
		return err
	},
	"transaction": func(ctx context.Context, db *sql.DB, _ *pgxpooldriver.Pool, n int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if _, err = tx.Exec(insert, n); err != nil {
			return err
		}
		return tx.Commit()
	},
	"InTx in InTx": func(ctx context.Context, db *sql.DB, _ *pgxpooldriver.Pool, n int) error {
		return pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error {
			return pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error {
				_, err := db.ExecContext(ctx, insert, n)
				return err
			})
		})
	},
	"Raw": func(ctx context.Context, db *sql.DB, _ *pgxpooldriver.Pool, n int) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		return pooldriver.Raw(ctx, conn, func(dc driver.Conn) error {
			_, err := dc.(*stdlib.Conn).Conn().CopyFrom(ctx, pgx.Identifier{"counters"}, []string{"worker", "n"}, pgx.CopyFromRows([][]any{{1, n}}))
			return err
		})
	},
	"pgx Exec": func(ctx context.Context, _ *sql.DB, pool *pgxpooldriver.Pool, n int) error {
		_, err := pool.Exec(ctx, insert, n)
		return err
	},
	"pgx RETURNING": func(ctx context.Context, _ *sql.DB, pool *pgxpooldriver.Pool, n int) error {
		return pool.QueryRow(ctx, insert+" RETURNING n", n).Scan(&n)
	},
	"pgx rows": func(ctx context.Context, _ *sql.DB, pool *pgxpooldriver.Pool, n int) error {
		rows, err := pool.Query(ctx, insert+" RETURNING n", n)
		if err != nil {
			return err
		}
		_, err = pgx.CollectRows(rows, pgx.RowTo[int])
		return err
	},
	"pgx transaction": func(ctx context.Context, _ *sql.DB, pool *pgxpooldriver.Pool, n int) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, insert, n)
				return err
			})
		})
	},
	"pgx batch": func(ctx context.Context, _ *sql.DB, pool *pgxpooldriver.Pool, n int) error {
		b := &pgx.Batch{}
		b.Queue("SELECT 1")
		b.Queue(insert, n)
		return pool.SendBatch(ctx, b).Close()
	},
	"pgx COPY": func(ctx context.Context, _ *sql.DB, pool *pgxpooldriver.Pool, n int) error {
		_, err := pool.CopyFrom(ctx, pgx.Identifier{"counters"}, []string{"worker", "n"}, pgx.CopyFromRows([][]any{{1, n}}))
		return err
	},
	"pgx connection": func(ctx context.Context, _ *sql.DB, pool *pgxpooldriver.Pool, n int) error {
		return pool.AcquireFunc(ctx, func(c *pgxpooldriver.Conn) error {
			_, err := c.Exec(ctx, insert, n)
			return err
		})
	},
	"pgx's own connection": func(ctx context.Context, _ *sql.DB, pool *pgxpooldriver.Pool, n int) error {
		return pool.AcquireFunc(ctx, func(c *pgxpooldriver.Conn) error {
			_, err := c.Conn().Exec(ctx, insert, n)
			return err
		})
	},
}

// TestNoWayToWriteIsUnseen writes in every way while no replica replays.
func TestNoWayToWriteIsUnseen(t *testing.T) {
	s := onStage(t, testbed.Postgres)
	bare := s.account.OpenBare(t)
	for _, text := range []string{
		"CREATE FUNCTION adds(n int) RETURNS int LANGUAGE sql AS 'INSERT INTO counters VALUES (1, $1) RETURNING 1'",
		"CREATE SEQUENCE numbers START 1000000",
		"CREATE FUNCTION adds_next() RETURNS int LANGUAGE sql AS 'INSERT INTO counters VALUES (1, nextval(''numbers'')) RETURNING n'",
		"CREATE VIEW writing AS SELECT adds_next() AS n",
	} {
		_, err := bare.ExecContext(t.Context(), text)
		require.NoError(t, err)
	}
	s.CatchUp(t)
	c := pooldriver.New(s.account.URL("pool_replicas="+s.proxies[0].Addr()+","+s.proxies[1].Addr()),
		func(c *pooldriver.Config) { c.Logger = slog.New(slog.NewTextHandler(t.Output(), nil)) })
	require.NoError(t, c.Err())
	db, pool := sql.OpenDB(c), pgxpooldriver.New(c)
	defer func() { require.NoError(t, db.Close()) }()
	for _, r := range s.Replicas {
		require.NoError(t, r.Hold(t.Context()))
		defer func() { require.NoError(t, r.Release(context.Background())) }()
	}
	n := 0
	for name, write := range writers {
		for kind, contextOf := range map[string]func() (context.Context, func()){
			"WithReads": func() (context.Context, func()) { return pooldriver.WithReads(t.Context()), func() {} },
			"task": func() (context.Context, func()) {
				ctx, end := pooldriver.WithTask(t.Context())
				return ctx, end
			},
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				n++
				ctx, end := contextOf()
				defer end()
				_, onReplica, err := s.read(pooldriver.Replica(ctx), db, 1)
				require.NoError(t, err)
				require.True(t, onReplica)
				var before, after int
				const count = "SELECT count(*) FROM counters"
				require.NoError(t, bare.QueryRowContext(t.Context(), count).Scan(&before))
				require.NoError(t, write(ctx, db, pool, n))
				require.NoError(t, db.QueryRowContext(pooldriver.Replica(ctx), count).Scan(&after))
				require.Greater(t, after, before)
			})
		}
	}
}

// TestAReplicaThatCannotReadLeavesItToThePrimary has reads that a standby of PostgreSQL cannot do, or cancels.
func TestAReplicaThatCannotReadLeavesItToThePrimary(t *testing.T) {
	s := onStage(t, testbed.Postgres)
	bare := s.account.OpenBare(t)
	_, err := bare.ExecContext(t.Context(), "CREATE UNLOGGED TABLE unlogged AS SELECT 1 AS n")
	require.NoError(t, err)
	s.CatchUp(t)
	db := s.open(t)
	ctx := pooldriver.Replica(t.Context())
	for range 3 {
		var n int
		require.NoError(t, db.QueryRowContext(ctx, "SELECT n FROM unlogged").Scan(&n))
		require.NoError(t, db.QueryRowContext(ctx, "SELECT length(pg_current_wal_lsn()::text)").Scan(&n))
	}
}

// TestAReadThatAReplicaRefusesInAPipelineRunsOnThePrimary has a view whose function begins to write when the view is known to be short.
func TestAReadThatAReplicaRefusesInAPipelineRunsOnThePrimary(t *testing.T) {
	s := onStage(t, testbed.Postgres)
	mustExec(t, s.account.OpenBare(t),
		"CREATE TABLE added (n integer)",
		"CREATE FUNCTION adds_later() RETURNS integer LANGUAGE plpgsql AS $$ BEGIN IF EXISTS (SELECT FROM counters) THEN INSERT INTO added VALUES (1); END IF; RETURN 1; END $$",
		"CREATE VIEW writes_later AS SELECT adds_later() AS n")
	s.CatchUp(t)
	c := connect(t, s.account.URL("pool_replicas="+s.proxies[0].Addr(), "pool_replica_max_conns=1", "pool_pipeline=16"))
	db := open(t, c)
	s.requireServes(t, db)
	ctx := pooldriver.Replica(t.Context())
	const workers, reads = 32, 20
	crowd := func() {
		var all sync.WaitGroup
		for range workers {
			all.Go(func() {
				for range reads {
					if err := db.QueryRowContext(ctx, "SELECT n FROM writes_later").Scan(new(int)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	crowd()
	before := c.Stats()
	var pipelined uint64
	for _, replica := range before.Replica.Pools {
		pipelined += replica.Pool.Pipelined
	}
	require.Positive(t, pipelined)
	require.NoError(t, s.write(t.Context(), db, 1, 1))
	s.CatchUp(t)
	crowd()
	after := c.Stats().Replica.Reads
	require.Greater(t, after[pooldriver.ReplicaRefused], uint64(1), "none was refused in a pipeline")
	counted := 0
	for why, n := range after {
		counted += int(n - before.Replica.Reads[why])
	}
	require.Equal(t, workers*reads, counted, "%v after %v", after, before.Replica.Reads)
	var rows int
	require.NoError(t, db.QueryRowContext(pooldriver.Primary(ctx), "SELECT count(*) FROM added").Scan(&rows))
	require.Equal(t, workers*reads, rows, "each of them ran once on the primary")
}
