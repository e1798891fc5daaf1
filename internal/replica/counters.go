package replica

import (
	"sync/atomic"

	"github.com/pooldriver/pooldriver/internal/observe/histogram"
)

// Reason says what has become of a read that a replica may serve.
type Reason uint8

// The reasons. Of those after Waited the primary has served, or nobody.
const (
	Served     Reason = iota // a replica has served the read
	Waited                   // a replica has served it, and had to catch up with the context first
	Behind                   // the replica did not catch up in time
	Writing                  // a transaction or rows of the context, which may write, are open
	Unknown                  // the log position of the context's last write is not known
	Late                     // too late for pool_replica_max_lag
	Dead                     // no connection to a replica could be had
	NotStandby               // it is no standby any more
	Joined                   // a transaction or session of the context, or of its *sql.Conn, is on the primary
	Writes                   // the text is not known to read only
	Refused                  // the replica has refused the statement: it writes, or is in the way of the replication
	Reasons    = int(Refused) + 1

	// These count nothing.
	None   = Refused + 1 // no replica may serve it
	unseen = None + 1    // the position of the replica was not asked lately
	stuck  = None + 2    // the replica is behind, and an earlier read has waited pool_replica_wait for it in vain
)

var reasons = [Reasons]string{"served", "waited", "behind", "writing", "unknown", "late", "dead", "no_standby", "joined", "not_read", "refused"}

func (r Reason) String() string { return reasons[r] }

// Counters count reads that a replica may serve.
type Counters struct {
	Reads [Reasons]atomic.Uint64
	Wait  histogram.Histogram // for replicas to catch up
}

// Count counts a read.
func (c *Counters) Count(r Reason) {
	if r < None {
		c.Reads[r].Add(1)
	}
}
