// Package integration runs pooldriver against real servers. What it expects is
// the servers' word, not the pool's: see package testbed.
//
// POOLDRIVER_LONG=1 runs every seed and round; without it a sample that fits in
// a few minutes is run.
package integration

import (
	"os"
	"testing"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

func TestMain(m *testing.M) {
	if os.Getenv(childDSN) != "" { // it starts no servers, and may leave behind what it likes
		os.Exit(m.Run())
	}
	os.Exit(testbed.Run(m))
}
