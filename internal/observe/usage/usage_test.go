package usage

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/bubble"
	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/pinning"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ms   = time.Millisecond
	Tick = bubble.Tick
)

// metered gives a test a meter, in a bubble whose time stands still while the test works.
func metered(t *testing.T, every int, test func(t *testing.T, m *Meter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var m Meter
		m.Init(&Env{Config: &config.Config{SampleStacks: every}, Clock: NewClock(), Times: Times{Outline: func(text *string) string { return *text }}})
		test(t, &m)
		time.Sleep(2 * Tick) // the clock's timer stops
		synctest.Wait()
	})
}

func TestATransactionIsMeasuredExactly(t *testing.T) {
	metered(t, 0, func(t *testing.T, m *Meter) {
		label, text := "orders", "SELECT 1"
		time.Sleep(3 * ms)
		m.Begin(&label, nil, 0, true)
		time.Sleep(1500 * time.Microsecond) // BEGIN
		m.EndOperation(pinning.Tx)
		time.Sleep(2 * ms)
		m.BeginOperation(&text, true, false)
		l, ok := m.Look()
		require.True(t, ok)
		require.Equal(t, []any{2 * ms, pinning.Tx, uint64(2), &label, &text}, []any{l.Idle, l.Pin, l.Operations, l.Label, l.Text})
		time.Sleep(ms)
		m.EndOperation(pinning.Tx)
		time.Sleep(5 * ms)
		m.BeginOperation(nil, true, false) // COMMIT
		m.EndOperation(pinning.Conn)
		require.Equal(t, Use{Held: 9500 * time.Microsecond, Idle: 7 * ms, Timed: 1, Pin: pinning.Tx, Operations: 3, Label: &label}, usedOf(m))
		require.EqualValues(t, 1, m.env.Hold.Snapshot().Count)
		require.Equal(t, 7*ms, m.env.Idle.Snapshot().Sum)
	})
}

func TestRowsAreMeasuredCoarselyAndNotCountedAsIdleWhileTheyAreRead(t *testing.T) {
	metered(t, 0, func(t *testing.T, m *Meter) {
		m.Begin(nil, nil, 0, false)
		m.EndOperation(pinning.Rows)
		program := time.Duration(0)
		for i := range 200 {
			m.BeginRow()
			time.Sleep(1700 * time.Microsecond) // the server
			m.EndRow()
			pause := time.Duration(i%7+1) * 900 * time.Microsecond
			program += pause
			time.Sleep(pause)
		}
		require.InEpsilon(t, program, usedOf(m).Idle, 0.15)
	})
}

func TestBeyondItsBudgetAConnectionIsMeasuredNowAndThen(t *testing.T) {
	metered(t, 0, func(t *testing.T, m *Meter) {
		const checkouts = 20_000 // in no time
		for range checkouts {
			m.Begin(nil, nil, 0, false)
			m.EndOperation(pinning.Conn)
			m.End()
		}
		n := m.env.Hold.Snapshot().Count
		require.InEpsilon(t, checkouts, n, 0.1, "they stand for all")
		require.Less(t, m.timings, timedPerTick+1)
		time.Sleep(Tick + ms)
		for range timedPerTick {
			m.Begin(nil, nil, 0, false)
			require.EqualValues(t, 1, m.timed, "the next tick has a budget of its own")
			m.End()
		}
	})
}

func TestSampledStacksStandForAllCheckouts(t *testing.T) {
	const checkouts = 20_000
	for name, pins := range map[string]bool{"statements": false, "transactions": true} {
		t.Run(name, func(t *testing.T) {
			metered(t, 64, func(t *testing.T, m *Meter) {
				stacks := 0
				for range checkouts {
					m.Begin(nil, nil, 0, pins)
					if m.site.Load() != nil {
						stacks++
					}
					m.End()
				}
				require.InDelta(t, checkouts/64, stacks, checkouts/64/3)
				sites := m.env.Sites.All()
				require.Len(t, sites, 1)
				require.InEpsilon(t, checkouts, sites[0].Figures().Count, 0.35)
				time.Sleep(Tick + ms)
				m.Begin(nil, nil, 0, false)
				require.NotNil(t, m.site.Load(), "one in each tick")
				m.End()
				m.Begin(nil, nil, sampledWait+1, false)
				require.NotNil(t, m.site.Load(), "a long wait has a budget beside that")
				m.End()
			})
		})
	}
}

