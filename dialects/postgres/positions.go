package postgres

import (
	"context"
	"errors"
	"strconv"
	"strings"

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

// asksWritten gives the place where the next record of the log will be: a commit is visible before it is flushed. The name of a
// file of the log begins with the timeline on which the server writes now; the control file has an older one for a while after a
// promotion.
const asksWritten = "SELECT pg_catalog.pg_walfile_name(l), l, f, f < l AND pg_catalog.current_setting('synchronous_commit') = 'off'" +
	" FROM pg_catalog.pg_current_wal_flush_lsn() f, pg_catalog.pg_current_wal_insert_lsn() l"

// asksCluster has the server read a file, so a session asks once.
const asksCluster = "SELECT system_identifier::text FROM pg_catalog.pg_control_system()"

// asksReplayed gives a timeline that the server has reached. It may be on a later one, which only its restartpoints tell
// every user: then the positions cannot be compared, and the primary serves.
const asksReplayed = "SELECT s.system_identifier::text," +
	" greatest(c.timeline_id, r.min_recovery_end_timeline, (SELECT received_tli FROM pg_catalog.pg_stat_get_wal_receiver()))::text," +
	" pg_catalog.pg_last_wal_replay_lsn()::text, pg_catalog.pg_is_in_recovery()::text" +
	" FROM pg_catalog.pg_control_system() s, pg_catalog.pg_control_checkpoint() c, pg_catalog.pg_control_recovery() r"

// Written implements dialects.Positioned.
func (s *session) Written(ctx context.Context) (log dialects.Log, err error) {
	if s.cluster == "" {
		row, err := s.row(ctx, asksCluster, 1, dialects.ErrNoPosition)
		if err != nil {
			return log, err
		}
		s.cluster = row[0]
	}
	row, err := s.row(ctx, asksWritten, 4, dialects.ErrNoPosition)
	if err != nil {
		return log, err
	}
	if len(row[0]) < 8 {
		return log, dialects.ErrNoPosition
	}
	timeline, err := strconv.ParseUint(row[0][:8], 16, 32)
	if err != nil {
		return log, dialects.ErrNoPosition
	}
	before := s.cluster + "/" + strconv.FormatUint(timeline, 10) + "/"
	log = dialects.Log{Position: before + row[1], Flushed: before + row[2], Lazy: row[3] == "t"}
	return log, valid(log.Position, log.Flushed)
}

// Replayed implements dialects.Positioned.
func (s *session) Replayed(ctx context.Context, _ bool) (dialects.ReplicaState, error) {
	state := dialects.ReplicaState{Lag: -1}
	row, err := s.row(ctx, asksReplayed, 4, dialects.ErrNoPosition)
	if err != nil {
		return state, err
	}
	state.Standby = row[3] == "true"
	// A server that does not tell how far it has come serves only who has written nothing.
	if position := strings.Join(row[:3], "/"); state.Standby && valid(position) == nil {
		state.Position = position
	}
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

func valid(texts ...string) error {
	for _, text := range texts {
		if _, ok := positionOf(text); !ok {
			return dialects.ErrNoPosition
		}
	}
	return nil
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
