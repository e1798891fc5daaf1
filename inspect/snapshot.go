package inspect

import (
	"encoding/json"
	"io"
	"time"

	"github.com/pooldriver/pooldriver"
)

// maxRows bounds each list of a Snapshot.
const maxRows = 1000

// Snapshot is what the pools look like at a moment. It is the JSON of the page. Durations
// are in nanoseconds.
type Snapshot struct {
	At    time.Time
	Pools []Pool
}

// Pool is one Connector.
type Pool struct {
	Name     string               // its Target
	Settings []pooldriver.Setting // the settings that are not the default
	Stats    pooldriver.Stats
	// Recent is what has happened lately.
	Recent Recent
	// The lists have at most 1000 entries each.
	Holders   []pooldriver.Holder
	Waiters   []pooldriver.Waiter
	Tasks     []pooldriver.TaskState
	CallSites []pooldriver.CallSite
	// BufferedRows are open rows that hold memory, and no connection.
	BufferedRows []pooldriver.BufferedRows
	// Window is what has been seen in the last seconds, by several requests.
	Window Window
	// Verdict is Judge's. Its level goes down only when 30 seconds have passed without a reason
	// for it.
	Verdict Verdict
}

// Recent is what has happened in the last minute or, if the first request for a page came later,
// since that request.
type Recent struct {
	For time.Duration // 0: this is the first request; the figures are of all time
	// Acquired is how many statements have got a connection or an error. Half of them waited no
	// longer than WaitP50, and 99 of 100 no longer than WaitP99. Both are the upper bound of a
	// histogram's bucket.
	Acquired         uint64
	WaitP50, WaitP99 time.Duration
	// Over: the true WaitP99 is more than the largest bound, and WaitP99 is this bound.
	Over bool
}

// Snapshot asks the Connectors.
func (i *Inspector) Snapshot() Snapshot {
	s := Snapshot{At: time.Now(), Pools: make([]Pool, len(i.pools))}
	for n, w := range i.pools {
		s.Pools[n] = w.look(s.At)
	}
	return s
}

func writeJSON(w io.Writer, s Snapshot) {
	e := json.NewEncoder(w)
	e.SetIndent("", "\t")
	_ = e.Encode(s) // the reader has gone
}

func atMost[T any](n int, list []T) []T { return list[:min(n, len(list))] }
