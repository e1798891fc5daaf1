package integration

import (
	"database/sql/driver"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

// waitingMethod is a method of an argument that waits, as one that takes a mutex or asks another service does.
type waitingMethod struct {
	calls atomic.Int32
	went  chan struct{}
}

func (p *waitingMethod) wait() {
	p.calls.Add(1)
	<-p.went
}

type waitingValuer struct{ *waitingMethod }

func (p waitingValuer) Value() (driver.Value, error) {
	p.wait()
	return int64(1), nil
}

// waitingNumber prints itself slowly.
type waitingNumber int

var printing atomic.Pointer[waitingMethod]

func (n waitingNumber) String() string {
	printing.Load().wait()
	return strconv.Itoa(int(n))
}

// TestAMethodOfAnArgumentKeepsNobodyWaitingInAPipeline: it runs in the goroutine of its caller, once, before the query
// waits for a connection.
func TestAMethodOfAnArgumentKeepsNobodyWaitingInAPipeline(t *testing.T) {
	for name, c := range map[string]struct {
		text     string
		argument func(*waitingMethod) any
	}{
		"Value":  {ofItems, func(p *waitingMethod) any { return waitingValuer{p} }},
		"String": {"SELECT n FROM items WHERE n::text = $1", func(*waitingMethod) any { return waitingNumber(1) }},
	} {
		t.Run(name, func(t *testing.T) {
			p := openCrowd(t, testbed.Shared(t, testbed.Postgres).NewAccount(t))
			waits := &waitingMethod{went: make(chan struct{})}
			printing.Store(waits)
			var n int
			known := func() error { return p.db.QueryRowContext(t.Context(), c.text, "1").Scan(new(int)) }
			for before := p.c.Stats().Pipelined; p.c.Stats().Pipelined == before; {
				p.inLine(t, known, known)()
			}
			held, err := p.db.Conn(t.Context())
			require.NoError(t, err)
			require.NoError(t, held.PingContext(t.Context()))
			asked := make(chan error, 1)
			go func() { asked <- p.db.QueryRowContext(t.Context(), c.text, c.argument(waits)).Scan(&n) }()
			require.Eventually(t, func() bool { return waits.calls.Load() == 1 }, slowMachine, time.Millisecond, "it waits for nobody yet")
			require.Zero(t, p.c.Stats().Pool.Waiting)
			require.NoError(t, held.Close())
			p.together(t, ofItems, ofStock, ofItems)()
			require.EqualValues(t, 1, waits.calls.Load())

			held, err = p.db.Conn(t.Context())
			require.NoError(t, err)
			require.NoError(t, held.PingContext(t.Context()))
			before := p.c.Stats()
			close(waits.went)
			queued := func(n int) {
				require.Eventually(t, func() bool { return p.c.Stats().Pool.Waiting == n }, slowMachine, time.Millisecond)
			}
			queued(1)
			followed := make(chan error, 1)
			go func() { followed <- p.ask(t, ofItems, 0) }()
			queued(2)
			require.NoError(t, held.Close())
			require.NoError(t, <-asked)
			require.NoError(t, <-followed)
			require.Equal(t, 1, n)
			if after := p.c.Stats(); after.Pipelined == before.Pipelined+1 && after.PipelineRepeats == before.PipelineRepeats { // else the machine stood still
				require.EqualValues(t, 1, waits.calls.Load(), "once")
			}
		})
	}
}
