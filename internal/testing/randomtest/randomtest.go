// Package randomtest has what random tests share: a seed that is logged and can be repeated, a
// number of rounds, and a time limit that shows where a test hangs.
package randomtest

import (
	"flag"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"time"
)

// Seed returns a seed, which the test logs. POOLDRIVER_SEED repeats a run.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("POOLDRIVER_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("POOLDRIVER_SEED: %v", err)
		}
	}
	t.Logf("POOLDRIVER_SEED=%d", seed)
	return seed
}

// Seeded returns a source with a Seed.
func Seeded(t testing.TB) *rand.Rand {
	t.Helper()
	seed := Seed(t)
	return rand.New(rand.NewPCG(seed, seed))
}

// Long reports whether POOLDRIVER_LONG is set: every seed and round must run.
func Long() bool { return os.Getenv("POOLDRIVER_LONG") != "" }

// Rounds returns long if Long, else short.
func Rounds(short, long int) int {
	if Long() {
		return long
	}
	return short
}

// Raced reports whether the tests were built with the race detector.
func Raced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// AtOnce makes a TestMain run n parallel tests at once, for tests that wait more than they work.
// The flag -parallel overrides n.
func AtOnce(n int) {
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err)
	}
}

// Watch ends the test binary, with the stacks of all goroutines, unless stop is called
// within limit.
func Watch(t testing.TB, limit time.Duration) (stop func()) {
	t.Helper()
	timer := time.AfterFunc(limit, func() {
		stacks := make([]byte, 1<<20)
		panic(t.Name() + " hangs\n\n" + string(stacks[:runtime.Stack(stacks, true)]))
	})
	return func() { timer.Stop() }
}
