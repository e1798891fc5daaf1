package integration

import (
	"context"
	"database/sql"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// TestAStatementThatIsCutWhileItIsSentBlocksNoPlace cancels statements at random
// moments while they are sent: a backend of PostgreSQL then waits for the rest, and
// ignores requests to cancel. There are never more sessions than the pool has places:
// pg_stat_activity shows none, and the server would refuse one. Each place serves again
// soon.
func TestAStatementThatIsCutWhileItIsSentBlocksNoPlace(t *testing.T) {
	random := randomtest.Seeded(t)
	try := func(name string, account testbed.Account) {
		for _, f := range []front{wrapped, around} {
			t.Run(name+"/"+f.name, func(t *testing.T) { cutStatements(t, account, f, random) })
		}
	}
	try("plain", testbed.Shared(t, testbed.Postgres).NewAccount(t))
	try("TLS", testbed.Start(t, testbed.Postgres, testbed.WithTLSOnly()).NewAccount(t))
}

func cutStatements(t *testing.T, account testbed.Account, f front, random *rand.Rand) {
	const places = 2
	limit := time.Second
	if !randomtest.Long() {
		limit *= 2 // on a machine that does other things, too
	}
	account.LimitConnections(t, places)
	watch := account.Watch(t)
	pulse := feelPulse(t, account.Witness(t))
	c := &cutter{T: t, DB: f.open(t, account, places), texts: strings.Repeat("x", longest)}
	var all sync.WaitGroup
	for range places { // as many programs as places: none waits for another's
		random := rand.New(rand.NewPCG(random.Uint64(), 0))
		all.Go(func() {
			for range randomtest.Rounds(30, 1250) {
				c.cut(random)
			}
		})
	}
	all.Wait()
	peak := watch.Stop()
	t.Logf("%d of %d cut, served again after %v at the most, %d sessions at the most in %d looks",
		c.failed, c.tried, c.slowest.Round(time.Millisecond), peak.Backends, peak.Samples)
	require.NotZero(t, c.failed)
	require.LessOrEqual(t, peak.Backends, places, "sessions")
	require.Less(t, c.slowest, limit+3*pulse.late(), "a place was blocked")
}

// cutter sends statements that are cut.
type cutter struct {
	*testing.T
	*sql.DB
	texts string // what statements are cut from

	mu            sync.Mutex // protects following fields
	tried, failed int
	slowest       time.Duration // how long the next statement took, at the most
}

// longest is the length of the longest statement.
const longest = 64 << 20

// size is the length of a statement: of 1 KiB to 256 KiB seven times of ten, of up
// to 64 MiB, which no socket takes at once, once.
func size(random *rand.Rand) int {
	bits := 8 * random.Float64()
	switch random.IntN(10) {
	case 0:
		bits = 13 + 3*random.Float64()
	case 1, 2:
		bits = 8 + 5*random.Float64()
	}
	return int(1024 * math.Exp2(bits))
}

// cut sends one statement, cancels it, and has the place serve another.
func (c *cutter) cut(random *rand.Rand) {
	size := size(random)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	after := time.Duration(random.Float64() * (float64(time.Millisecond) + 2*float64(size)))
	err := c.send(ctx, random.IntN(3), c.texts[:size], func() { time.AfterFunc(after, cancel) })
	if err != nil && ctx.Err() == nil {
		c.Error("nobody has cancelled it:", err)
	}
	began := time.Now()
	var one int
	if err := c.QueryRowContext(context.Background(), "SELECT 1").Scan(&one); err != nil {
		c.Error("the next statement:", err)
	}
	took := time.Since(began)

	c.mu.Lock()
	defer c.mu.Unlock()
	c.tried++
	if err != nil {
		c.failed++
	}
	c.slowest = max(c.slowest, took)
}

const lengthOf = "SELECT length($1)"

// send executes the statement alone, in a transaction or in a task; begin starts the
// time until its end.
func (c *cutter) send(ctx context.Context, way int, text string, begin func()) error {
	var n int
	switch way {
	case 0:
		begin()
		return c.QueryRowContext(ctx, lengthOf, text).Scan(&n)
	case 1:
		tx, err := c.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		begin()
		return tx.QueryRowContext(ctx, lengthOf, text).Scan(&n)
	default:
		return pooldriver.Do(ctx, func(ctx context.Context) error {
			begin()
			return c.QueryRowContext(ctx, lengthOf, text).Scan(&n)
		})
	}
}
