package integration

import (
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A machine with more work than processors stops any goroutine for seconds, and a server's process, too. A bound on
// time holds there for what a machine that was on time would have shown.

// inTime calls try until it takes less than limit: the machine may stand still in any try, and not in each.
func inTime(t testing.TB, limit time.Duration, try func() (took time.Duration), what ...any) {
	t.Helper()
	fastest := try()
	for n := 1; n < mostTries && fastest >= limit; n++ {
		fastest = min(fastest, try())
	}
	require.Less(t, fastest, limit, what...)
}

// pulse is the control of what is measured beside it: a goroutine that wants to run, and to be answered by the
// server, at each beat.
type pulse struct {
	longest atomic.Int64 // beat, in nanoseconds, since it was asked for
	begun   atomic.Int64 // the present beat, in nanoseconds since the epoch
}

const beat = 20 * time.Millisecond

// feelPulse begins to measure. It ends with the test. witness: nil: no server is asked.
func feelPulse(t testing.TB, witness *sql.DB) *pulse {
	t.Helper()
	p := &pulse{}
	p.begun.Store(time.Now().UnixNano())
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			if witness != nil {
				_, _ = witness.Exec("SELECT 1")
			}
			now := time.Now()
			raise(&p.longest, now.Sub(time.Unix(0, p.begun.Swap(now.UnixNano())))-beat)
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped })
	return p
}

// late is how much longer than usual a beat has taken, or takes, at the most since the last call.
func (p *pulse) late() time.Duration {
	raise(&p.longest, time.Since(time.Unix(0, p.begun.Load()))-beat)
	return time.Duration(p.longest.Swap(0))
}
