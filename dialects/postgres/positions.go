package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
)

var (
	_ dialects.Positioned = (*session)(nil)
	_ dialects.Positions  = dialect{}
)

// A position is the cluster's system identifier, the timeline, and a place in the log of that timeline (LSN), as in
// 7345678901234567890/1/0/16B3748.
type position struct {
	cluster, timeline, lsn uint64
}

// asksWritten gives the place where the next record of the log will be. The name of a file of the log begins with
// the timeline on which the server writes now; the control file has an older one for a while after a promotion.
const asksWritten = "SELECT pg_catalog.pg_walfile_name(l), l FROM pg_catalog.pg_current_wal_insert_lsn() l"

// asksCluster has the server read a file, so a session asks once.
const asksCluster = "SELECT system_identifier::text FROM pg_catalog.pg_control_system()"

// asksReplayed gives a timeline that the server has reached. It may be on a later one, which only its restartpoints tell
// every user: then the positions cannot be compared, and the primary serves. A standby that has nothing to replay is
// not late, if it is connected to its primary.
const asksReplayed = "SELECT s.system_identifier::text," +
	" greatest(c.timeline_id, r.min_recovery_end_timeline, (SELECT received_tli FROM pg_catalog.pg_stat_get_wal_receiver()))::text," +
	" pg_catalog.pg_last_wal_replay_lsn()::text, pg_catalog.pg_is_in_recovery()::text," +
	" CASE WHEN pg_catalog.pg_last_wal_receive_lsn() = pg_catalog.pg_last_wal_replay_lsn()" +
	" AND EXISTS (SELECT FROM pg_catalog.pg_stat_get_wal_receiver() WHERE pid IS NOT NULL) THEN '0'" +
	" ELSE (1000 * extract(epoch FROM pg_catalog.clock_timestamp() - pg_catalog.pg_last_xact_replay_timestamp()))::bigint::text END" +
	" FROM pg_catalog.pg_control_system() s, pg_catalog.pg_control_checkpoint() c, pg_catalog.pg_control_recovery() r"

var errNoPosition = errors.New("the server does not tell its position in the log")

// Written implements dialects.Positioned.
func (s *session) Written(ctx context.Context) (string, error) {
	if s.cluster == "" {
		row, err := s.row(ctx, asksCluster, 1, errNoPosition)
		if err != nil {
			return "", err
		}
		s.cluster = row[0]
	}
	row, err := s.row(ctx, asksWritten, 2, errNoPosition)
	if err != nil {
		return "", err
	}
	if len(row[0]) < 8 {
		return "", errNoPosition
	}
	timeline, err := strconv.ParseUint(row[0][:8], 16, 32)
	if err != nil {
		return "", errNoPosition
	}
	return valid(fmt.Sprintf("%s/%d/%s", s.cluster, timeline, row[1]))
}

// Replayed implements dialects.Positioned.
func (s *session) Replayed(ctx context.Context, _ bool) (dialects.ReplicaState, error) {
	state := dialects.ReplicaState{Lag: -1}
	row, err := s.row(ctx, asksReplayed, 5, errNoPosition)
	if err != nil {
		return state, err
	}
	if state.Standby = row[3] == "true"; !state.Standby {
		return state, nil
	}
	if ms, err := strconv.ParseInt(row[4], 10, 64); err == nil {
		state.Lag = time.Duration(ms) * time.Millisecond
	}
	// A server that does not tell how far it has come serves only who has written nothing.
	state.Position, _ = valid(row[0] + "/" + row[1] + "/" + row[2])
	return state, nil
}

// row returns the n columns of a row as text; NULL is the empty text. If the answer is another one, the error is incomplete.
func (s *session) row(ctx context.Context, query string, n int, incomplete error) ([]string, error) {
	results, err := s.pg.Exec(ctx, query).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) != n {
		return nil, incomplete
	}
	row := make([]string, n)
	for i, v := range results[0].Rows[0] {
		row[i] = string(v)
	}
	return row, nil
}

func valid(text string) (string, error) {
	if _, ok := positionOf(text); !ok {
		return "", errNoPosition
	}
	return text, nil
}

func positionOf(text string) (p position, ok bool) {
	parts := strings.Split(text, "/")
	if len(parts) != 4 {
		return p, false
	}
	var errs [4]error
	var high, low uint64
	p.cluster, errs[0] = strconv.ParseUint(parts[0], 10, 64)
	p.timeline, errs[1] = strconv.ParseUint(parts[1], 10, 32)
	high, errs[2] = strconv.ParseUint(parts[2], 16, 32)
	low, errs[3] = strconv.ParseUint(parts[3], 16, 32)
	p.lsn = high<<32 | low
	return p, errors.Join(errs[:]...) == nil
}

// Reached implements dialects.Positions.
func (dialect) Reached(written, replayed string) bool {
	needs, valid := positionOf(written)
	has, ok := positionOf(replayed)
	return ok && valid && has.cluster == needs.cluster && has.timeline == needs.timeline && has.lsn >= needs.lsn
}

// SameDatabase implements dialects.Positions.
func (dialect) SameDatabase(a, b string) bool {
	one, valid := positionOf(a)
	other, ok := positionOf(b)
	return ok && valid && one.cluster == other.cluster
}

// Valid implements dialects.Positions.
func (dialect) Valid(text string) bool {
	_, ok := positionOf(text)
	return ok
}