func TestWithoutSamplingThereAreNoStacks(t *testing.T) {
	metered(t, 0, func(t *testing.T, m *Meter) {
		m.Begin(nil, nil, time.Second, true)
		m.EndOperation(pinning.Tx)
		m.BeginOperation(nil, true, false)
		l, _ := m.Look()
		require.Nil(t, l.Site)
		require.Nil(t, l.Statement)
		require.Empty(t, m.env.Sites.All())
	})
}

func TestMeasuringDoesNotAllocate(t *testing.T) {
	for _, every := range []int{0, 64, 1} {
		var m Meter
		m.Init(&Env{Config: &config.Config{SampleStacks: every}, Clock: NewClock(), Times: Times{Outline: func(text *string) string { return *text }}})
		text := "SELECT 1"
		checkout := func() {
			m.Begin(nil, &text, 0, true)
			m.EndOperation(pinning.Tx)
			m.BeginOperation(&text, true, false)
			m.EndOperation(pinning.Tx)
			m.End()
		}
		checkout() // its site is new
		require.Zero(t, testing.AllocsPerRun(1000, checkout), every)
		time.Sleep(3 * Tick)
	}
}

func BenchmarkCheckout(b *testing.B) {
	text := "SELECT 1"
	for _, every := range []int{0, 64} {
		var m Meter
		m.Init(&Env{Config: &config.Config{SampleStacks: every}, Clock: NewClock(), Times: Times{Outline: func(text *string) string { return *text }}})
		b.Run(strconv.Itoa(every), func(b *testing.B) {
			for b.Loop() {
				m.Begin(nil, &text, 0, false)
				m.EndOperation(pinning.Conn)
				m.End()
			}
		})
	}
}

func usedOf(m *Meter) Use {
	m.End()
	return m.Used()
}

// TestALookShowsSinceWhenAnOperationRuns: also of one that is not the first.
func TestALookShowsSinceWhenAnOperationRuns(t *testing.T) {
	metered(t, 0, func(t *testing.T, m *Meter) {
		text := "SELECT 1"
		m.Begin(nil, &text, 0, true)
		lasts := func() time.Duration {
			l, _ := m.Look()
			return time.Duration(m.env.Clock.Fine() - l.Last)
		}
		time.Sleep(300 * ms)
		require.InDelta(t, 300*ms, lasts(), float64(Tick))
		m.EndOperation(pinning.Tx)
		time.Sleep(time.Second)
		m.BeginOperation(&text, true, false)
		time.Sleep(200 * ms)
		require.InDelta(t, 200*ms, lasts(), float64(Tick))
		m.EndOperation(pinning.Tx)
		require.InDelta(t, time.Second, usedOf(m).Idle, float64(ms), "it counts once")
	})
}

// TestASlowStatementIsTold: with its rows, its wait, and the time in which nobody read them.
func TestASlowStatementIsTold(t *testing.T) {
	metered(t, 0, func(t *testing.T, m *Meter) {
		var told []SlowQuery
		m.config.SlowQuery, m.env.TellSlow = 100*ms, func(q SlowQuery) { told = append(told, q) }
		label, query, update := "report", "SELECT 1", "UPDATE a"
		m.Begin(&label, &query, 30*ms, true)
		time.Sleep(50 * ms)
		m.OpenRows()
		m.EndOperation(pinning.Tx)
		for range 3 {
			m.BeginRow()
			m.EndRow()
			m.CountRow()
			time.Sleep(40 * ms)
		}
		require.Empty(t, told, "its rows are open")
		m.BeginRow()
		m.CloseRows()
		m.EndRow()
		require.Len(t, told, 1)
		require.Equal(t, []any{&query, &label, 30 * ms, int64(3)}, []any{told[0].Text, told[0].Label, told[0].Waited, told[0].Rows})
		require.InDelta(t, 170*ms, told[0].Took, float64(2*Tick))
		require.InDelta(t, 120*ms, told[0].Idle, float64(4*Tick))

		m.BeginOperation(&update, true, false)
		time.Sleep(50 * ms)
		require.False(t, m.IsSlow())
		m.EndOperation(pinning.Tx)
		time.Sleep(time.Second) // the program's
		m.BeginOperation(&update, true, false)
		time.Sleep(200 * ms)
		require.True(t, m.IsSlow())
		m.Affected(7)
		m.EndOperation(pinning.Tx)
		m.BeginOperation(nil, true, false) // a ping
		time.Sleep(200 * ms)
		m.EndOperation(pinning.Tx)
		m.End()
		require.Len(t, told, 2)
		require.Equal(t, []any{&update, time.Duration(0), int64(7)}, []any{told[1].Text, told[1].Waited, told[1].Rows})
		require.InDelta(t, 200*ms, told[1].Took, float64(2*Tick))
	})
}
