package pooldriver

import (
	"time"

	"github.com/pooldriver/pooldriver/internal/history"
	"github.com/pooldriver/pooldriver/internal/report"
	"github.com/pooldriver/pooldriver/pool"
)

// Moment describes a Connector at one time: see Connector.History. Its counters count since the
// Connector was made, as those of Stats.
type Moment struct {
	At time.Time
	// InUse and Waiting are Stats.Pool.Lent and Stats.Pool.Waiting at this time.
	InUse, Waiting  int
	Moves           uint64 // see Stats.Pool
	Pipelined       uint64 // see Stats
	DialErrors      uint64
	Wait            Histogram // see Stats
	AcquireFailures map[AcquireFailure]uint64
}

// momentOf returns the Moment of now.
func momentOf(s pool.Stats, n *report.Counters) history.Moment {
	m := history.Moment{
		At: time.Now(), InUse: s.Lent, Waiting: s.Waiting, Moves: s.Moves,
		Pipelined: n.Pipelined.Load(), DialErrors: n.DialErrors.Load(), Wait: n.Wait.Snapshot(),
	}
	atOnce := n.AtOnce(s.Acquires)
	m.Wait.Count += atOnce
	m.Wait.Buckets[0] += atOnce
	for i := range m.Failures {
		m.Failures[i] = n.AcquireFailures[i].Load()
	}
	return m
}

// moments is Connector.History.
func moments(from []history.Moment) []Moment {
	all := make([]Moment, len(from))
	for i, m := range from {
		all[i] = Moment{m.At, m.InUse, m.Waiting, m.Moves, m.Pipelined, m.DialErrors, Histogram(m.Wait), map[AcquireFailure]uint64{}}
		for f, why := range acquireFailures {
			all[i].AcquireFailures[why] = m.Failures[f]
		}
	}
	return all
}
