package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
)

var _ dialects.LockFinder = dialect{}

// lockWaits has a row for each session that the server knows, joined with those in its way, and for each of these that waits itself, such as an
// ALTER TABLE behind a long transaction. A lock of a prepared transaction has no session, and a synchronous standby none either.
const lockWaits = `WITH RECURSIVE chain(pid, others) AS (
		SELECT p, pg_catalog.pg_blocking_pids(p) FROM pg_catalog.unnest(ARRAY[%s]::integer[]) AS p
		UNION SELECT o, pg_catalog.pg_blocking_pids(o) FROM chain, pg_catalog.unnest(others) AS o)
	SELECT a.pid, CASE WHEN a.wait_event_type = 'Lock' OR a.wait_event = 'SyncRep' THEN a.wait_event
			WHEN pg_catalog.cardinality(chain.others) > 0 THEN 'lock' ELSE '' END, coalesce(b.pid, 0),
	pg_catalog.concat_ws(' ', b.usename, b.application_name), coalesce(b.state, ''),
	coalesce(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() - b.state_change), 0), coalesce(nullif(b.query, '<insufficient privilege>'), '')
	FROM chain JOIN pg_catalog.pg_stat_activity a ON a.pid = chain.pid
	LEFT JOIN LATERAL pg_catalog.unnest(chain.others) AS w(pid) ON true
	LEFT JOIN pg_catalog.pg_stat_activity b ON b.pid = w.pid`

// LockWaits asks pg_stat_activity, which hides the statements of other users from a user without
// the role pg_read_all_stats.
func (dialect) LockWaits(ctx context.Context, asking dialects.Session, waiting []uint64) ([]dialects.LockWait, error) {
	s, ok := asking.(*session)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	pids := make([]string, len(waiting))
	for i, n := range waiting {
		pids[i] = strconv.FormatUint(n, 10)
	}
	r := s.pg.ExecParams(ctx, fmt.Sprintf(lockWaits, strings.Join(pids, ", ")), nil, nil, nil, nil).Read()
	if r.Err != nil {
		return nil, r.Err
	}
	var all []dialects.LockWait
	seen := map[string]bool{}
	for _, row := range r.Rows {
		if slices.Contains(pids, string(row[0])) {
			seen[string(row[0])] = true
		}
		if len(row[1]) > 0 {
			all = append(all, lockWaitOf(row))
		}
	}
	if len(seen) < len(waiting) {
		return all, errUnseen
	}
	return all, nil
}

// errUnseen: the numbers of the sessions are those of a proxy.
var errUnseen = errors.New("the server does not know all of these sessions")

func lockWaitOf(row [][]byte) (w dialects.LockWait) {
	w.Waiting, _ = strconv.ParseUint(string(row[0]), 10, 64)
	w.Blocker, _ = strconv.ParseUint(string(row[2]), 10, 64)
	seconds, _ := strconv.ParseFloat(string(row[5]), 64)
	w.Lock, w.Of, w.State, w.For, w.Statement = string(row[1]), string(row[3]), string(row[4]), time.Duration(seconds*float64(time.Second)), string(row[6])
	return w
}
