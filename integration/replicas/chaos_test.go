package replicas

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

// longest is for how long a replica is held or cut at most.
const longest = 500 * time.Millisecond

// disturb holds the first replica and cuts the second one off, again and again for random times, until the returned
// function is called, or the test ends. Then both serve.
func disturb(t *testing.T, s *stage, seed uint64) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { holdNowAndThen(t, ctx, s.Replicas.Replicas[0], rand.New(rand.NewPCG(seed, 1))) })
	all.Go(func() { cutNowAndThen(ctx, s.Replicas.Replicas[1], rand.New(rand.NewPCG(seed, 2))) })
	stop = func() {
		cancel()
		all.Wait()
	}
	t.Cleanup(stop)
	return stop
}

func holdNowAndThen(t *testing.T, ctx context.Context, r *testbed.Replica, random *rand.Rand) {
	for ctx.Err() == nil {
		ok := assert.NoError(t, r.Hold(context.WithoutCancel(ctx)))
		pause(ctx, random)
		if ok = assert.NoError(t, r.Release(context.WithoutCancel(ctx))) && ok; !ok {
			return
		}
		pause(ctx, random)
	}
}

func cutNowAndThen(ctx context.Context, r *testbed.Replica, random *rand.Rand) {
	for ctx.Err() == nil {
		r.Proxy.SetDown(true)
		pause(ctx, random)
		r.Proxy.SetDown(false)
		pause(ctx, random)
	}
}

// pause waits for a random time.
func pause(ctx context.Context, random *rand.Rand) {
	select {
	case <-time.After(time.Duration(random.Int64N(int64(longest)))):
	case <-ctx.Done():
	}
}
