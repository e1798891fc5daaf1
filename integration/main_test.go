// Package integration runs pooldriver against real servers. What it expects is
// the servers' word, not the pool's: see package testbed.
//
// POOLDRIVER_LONG=1 runs every seed and round; without it a sample that fits in
// a few minutes is run.
package integration

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.Run(m)) }

// rounds returns how often something random is tried.
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
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("POOLDRIVER_SEED: %v", err)
		}
	}
	t.Logf("POOLDRIVER_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, seed))
}
