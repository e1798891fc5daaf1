// Package failover runs pooldriver against more than one server: PostgreSQL with a
// standby that is promoted, a Galera cluster that loses nodes, and PgBouncer in
// transaction mode. What holds is written down in docs/failover.md.
//
// POOLDRIVER_LONG=1 runs every round; without it a sample that fits in a few
// minutes is run.
package failover

import (
	"os"
	"strconv"
	"testing"
	"time"

	_ "github.com/pooldriver/pooldriver/dialects/mysql"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.Run(m)) }

// rounds returns how often something is tried.
func rounds(short, long int) int {
	if os.Getenv("POOLDRIVER_LONG") != "" {
		return long
	}
	return short
}

// seed is that of everything random in a test. It is logged; POOLDRIVER_SEED
// repeats a run.
func seed(t *testing.T) uint64 {
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
