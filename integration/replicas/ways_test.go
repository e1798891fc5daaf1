package replicas

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// writes are the ways in which a program writes one counter.
var writes = map[string]func(ctx context.Context, s *stage, db *sql.DB, worker, n int) error{
	"a statement": func(ctx context.Context, s *stage, db *sql.DB, worker, n int) error {
		return s.write(ctx, db, worker, n)
	},
	"a prepared statement": func(ctx context.Context, s *stage, db *sql.DB, worker, n int) error {
		stmt, err := db.PrepareContext(ctx, s.insert)
		if err != nil {
			return err
		}
		_, err = stmt.ExecContext(ctx, worker, n)
		return errors.Join(err, stmt.Close())
	},
	"a transaction": func(ctx context.Context, s *stage, db *sql.DB, worker, n int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, s.insert, worker, n); err != nil {
			return err
		}
		return tx.Commit()
	},
	"InTx": func(ctx context.Context, s *stage, db *sql.DB, worker, n int) error {
		return pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error { return s.write(ctx, db, worker, n) })
	},
	"InTx in InTx": func(ctx context.Context, s *stage, db *sql.DB, worker, n int) error {
		return pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error {
			return pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error { return s.write(ctx, db, worker, n) })
		})
	},
}

// reads are the ways in which it reads one.
var reads = map[string]func(ctx context.Context, s *stage, db *sql.DB, worker int) (n int, onReplica bool, err error){
	"a query": func(ctx context.Context, s *stage, db *sql.DB, worker int) (int, bool, error) {
		return s.read(ctx, db, worker)
	},
	"a prepared query": func(ctx context.Context, s *stage, db *sql.DB, worker int) (n int, onReplica bool, err error) {
		stmt, err := db.PrepareContext(ctx, s.max)
		if err != nil {
			return 0, false, err
		}
		err = stmt.QueryRowContext(ctx, worker).Scan(&n, &onReplica)
		return n, onReplica, errors.Join(err, stmt.Close())
	},
	"a read-only transaction": func(ctx context.Context, s *stage, db *sql.DB, worker int) (n int, onReplica bool, err error) {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
		if err != nil {
			return 0, false, err
		}
		defer tx.Rollback()
		if err := tx.QueryRowContext(ctx, s.max, worker).Scan(&n, &onReplica); err != nil {
			return 0, false, err
		}
		return n, onReplica, tx.Commit()
	},
}

// testEveryWay has the primary serve what a context has written while both replicas are held, and a replica as soon as one
// has it, whatever the way in which the program writes and reads.
func testEveryWay(t *testing.T, s *stage) {
	s.empty(t)
	db := s.open(t, "pool_replica_wait=5ms")
	calm := func() {
		for _, replica := range s.Replicas {
			require.NoError(t, replica.Release(context.Background()))
		}
	}
	defer calm()
	n := 0
	for writing, write := range writes {
		for reading, read := range reads {
			for _, inTask := range []bool{true, false} {
				n++
				ctx, end := pooldriver.WithReads(t.Context()), func() {}
				if inTask {
					ctx, end = pooldriver.WithTask(t.Context())
				}
				for _, replica := range s.Replicas {
					require.NoError(t, replica.Hold(t.Context()))
				}
				require.NoError(t, write(ctx, s, db, 0, n), writing)
				got, onReplica, err := read(pooldriver.Replica(ctx), s, db, 0)
				require.NoError(t, err)
				require.Equal(t, n, got, "%s, %s, in a task: %t", writing, reading, inTask)
				require.False(t, onReplica)
				calm()
				require.Eventually(t, func() bool {
					got, onReplica, err := read(pooldriver.Replica(ctx), s, db, 0)
					require.NoError(t, err)
					require.Equal(t, n, got)
					return onReplica
				}, 30*time.Second, 5*time.Millisecond, "%s, %s, in a task: %t: the replicas have it", writing, reading, inTask)
				end()
			}
		}
	}
}

// testReadsAtOnceDoNotGoBack has the first reads of a context run at the same time, with one replica behind the other.
func testReadsAtOnceDoNotGoBack(t *testing.T, s *stage) {
	s.empty(t)
	db, writer := s.open(t), s.account.OpenBare(t)
	require.NoError(t, s.Replicas[0].Hold(t.Context()))
	defer func() { require.NoError(t, s.Replicas[0].Release(context.Background())) }()
	require.NoError(t, s.write(t.Context(), writer, 0, 1))
	require.Eventually(t, func() bool {
		n, _, err := s.read(t.Context(), s.account.On(s.Replicas[1]).OpenBare(t), 0)
		return err == nil && n == 1
	}, time.Minute, 10*time.Millisecond)
	for range 200 {
		ctx := pooldriver.Replica(pooldriver.WithReads(t.Context()))
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				last := 0
				for range 3 {
					n, _, err := s.read(ctx, db, 0)
					if err != nil || n < last {
						t.Errorf("%d after %d: %v", n, last, err)
						return
					}
					last = n
				}
			})
		}
		all.Wait()
		if t.Failed() {
			return
		}
	}
}
