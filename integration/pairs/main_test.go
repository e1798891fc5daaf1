// Package pairs runs programs in configurations that together have each pair of features. The server and
// the bare driver say what the programs should have seen. A pair of features counts only if both have acted on one act.
package pairs

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	_ "github.com/pooldriver/pooldriver/dialects/mysql"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	_ "github.com/pooldriver/pooldriver/dialects/sqlite"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

func TestMain(m *testing.M) {
	// pgxpool waits for ever for the connection of a query whose argument has panicked.
	os.Exit(testbed.Run(m, goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgxpool.(*Pool).Close")))
}
