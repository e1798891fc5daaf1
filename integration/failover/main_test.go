// Package failover runs pooldriver against more than one server: PostgreSQL with a
// standby that is promoted, a cluster of Patroni, a Galera cluster that loses nodes,
// and PgBouncer in transaction mode. What holds is written down in docs/internals/failover.md.
//
// POOLDRIVER_LONG=1 runs every round, and Patroni; without it a sample of the
// others that fits in a few minutes is run.
package failover

import (
	"os"
	"testing"

	_ "github.com/pooldriver/pooldriver/dialects/mysql"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.Run(m)) }
