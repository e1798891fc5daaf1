package behaviour

import (
	"context"
	"database/sql/driver"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/pool"
)

// A query whose pipeline gave no answer waits once more, but not longer than pool_acquire_timeout in all.
func TestTheAcquireTimeoutBoundsAllWaitsOfAQuery(t *testing.T) {
	for name, c := range map[string]struct {
		who   int // of the pipeline; 0: the leader
		lost  bool
		works time.Duration // the server on its query, which is no wait
	}{
		"leader of a lost connection":    {who: 0, lost: true},
		"leader that has to run alone":   {who: 0},
		"follower that has to run alone": {who: 1},
		"slow one that has to run alone": {who: 0, works: 1500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &pipeline{}
				db, connector := openPipeline(t, p, func(c *pooldriver.Config) { c.AcquireTimeout = 5 * time.Second })
				var once sync.Once
				p.together = func(_ context.Context, call dialects.PipelinedQuery) (err error) {
					if c.lost {
						return driver.ErrBadConn
					}
					if call.Args[0].Value == int64(c.who+1) {
						once.Do(func() {
							time.Sleep(c.works)
							p.Server.Inject(fakedb.Fault{Call: fakedb.ConnQueryCtx, Err: dialects.ErrNotPipelined})
						})
					}
					return nil
				}
				conn := busy(t, db)
				begun := time.Now()
				ends := make([]chan error, 2)
				for i := range ends {
					ends[i] = make(chan error, 1)
					go func() {
						_, err := look(t.Context(), db, lookup, int64(i+1))
						ends[i] <- err
					}()
					waiting(t, connector, i+1)
				}
				goOn := make(chan struct{})
				var other sync.WaitGroup
				other.Go(func() { // it gets the connection behind them, and keeps it
					held, err := db.Conn(t.Context())
					if assert.NoError(t, err) && assert.NoError(t, held.PingContext(t.Context())) {
						<-goOn
						assert.NoError(t, held.Close())
					}
				})
				waiting(t, connector, 3)
				time.Sleep(3*time.Second - time.Since(begun))
				require.NoError(t, conn.Close())
				before := connector.Stats().Pool
				require.ErrorIs(t, <-ends[c.who], pool.ErrTimeout)
				require.InDelta(t, (5*time.Second + c.works).Seconds(), time.Since(begun).Seconds(), 0.1)
				after := connector.Stats().Pool
				require.NotEqual(t, before.Timeouts, after.Timeouts)
				require.Equal(t, before.Cancelled, after.Cancelled)
				if other := <-ends[1-c.who]; !c.lost { // it may have led the other one
					require.NoError(t, other)
				}
				close(goOn)
				other.Wait()
			})
		})
	}
}
