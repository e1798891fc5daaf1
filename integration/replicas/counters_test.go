package replicas

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

const workers = 64

// turn has a worker write and read. first and second are two Connectors.
type turn func(ctx context.Context, first, second *sql.DB, write, read func(context.Context, *sql.DB) error) error

// turns are the ways in which a worker carries what it has written to where it reads.
var turns = map[string]turn{
	"task": func(ctx context.Context, db, _ *sql.DB, write, read func(context.Context, *sql.DB) error) error {
		return pooldriver.Do(ctx, func(ctx context.Context) error { return thrice(ctx, db, write, read) })
	},
	"WithReads": func(ctx context.Context, db, _ *sql.DB, write, read func(context.Context, *sql.DB) error) error {
		return thrice(pooldriver.WithReads(ctx), db, write, read)
	},
	"token": func(ctx context.Context, first, second *sql.DB, write, read func(context.Context, *sql.DB) error) error {
		writing := pooldriver.WithReads(ctx)
		if err := write(writing, first); err != nil {
			return err
		}
		return read(pooldriver.Replica(pooldriver.WithToken(ctx, pooldriver.Token(writing))), second)
	},
	"neither": func(ctx context.Context, db, _ *sql.DB, write, read func(context.Context, *sql.DB) error) error {
		return thrice(ctx, db, write, read)
	},
}

func thrice(ctx context.Context, db *sql.DB, write, read func(context.Context, *sql.DB) error) error {
	for range 3 {
		if err := write(ctx, db); err != nil {
			return err
		}
		if err := read(pooldriver.Replica(ctx), db); err != nil {
			return err
		}
	}
	return nil
}

// testCounters has 64 workers, each of which adds to its counter and reads it from a replica. The last of the turns
// shows that the test can fail.
func testCounters(t *testing.T, s *stage) {
	seed := randomtest.Seed(t)
	length := time.Duration(randomtest.Rounds(2000, 75_000)) * time.Millisecond
	for name, turn := range turns {
		t.Run(name, func(t *testing.T) {
			s.empty(t)
			first, second := s.open(t), s.open(t)
			calm := s.disturb(t, seed, false)
			defer calm()
			var reads, onReplicas, stale atomic.Int64
			var all sync.WaitGroup
			goesOn := until(length, name, &stale)
			for worker := range workers {
				all.Go(func() {
					n := 0
					write := func(ctx context.Context, db *sql.DB) error {
						n++
						return s.write(ctx, db, worker, n)
					}
					read := func(ctx context.Context, db *sql.DB) error {
						got, onReplica, err := s.read(ctx, db, worker)
						if err != nil {
							return err
						}
						reads.Add(1)
						if onReplica {
							onReplicas.Add(1)
						}
						if got != n {
							stale.Add(1)
						}
						return nil
					}
					for goesOn() {
						if err := turn(t.Context(), first, second, write, read); err != nil {
							t.Errorf("worker %d, after %d writes: %v", worker, n, err)
							return
						}
					}
				})
			}
			all.Wait()
			calm()
			t.Logf("%d reads, %d of them on replicas, %d stale", reads.Load(), onReplicas.Load(), stale.Load())
			requireOnlyWithoutFloor(t, name, onReplicas.Load(), stale.Load())
		})
	}
}

// until returns whether a test goes on: for its length, and the way called neither until it has seen an old value, but not for more
// than a minute. On a busy machine all of its reads may find the same replica for seconds.
func until(length time.Duration, name string, old *atomic.Int64) (goesOn func() bool) {
	begun := time.Now()
	return func() bool {
		took := time.Since(begun)
		return took < length || name == "neither" && old.Load() == 0 && took < time.Minute
	}
}

// requireOnlyWithoutFloor requires that reads were on replicas, and that some of them were too old if no floor is kept, as by
// the way called neither, and none otherwise.
func requireOnlyWithoutFloor(t *testing.T, name string, onReplicas, old int64) {
	t.Helper()
	require.Positive(t, onReplicas)
	if name == "neither" {
		require.Positive(t, old, "the replicas were never behind: the test shows nothing")
	} else {
		require.Zero(t, old)
	}
}
