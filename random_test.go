package pooldriver

import (
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/fakedb"
)

// rounds returns how often something random is tried: less often, unless
// POOLDRIVER_LONG is set.
func rounds(short, long int) int {
	if os.Getenv("POOLDRIVER_LONG") != "" {
		return long
	}
	return short
}

// seeded returns a source of randomness whose seed is logged; POOLDRIVER_SEED
// repeats a run.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("POOLDRIVER_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("POOLDRIVER_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, seed))
}

// watch ends the test binary, with the stacks of all goroutines, if the function
// that it returns is not called in time.
func watch(t *testing.T, limit time.Duration) (stop func()) {
	t.Helper()
	timer := time.AfterFunc(limit, func() {
		stacks := make([]byte, 1<<20)
		panic(t.Name() + " hangs\n\n" + string(stacks[:runtime.Stack(stacks, true)]))
	})
	return func() { timer.Stop() }
}

// soon requires that fn returns.
func soon(t *testing.T, what string, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatalf("%s did not return", what)
	}
}

// held makes the next call with this text wait; it is running when the gate says
// that it has been entered.
func held(server *fakedb.Server, text string) *fakedb.Gate {
	gate := fakedb.NewGate()
	server.Inject(fakedb.Fault{Text: text, Gate: gate})
	return gate
}
