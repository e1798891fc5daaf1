// Package replicas runs pooldriver against a primary with two replicas that are behind, and that come and go: programs
// that read on the replicas have to see what they have written, and what they have seen.
//
// POOLDRIVER_LONG=1 runs each program for minutes; without it a sample of seconds is run.
package replicas

import (
	"os"
	"testing"

	_ "github.com/pooldriver/pooldriver/dialects/mysql"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// The servers are as many as those of three other tests: one after the other they start in time.
func TestMain(m *testing.M) { os.Exit(testbed.RunAtOnce(m, 1)) }
