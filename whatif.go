package pooldriver

import (
	"fmt"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver/internal/traffic"
)

// WhatIf says how long statements would have waited with Conns connections: see Connector.WhatIf.
type WhatIf struct {
	Conns int
	// Unknown says why nothing else is known; empty: it is known.
	Unknown string
	// For is the time in which the traffic was recorded, and Lendings is how many checkouts there were.
	For      time.Duration
	Lendings int
	// Needed is with how many connections no statement would have waited.
	Needed int
	// Half of the statements would have waited no longer than WaitP50, and 99 of 100 no longer than WaitP99.
	WaitP50, WaitP99, WaitMax time.Duration
}

// String is a sentence.
func (w WhatIf) String() string {
	if w.Unknown != "" {
		return fmt.Sprintf("With %d connections: unknown, %s.", w.Conns, w.Unknown)
	}
	if w.Conns >= w.Needed {
		return fmt.Sprintf("In the last %v %d connections were needed at most: with %d nobody would have waited.", w.For.Round(time.Second), w.Needed, w.Conns)
	}
	return fmt.Sprintf("In the last %v %d connections were needed at most: with %d the p99 of the wait would have been %v.", w.For.Round(time.Second), w.Needed, w.Conns, w.WaitP99.Round(10*time.Microsecond))
}

// fewest is how many checkouts a replay needs: of fewer, the 99th percentile says nothing.
const fewest = 200

// whatIf replays a record with n connections. most is how many the pool has.
func whatIf(c *traffic.Record, n, most int) WhatIf {
	w := look(c, n, most)
	if w.Unknown == "" {
		w.replay(c, n)
	}
	return w
}

// look is whatIf before the replay.
func look(c *traffic.Record, n, most int) WhatIf {
	w := WhatIf{Conns: n, For: c.For, Lendings: c.Lendings()}
	switch {
	case n < 1:
		w.Unknown = "a pool has at least one"
	case n > most:
		w.Unknown = fmt.Sprintf("measure it: pool_max_conns is %d, and with more connections the server takes another time for each statement", most)
	case c.Skipped > uint64(c.Lendings())/20:
		w.Unknown = "connections are held for less than about 0.5 ms each, too short to be timed one by one"
	case c.Lendings() < fewest:
		w.Unknown = fmt.Sprintf("only %d checkouts have ended so far", c.Lendings())
	default:
		w.Needed = c.Needed()
	}
	return w
}

func (w *WhatIf) replay(c *traffic.Record, n int) {
	waits := c.Replay(n)
	w.Conns, w.WaitP50, w.WaitP99, w.WaitMax = n, waits.Quantile(0.5), waits.Quantile(0.99), waits.Quantile(1)
}

// enoughWait is the 99th percentile of the wait with which a pool is large enough: a statement waits as
// long for the network.
const enoughWait = 2 * time.Millisecond

// sizing remembers an answer, because Stats is asked often.
type sizing struct {
	mu   sync.Mutex // protects following fields
	at   time.Time
	last WhatIf
}

// sizingLasts is how long an answer is remembered.
const sizingLasts = 10 * time.Second

// enough is the WhatIf of the smallest pool with which the p99 of the wait is at most enoughWait.
func (s *sizing) enough(r *traffic.Ring, most int) WhatIf {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.at) < sizingLasts {
		return s.last
	}
	c := r.Record()
	s.last = look(c, most, most)
	if s.last.Unknown == "" {
		low, high := 1, min(most, max(1, s.last.Needed)) // the answer is in between
		for low < high {
			if n := (low + high) / 2; c.Replay(n).Quantile(0.99) <= enoughWait {
				high = n
			} else {
				low = n + 1
			}
		}
		s.last.replay(c, high)
	}
	s.at = time.Now()
	return s.last
}
