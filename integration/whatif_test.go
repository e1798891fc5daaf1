package integration

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/randomtest"
	"github.com/pooldriver/pooldriver/internal/traffic"
)

// visit is when a statement comes, and how long the server needs for it.
type visit struct{ at, hold time.Duration }

// shapes are three kinds of traffic.
var shapes = map[string]func(r *rand.Rand, lasts time.Duration) []visit{
	"steady, short": func(r *rand.Rand, lasts time.Duration) (all []visit) {
		for at := time.Duration(0); at < lasts; {
			at += time.Duration(r.ExpFloat64() * float64(5*time.Millisecond))
			all = append(all, visit{at, time.Duration((0.5 + r.Float64()) * float64(20*time.Millisecond))})
		}
		return all
	},
	"bursts": func(r *rand.Rand, lasts time.Duration) (all []visit) {
		for at := time.Duration(0); at < lasts; at += 200 * time.Millisecond {
			for range 20 {
				all = append(all, visit{at + time.Duration(r.IntN(int(10*time.Millisecond))), time.Duration(r.ExpFloat64() * float64(15*time.Millisecond))})
			}
		}
		return all
	},
	"mostly short, some long": func(r *rand.Rand, lasts time.Duration) (all []visit) {
		for at := time.Duration(0); at < lasts; {
			at += time.Duration(r.ExpFloat64() * float64(8*time.Millisecond))
			hold := time.Duration((0.5 + r.Float64()) * float64(10*time.Millisecond))
			if r.IntN(20) == 0 {
				hold *= 25
			}
			all = append(all, visit{at, hold})
		}
		return all
	},
}

// visited sends the traffic through a pool of n connections, and measures the waits.
func visited(t *testing.T, account testbed.Account, n int, all []visit) (*pooldriver.Connector, []time.Duration) {
	var mu sync.Mutex
	var waits []time.Duration
	c := pooldriver.New(account.URL(), quiet, func(c *pooldriver.Config) {
		c.MaxConns, c.MinConns, c.AcquireTimeout = n, n, 0
		c.Observer = &pooldriver.Observer{AcquireDone: func(_ context.Context, d pooldriver.AcquireInfo) {
			mu.Lock()
			defer mu.Unlock()
			waits = append(waits, d.Wait)
		}}
	})
	db := sql.OpenDB(c)
	defer db.Close()
	db.SetMaxIdleConns(1000)
	require.NoError(t, c.Warm(t.Context()))
	begun := time.Now()
	var group sync.WaitGroup
	for _, v := range all {
		group.Go(func() {
			time.Sleep(time.Until(begun.Add(v.at)))
			if _, err := db.ExecContext(context.Background(), "select pg_sleep($1)", v.hold.Seconds()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	slices.Sort(waits)
	return c, waits
}

func p99(waits []time.Duration) time.Duration { return waits[len(waits)*99/100] }

// needs is with how many connections nobody would wait if the server took two milliseconds beside the sleep.
func needs(all []visit) int {
	var r traffic.Ring
	for _, v := range all {
		r.Add(traffic.Lending{At: int64(v.at), Held: int64(v.hold + 2*time.Millisecond)})
	}
	return r.Record().Needed()
}

// TestWhatIfReplaysWhatHappened lets pools that are too small replay their own traffic: that gives the waits which there were.
// So nothing is missing in what is recorded, such as the way of a connection from one statement to the next. The long form
// also writes down what a pool of 20 says of smaller ones, right before these have the same traffic. How long the server
// takes is then another time: see docs/observability.md.
func TestWhatIfReplaysWhatHappened(t *testing.T) {
	const most = 20
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			if !randomtest.Long() {
				t.Parallel()
			}
			all := shape(rand.New(rand.NewPCG(50, 12)), 3*time.Second)
			needed := needs(all)
			for _, n := range []int{needed / 2, needed * 4 / 10} {
				right := false
				for attempt := 0; attempt < 3 && !right; attempt++ { // a pause of the machine between two statements is in neither
					c, waits := visited(t, account, n, all)
					said, measured := c.WhatIf(n).WaitP99, p99(waits)
					t.Logf("%d of %d connections: a p99 of %v, replayed %v", n, needed, measured, said)
					require.NotZero(t, measured)
					right = (measured - said).Abs() <= max(measured/5, 5*time.Millisecond)
				}
				require.True(t, right)
			}
			if !randomtest.Long() {
				return
			}
			for _, n := range []int{needed * 9 / 10, needed * 3 / 4, needed * 6 / 10, needed / 2, needed * 4 / 10} {
				c, _ := visited(t, account, most, all)
				_, waits := visited(t, account, n, all)
				t.Logf("%d of %d connections: a pool of %d says a p99 of %v, measured %v", n, needed, most, c.WhatIf(n).WaitP99, p99(waits))
			}
		})
	}
}
