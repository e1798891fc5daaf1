package inspect

import (
	"database/sql"
	"encoding/json"
	"io"
	"slices"
	"time"

	"github.com/pooldriver/pooldriver"
)

// maxRows bounds each list of a Snapshot.
const maxRows = 1000

// Snapshot is what the pools look like at a moment. It is the JSON of the page. Names are those of
// the fields, durations are in nanoseconds, times are as in RFC 3339.
type Snapshot struct {
	At    time.Time
	Pools []Pool
}

// Pool is one Connector.
type Pool struct {
	At   time.Time // of this look
	Name string    // its Target
	// Verdict and Besides are the results of Judge. Earlier is a worse verdict of the last 30 seconds; nil: there
	// was none.
	Verdict Verdict
	Besides []Verdict
	Earlier *Earlier
	// Labels has sums by label, of Holders and Waiters.
	Labels   []LabelUse
	Settings []pooldriver.Setting // the settings that are not the default
	Stats    pooldriver.Stats
	// Recent is what has happened in the last minute, and Window in the last ten seconds. Lines has
	// the last minute second by second, if the pool was in use.
	Recent Recent
	Window Window
	Lines  []Point
	// Asked is the server's answer about statements that run for more than a second.
	Asked Asked
	DBs   []DB // see Inspector.AddDB
	// The lists have at most 1000 entries each.
	Holders   []pooldriver.Holder // without that of Listens, and those of replicas
	Waiters   []pooldriver.Waiter
	Tasks     []pooldriver.TaskState
	CallSites []pooldriver.CallSite
	// Statements have ended in the last ten seconds.
	Statements []pooldriver.StatementTime
	// ReplicaHolders have connections of replicas, and ReplicaWaiters wait for them. Stats.Replica has the figures.
	ReplicaHolders []pooldriver.Holder
	ReplicaWaiters []pooldriver.Waiter
	// Listens is the connection of Connector.Listen; nil: there is none. Stats.Listen has its figures.
	Listens *pooldriver.Holder
	// BufferedRows are open rows that hold memory, and no connection.
	BufferedRows []pooldriver.BufferedRows
}

// Recent has the figures of the last minute or, if the Connector was first used later, the figures
// since then.
type Recent struct {
	For time.Duration // 0: nothing is known yet; the figures are of all time
	// Acquired is how many statements have got a connection, an answer in the pipeline of another one, or an
	// error. Half of them, and of those that wait now, waited no longer than WaitP50, and 99 of 100 no longer than WaitP99. Both are the
	// upper bound of a histogram's bucket. Pipelined of them were answered in a pipeline.
	Acquired         uint64
	Pipelined        uint64
	WaitP50, WaitP99 time.Duration
	// Failed counts the statements that got no connection, by reason; the last one FailedAgo.
	Failed    map[pooldriver.AcquireFailure]uint64
	FailedAgo time.Duration
	// Over: the true WaitP99 is more than the largest bound, and WaitP99 is this bound.
	Over bool
}

// Point is one moment of the last minute. Points are a second apart while the pool is in use. WaitP99
// and Failed count from the point before.
type Point struct {
	At             time.Time
	InUse, Waiting int           // connections, and statements, at this time
	WaitP99        time.Duration // as Recent's
	Failed         uint64        // statements that got no connection, and were not cancelled
}

// DB is a *sql.DB that uses a Connector: see database/sql.DBStats. It counts virtual connections.
type DB struct {
	MaxOpen      int // SetMaxOpenConns; 0: no limit
	InUse        int
	WaitCount    int64 // callers that had to wait for MaxOpen, since the beginning
	WaitDuration time.Duration
}

func dbOf(s sql.DBStats) DB {
	return DB{MaxOpen: s.MaxOpenConnections, InUse: s.InUse, WaitCount: s.WaitCount, WaitDuration: s.WaitDuration}
}

// Snapshot asks the Connectors.
func (i *Inspector) Snapshot() Snapshot {
	s := Snapshot{At: time.Now(), Pools: make([]Pool, len(i.pools))}
	for n, w := range i.pools {
		s.Pools[n] = w.look()
	}
	return s
}

func writeJSON(w io.Writer, s Snapshot) {
	e := json.NewEncoder(w)
	e.SetIndent("", "\t")
	_ = e.Encode(s) // the reader has gone
}

func atMost[T any](n int, list []T) []T { return list[:min(n, len(list))] }

// entry returns the entry of a list that is the one, which it adds if there is none.
func entry[T any](list *[]T, is func(T) bool, one T) *T {
	i := slices.IndexFunc(*list, is)
	if i < 0 {
		i = len(*list)
		*list = append(*list, one)
	}
	return &(*list)[i]
}
