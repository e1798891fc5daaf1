package pooldriver

import (
	"maps"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver/internal/judge"
	"github.com/pooldriver/pooldriver/internal/observe/history"
)

// Moment describes a Connector at one time: see Connector.History. Its counters count since the
// Connector was made, as those of Stats.
type Moment struct {
	At time.Time
	// InUse and Waiting are Stats.Pool.Lent and Stats.Pool.Waiting at this time.
	InUse, Waiting    int
	Moves             uint64 // see Stats.Pool
	Pipelined         uint64 // see Stats
	Dials, DialErrors uint64
	// Ended is the number of checkouts that have ended, Held and IdlePinned are their times: see Stats.Hold and
	// Stats.IdlePinned. Lost is how many connections broke while they were used, or were ended because their
	// statement's context had ended: Stats.Closed.
	Ended, Lost      uint64
	Held, IdlePinned time.Duration
	Wait             Histogram // see Stats
	AcquireFailures  map[AcquireFailure]uint64
	StatementErrors  map[string]uint64      // see Stats
	Reads            map[ReplicaRead]uint64 // see ReplicaStats
	Dropped          uint64                 // see ListenStats
	Late             time.Duration          // how late this Moment was recorded: the process, or the machine, is busy
}

// momentOf returns the Moment of now.
func momentOf(s *Stats) Moment {
	return Moment{
		At: time.Now(), InUse: s.Pool.Lent, Waiting: s.Pool.Waiting, Moves: s.Pool.Moves, Pipelined: s.Pipelined,
		Dials: s.Connect.Count, DialErrors: s.DialErrors, Ended: s.Hold.Count, Held: s.Hold.Sum, IdlePinned: s.IdlePinned.Sum,
		Lost: s.Closed[CloseLost], Wait: s.Wait, AcquireFailures: s.AcquireFailures, StatementErrors: s.StatementErrors, Reads: s.Replica.Reads, Dropped: s.Listen.Dropped,
	}
}

// historyOf is what the history of c records.
func historyOf(c *Connector) history.Source[Moment] {
	return history.Source[Moment]{
		Look: func(late time.Duration) Moment {
			s := figures(c)
			m := momentOf(&s)
			m.Late = max(0, late)
			return m
		},
		Second: c.endSecond,
		First:  func() Moment { return Moment{At: time.Now()} },
		At:     func(m Moment) time.Time { return m.At },
		Used:   usedSince,
		Peak:   c.pool.TakePeak,
	}
}

// usedSince reports whether the Connector is in use now, or was used since last.
func usedSince(now, last Moment) bool {
	return now.InUse > 0 || now.Waiting > 0 || now.Moves != last.Moves || now.DialErrors != last.DialErrors ||
		!maps.Equal(now.AcquireFailures, last.AcquireFailures) || !maps.Equal(now.Reads, last.Reads)
}

// endSecond is called after each second in which c was in use. A second is quiet if nobody has waited at its ends, and nobody has
// failed: only then the times of statements say what is usual.
func (c *Connector) endSecond(now, last Moment) {
	quiet := now.Waiting == 0 && last.Waiting == 0 && now.DialErrors == last.DialErrors && now.Lost == last.Lost && maps.Equal(now.AcquireFailures, last.AcquireFailures)
	for _, e := range enginesOf(c) {
		e.Times().Second(c.usage.Clock.Of(now.At), quiet)
	}
	c.report.EndSecond(now.At, history.Step+now.Late, quiet)
	if now.At.Unix()%verdictEvery == 0 {
		c.verdicts.tell(c)
	}
}

// verdictEvery is after how many seconds the verdicts are looked at for the log.
const verdictEvery = 5

// verdicts tells the log of verdicts that become bad.
type verdicts struct {
	mu  sync.Mutex           // protects following fields
	bad map[string]time.Time // by rule: when it was last seen to be bad
}

// tell has a line for each rule that is bad, and was not within the last minute.
func (v *verdicts) tell(c *Connector) {
	if judge.Judge == nil {
		return
	}
	all := judge.Judge(c)
	now := time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, one := range all {
		if one.Level < judge.Bad {
			continue
		}
		if now.Sub(v.bad[one.Rule]) > time.Minute {
			c.config.logger().Warn("pooldriver: "+one.Text, "target", c.Target(), "rule", one.Rule)
		}
		if v.bad == nil {
			v.bad = map[string]time.Time{}
		}
		v.bad[one.Rule] = now
	}
}
