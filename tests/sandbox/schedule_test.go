package sandbox_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
	"github.com/pooldriver/pooldriver/sandbox"
	"github.com/pooldriver/pooldriver/tests/schedules"
)

// TestRandomSchedulesEnd runs in a bubble, which finds every hang.
func TestRandomSchedulesEnd(t *testing.T) {
	t.Parallel()
	seed := randomtest.Seed(t)
	long := 100_000
	if randomtest.Raced() {
		long /= 10 // the detector itself keeps 0.3 MB for each schedule, and frees nothing
	}
	for i := range randomtest.Rounds(300, long) {
		// A failure names the schedule: POOLDRIVER_SEED repeats it as the first.
		random := rand.New(rand.NewPCG(seed+uint64(i), 0))
		ok := t.Run(fmt.Sprint("seed ", seed+uint64(i)), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runSchedule(t, random) })
		})
		if !ok {
			return
		}
	}
}

func runSchedule(t *testing.T, random *rand.Rand) {
	stub := stubdialect.New(dialects.Traits{})
	connector := pooldriver.Wrap(stubdialect.Connector(stub), quietly)
	plain := sql.OpenDB(connector)
	mustExec(t, plain, "CREATE TABLE ledger (id INT)")
	r := record(t)
	db := sandbox.DB(r, connector)
	schedules.Schedule{
		Random: random, Rows: "SELECT n FROM numbers LIMIT 3", Pause: 2 * time.Second, Patience: time.Nanosecond,
	}.Run(t, db)
	require.Empty(t, r.end())
	require.Empty(t, schedules.Present(t, plain), "everything is undone")
	require.NoError(t, plain.Close())
	require.Empty(t, stub.Server.Violations())
}
