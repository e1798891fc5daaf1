package inspect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver"
)

// Other is a row about what a Connector has beside its pool: a replica, or the connection that listens.
type Other struct {
	Name, State string
	Ill         bool      // it does not do its work
	Since       time.Time // of State
	Why         string    // the reason of the last error; empty: there is none
	Error       string    // the same at length
	InUse       string    // its connections in use, or its process
	Waiting     int
	Lag         string // empty: not known
	Done        string // since the beginning
	Statement   string
}

// OthersOf are the replicas of a pool, and then the connection that listens.
func OthersOf(p Pool) (rows []Other) {
	for _, r := range p.Stats.Replica.Pools {
		row := Other{
			Name: "replica " + r.Host, State: words(r.State), Ill: r.State != pooldriver.ReplicaServed, Since: r.Since,
			InUse: fmt.Sprintf("%d of %d", r.Pool.Lent, r.Pool.Max), Waiting: r.Pool.Waiting, Done: fmt.Sprintf("lent %d times", r.Pool.Acquires),
		}
		if !row.Ill {
			row.State = "serves"
		}
		if r.Lag >= 0 {
			row.Lag = Brief(r.Lag)
		}
		rows = append(rows, row.failing(r.Failing))
	}
	if l := p.Stats.Listen; l.Listeners > 0 || p.Listens != nil {
		row := Other{
			Name: "listener", State: string(l.State), Ill: l.State == pooldriver.ListenConnecting, Since: l.Since,
			Done: fmt.Sprintf("%d channels, %d notifications, %d gaps, %d dropped", l.Channels, l.Received, l.Gaps, l.Dropped),
		}
		if p.Listens != nil {
			row.Statement = p.Listens.Statement
			if p.Listens.ProcessID != 0 {
				row.InUse = fmt.Sprintf("process %d", p.Listens.ProcessID)
			}
		}
		rows = append(rows, row.failing(l.Failing))
	}
	return rows
}

// failing adds dials that fail.
func (o Other) failing(d pooldriver.DialsFailing) Other {
	if d.Failed > 0 {
		o.Why, o.Error = shortly(d), clipError(d.Error)
	}
	return o
}

// shortly is the error of a dial without what was tried: the cause, if it has a name, or its last part.
func shortly(d pooldriver.DialsFailing) string {
	if d.Cause != "" && d.Cause != pooldriver.DialOther {
		return string(d.Cause)
	}
	text := strings.TrimSpace(d.Error)
	return clip(strings.TrimSpace(text[strings.LastIndex(text, ": ")+1:]), maxError)
}

// ReadsOf lists what has become of the reads that a replica may serve; empty: there was none.
func ReadsOf(p Pool) string {
	var list []string
	for outcome, n := range p.Stats.Replica.Reads {
		if n > 0 {
			list = append(list, fmt.Sprintf("%s %d", words(outcome), n))
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
