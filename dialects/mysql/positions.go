package mysql

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
)

var (
	_ dialects.Positioned = (*session)(nil)
	_ dialects.Positions  = dialect{}
)

// A position is a set of global transaction identifiers, in the words of its server. MariaDB has for each domain the last one,
// with server and sequence number: 0-1-100,1-1-7. MySQL has for each server or group ranges of numbers, and leaves
// none out: 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7. Comments keep from each server what only the
// other one knows.
const (
	asksWritten  = "SELECT /*M!100000 @@global.gtid_binlog_pos *//*!80000 @@global.gtid_executed */"
	asksReplayed = "SELECT /*M!100000 @@global.gtid_slave_pos *//*!80000 @@global.gtid_executed */, @@global.read_only"
	asksLag      = "SHOW REPLICA STATUS"
)

// maxPosition is the longest position, in bytes. A longer one is not known.
const maxPosition = 1500

var errNoPosition = fmt.Errorf("%w: it has no binary log, or no GTIDs (gtid_mode), or more than 1500 bytes of them", dialects.ErrNoPosition)

// Written implements dialects.Positioned.
func (s *session) Written(ctx context.Context) (dialects.Log, error) {
	answer, err := ask(ctx, s.conn, asksWritten)
	if err != nil {
		return dialects.Log{}, err
	}
	position, err := positionIn(answer, 1)
	return dialects.Log{Position: position, Flushed: position}, err
}

// Replayed implements dialects.Positioned.
func (s *session) Replayed(ctx context.Context, lag bool) (dialects.ReplicaState, error) {
	state := dialects.ReplicaState{Lag: -1}
	answer, err := ask(ctx, s.conn, asksReplayed)
	if err != nil {
		return state, err
	}
	if state.Standby = len(answer) == 1 && len(answer[0]) == 2 && answer[0][1].string != "0" && answer[0][1].string != "OFF"; !state.Standby {
		return state, nil
	}
	// Without GTIDs there is no position, and the replica serves only who has written nothing.
	state.Position, _ = positionIn(answer, 2)
	if lag && state.Position == "" {
		state.Lag = s.lag(ctx)
		return state, ctx.Err() // a server that has fallen silent meanwhile
	}
	return state, nil
}

// lag asks with a statement that needs a privilege (MySQL: REPLICATION CLIENT, MariaDB: SLAVE MONITOR). It is negative
// without the privilege, or if the replication stands still. If the connection is lost, the next question finds it so.
func (s *session) lag(ctx context.Context) time.Duration {
	columns, answer, err := askNamed(ctx, s.conn, asksLag)
	if err != nil || len(answer) != 1 {
		return -1
	}
	i := slices.IndexFunc(columns, func(name string) bool { return name == "Seconds_Behind_Source" || name == "Seconds_Behind_Master" })
	if i < 0 || !answer[0][i].valid {
		return -1
	}
	seconds, err := strconv.ParseInt(answer[0][i].string, 10, 32)
	if err != nil {
		return -1
	}
	return time.Duration(seconds) * time.Second
}

// positionIn is the first column of an answer with n columns.
func positionIn(answer [][]text, n int) (string, error) {
	if len(answer) != 1 || len(answer[0]) != n {
		return "", errNoPosition
	}
	position := strings.NewReplacer("\n", "", " ", "").Replace(answer[0][0].string)
	if positionOf(position) == nil {
		return "", errNoPosition
	}
	return position, nil
}

// span is the numbers first to last.
type span struct{ first, last uint64 }

// positionOf reads a position; nil: text is none. The key is a server, group or domain, with MariaDB's server.
func positionOf(text string) map[string][]span {
	if text == "" || len(text) > maxPosition {
		return nil
	}
	found := map[string][]span{}
	for set := range strings.SplitSeq(text, ",") {
		key, spans := spansOf(set)
		if spans == nil || found[key] != nil {
			return nil
		}
		found[key] = spans
	}
	return found
}

// spansOf reads the identifiers of one domain, server or group. MySQL's tags (since 8.3) are not known to it.
func spansOf(set string) (key string, spans []span) {
	if domain, rest, ok := strings.Cut(set, "-"); ok && !strings.Contains(set, ":") { // MariaDB
		server, number, _ := strings.Cut(rest, "-")
		last, err := strconv.ParseUint(number, 10, 64)
		if err != nil || !isNumber(domain) || !isNumber(server) {
			return "", nil
		}
		return domain + "-" + server, []span{{1, last}}
	}
	parts := strings.Split(set, ":")
	if len(parts[0]) != 36 {
		return "", nil
	}
	for _, part := range parts[1:] {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		from, failed := strconv.ParseUint(first, 10, 64)
		to, err := strconv.ParseUint(last, 10, 64)
		if failed != nil || err != nil || from > to || len(spans) > 0 && from <= spans[len(spans)-1].last {
			return "", nil
		}
		spans = append(spans, span{from, to})
	}
	return parts[0], spans
}

func isNumber(text string) bool {
	_, err := strconv.ParseUint(text, 10, 32)
	return err == nil
}

// Reached implements dialects.Positions. A position tells everything of a server, so a later one contains an earlier
// one. MariaDB's sequence numbers go on after a failover, with another server: then
// the positions cannot be compared.
func (dialect) Reached(position, replayed string) bool {
	needs, has := positionOf(position), positionOf(replayed)
	for key, spans := range needs {
		for _, s := range spans {
			if !slices.ContainsFunc(has[key], func(h span) bool { return h.first <= s.first && s.last <= h.last }) {
				return false
			}
		}
	}
	return has != nil && needs != nil
}

// SameDatabase implements dialects.Positions. The servers of one database know each other's identifiers. Of MariaDB's
// the domain is enough: its position has only the last server of a domain.
func (dialect) SameDatabase(a, b string) bool {
	other := positionOf(b)
	for key := range positionOf(a) {
		for of := range other {
			if key == of || len(key) < 36 && len(of) < 36 && domainOf(key) == domainOf(of) {
				return true
			}
		}
	}
	return false
}

func domainOf(key string) string {
	domain, _, _ := strings.Cut(key, "-")
	return domain
}

// Valid implements dialects.Positions.
func (dialect) Valid(text string) bool { return positionOf(text) != nil }
