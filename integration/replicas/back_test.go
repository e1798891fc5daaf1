package replicas

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// testNoValueGoesBack has one counter that grows all the time, and readers that write nothing. The replicas are behind by
// different times, and one is cut off at times, so that its readers have to read elsewhere. MySQL and MariaDB send a commit to their
// replicas before they show it themselves: a reader that comes from a replica may be ahead of the primary, for a moment.
func testNoValueGoesBack(t *testing.T, s *stage) {
	seed := randomtest.Seed(t)
	length := time.Duration(randomtest.Rounds(3000, 60_000)) * time.Millisecond
	for name, contextOf := range map[string]func(context.Context) context.Context{
		"WithReads": pooldriver.WithReads,
		"neither":   func(ctx context.Context) context.Context { return ctx },
	} {
		t.Run(name, func(t *testing.T) {
			s.empty(t)
			db, writer := s.open(t), s.account.OpenBare(t)
			calm := s.disturb(t, seed, true)
			defer calm()
			var all sync.WaitGroup
			var reads, onReplicas, back, ahead atomic.Int64
			goesOn := until(length, name, &back)
			all.Go(func() {
				for n := 1; goesOn(); n++ {
					if err := s.write(t.Context(), writer, 0, n); err != nil {
						t.Error(err)
						return
					}
				}
			})
			for range workers / 4 {
				all.Go(func() {
					for goesOn() {
						ctx := pooldriver.Replica(contextOf(t.Context()))
						for last := 0; goesOn() && last >= 0; {
							n, onReplica, err := s.read(ctx, db, 0)
							if err != nil {
								t.Error(err)
								return
							}
							reads.Add(1)
							if onReplica {
								onReplicas.Add(1)
							}
							switch {
							case n >= last:
							case !onReplica && s.Primary.Engine != testbed.Postgres && n == last-1:
								ahead.Add(1)
							default:
								back.Add(1)
								t.Logf("%d after %d, on a replica: %t", n, last, onReplica)
							}
							last = n
							if reads.Load()%500 == 0 { // a new context
								break
							}
						}
					}
				})
			}
			all.Wait()
			calm()
			t.Logf("%d reads, %d of them on replicas, %d older than the one before, and %d of a primary that did not show its last commit yet",
				reads.Load(), onReplicas.Load(), back.Load(), ahead.Load())
			require.Less(t, 1000*ahead.Load(), reads.Load())
			requireOnlyWithoutFloor(t, name, onReplicas.Load(), back.Load())
		})
	}
}
