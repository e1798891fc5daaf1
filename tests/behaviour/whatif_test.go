package behaviour

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
)

// visit is when a statement comes, and how long it holds its connection.
type visit struct{ at, hold time.Duration }

// shapes are three kinds of traffic.
var shapes = map[string]func(r *rand.Rand) []visit{
	"steady, short": func(r *rand.Rand) (all []visit) {
		at := time.Duration(0)
		for range 3000 {
			at += time.Duration(r.ExpFloat64() * float64(5*time.Millisecond))
			all = append(all, visit{at, time.Duration((0.5 + r.Float64()) * float64(20*time.Millisecond))})
		}
		return all
	},
	"bursts": func(r *rand.Rand) (all []visit) {
		for burst := range 150 {
			for range 20 {
				at := time.Duration(burst)*200*time.Millisecond + time.Duration(r.IntN(int(10*time.Millisecond)))
				all = append(all, visit{at, time.Duration(r.ExpFloat64() * float64(15*time.Millisecond))})
			}
		}
		return all
	},
	"mostly short, some long": func(r *rand.Rand) (all []visit) {
		at := time.Duration(0)
		for range 3000 {
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
func visited(t *testing.T, n int, all []visit) (*pooldriver.Connector, []time.Duration) {
	_, db, c := openStub(t, dialects.Traits{}, quiet, func(c *pooldriver.Config) { c.MaxConns, c.MinConns, c.AcquireTimeout = n, n, 0 })
	db.SetMaxIdleConns(1000)
	require.NoError(t, c.Warm(t.Context()))
	begun := time.Now()
	waits := make([]time.Duration, len(all))
	var group sync.WaitGroup
	for i, v := range all {
		group.Go(func() {
			time.Sleep(time.Until(begun.Add(v.at)))
			came := time.Now()
			conn, err := db.Conn(context.Background())
			if err == nil {
				err = conn.PingContext(context.Background()) // it takes the connection
			}
			waits[i] = time.Since(came)
			time.Sleep(v.hold)
			if err == nil {
				err = conn.Close()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	slices.Sort(waits)
	return c, waits
}

// TestWhatIfIsRightForSmallerPools compares what a pool of 20 connections says of smaller ones with those.
func TestWhatIfIsRightForSmallerPools(t *testing.T) {
	t.Parallel()
	const most = 20
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			traffic := shape(rand.New(rand.NewPCG(50, 12)))
			said := map[int]pooldriver.WhatIf{}
			var needed int
			synctest.Test(t, func(t *testing.T) {
				c, _ := visited(t, most, traffic)
				needed = c.WhatIf(most).Needed
				require.LessOrEqual(t, needed, most, "the sizes below are smaller than needed")
				for n := 1; n <= most; n++ {
					said[n] = c.WhatIf(n)
					require.Empty(t, said[n].Unknown)
					require.Equal(t, len(traffic)+1, said[n].Lendings, "openStub has made a table")
				}
				require.Equal(t, "measure it: pool_max_conns is 20, and with more connections the server takes another time for each statement", c.WhatIf(most+1).Unknown)
				enough := c.Stats().Enough
				require.Equal(t, said[enough.Conns], enough)
				require.LessOrEqual(t, enough.WaitP99, 2*time.Millisecond)
				require.Greater(t, said[enough.Conns-1].WaitP99, 2*time.Millisecond)
			})
			for _, n := range []int{needed * 9 / 10, needed * 3 / 4, needed * 6 / 10, needed / 2, needed * 4 / 10} {
				synctest.Test(t, func(t *testing.T) {
					_, waits := visited(t, n, traffic)
					measured := waits[len(waits)*99/100]
					t.Logf("%d of %d connections: WhatIf says a p99 of %v, measured %v", n, most, said[n].WaitP99, measured)
					require.InDelta(t, measured, said[n].WaitP99, max(0.2*float64(measured), float64(2*time.Millisecond)))
				})
			}
		})
	}
}

func TestWhatIfSaysWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	_, db, c := openTasks(t, 2)
	mustExec(t, t.Context(), db, "INSERT INTO t VALUES (1)")
	require.Equal(t, "With 1 connections: unknown, only 2 checkouts have ended so far.", c.WhatIf(1).String())
	require.Contains(t, c.WhatIf(0).Unknown, "at least one")
	require.NotEmpty(t, c.Stats().Enough.Unknown)
	wrong := pooldriver.New("postgres://x?pool_max_conns=0")
	require.NotEmpty(t, wrong.WhatIf(1).Unknown)
	for range 50000 { // far more than 20 in 10 ms
		if _, err := db.Exec("INSERT INTO t VALUES (1)"); err != nil {
			t.Fatal(err)
		}
	}
	require.Contains(t, c.WhatIf(1).Unknown, "too short to be timed")
}
