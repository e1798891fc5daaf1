// Package replicas runs programs whose reads go to replicas, on a primary with two replicas that are held and cut
// off at random, and asks the servers what the programs should have seen.
//
// POOLDRIVER_LONG=1 runs for minutes what runs for seconds without it.
package replicas

import (
	"os"
	"testing"

	_ "github.com/pooldriver/pooldriver/dialects/mysql"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(serviceURL); url != "" {
		os.Exit(serve(url))
	}
	os.Exit(testbed.Run(m))
}
