package postgres

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pooldriver/pooldriver/dialects"
)

// The effects of texts that the release of a savepoint keeps, and the texts that cannot run in a
// transaction. These are patterns, and not a parser: a pattern that is found in a comment or in a
// literal costs a round trip, or a line in the test's log. An effect that no text shows, such as
// set_config in a function, is not found.

var (
	setsLocal   = regexp.MustCompile(`(?i)\bset\s+local\s+(?:(time\s+zone)|(session\s+authorization)|("[^"]+"|[\w$.]+))`)
	setsConfig  = regexp.MustCompile(`(?i)\bset_config\s*\(\s*(?:e?'([^']+)'|\$(\d+))`)
	createsTemp = regexp.MustCompile(`(?is)\bcreate\s+(?:(?:local|global)\s+)?temp(?:orary)?\s+table\s+(?:if\s+not\s+exists\s+)?(?:pg_temp\s*\.\s*)?("[^"]+"|[\w$]+)(.*)`)
	onCommit    = regexp.MustCompile(`(?i)\bon\s+commit\s+(drop|delete\s+rows)`)
	defers      = regexp.MustCompile(`(?i)\bset\s+constraints\b`)
	changes     = regexp.MustCompile(`(?i)\b(?:create|alter|drop)\s`)
	locksInTx   = regexp.MustCompile(`(?i)\bpg_(?:try_)?advisory_xact_lock`)
	notifies    = regexp.MustCompile(`(?i)(?:^|;)\s*notify\s|\bpg_notify\s*\(`)
	asksTime    = regexp.MustCompile(`(?i)\b(?:now\s*\(|transaction_timestamp\s*\(|current_timestamp|current_time|current_date|localtime)`)
)

// The notes of LocalsOf.
const (
	noteLock   = "an advisory lock of a transaction is held until the end of the test, because a savepoint keeps it; a test of such locks needs sandbox.Database"
	noteNotify = "NOTIFY is never sent, because the transaction of the test never commits; a test of notifications needs sandbox.Database"
	noteTime   = "now() and current_timestamp stand still during the test, because all of it is one transaction; clock_timestamp() goes on"
)

func (s *session) LocalsOf(text string, args []driver.NamedValue) (l dialects.SandboxLocals) {
	lower := strings.ToLower(text)
	has := func(word string) bool { return strings.Contains(lower, word) }
	if has("local") || has("set_config") {
		args = slices.DeleteFunc(slices.Clone(args), func(a driver.NamedValue) bool {
			_, ok := a.Value.(pgx.QueryExecMode) // it is for pgx, and no argument of the text
			return ok
		})
		l.Settings = localNames(text, args)
	}
	if has("temp") && has("commit") {
		for _, m := range createsTemp.FindAllStringSubmatch(text, -1) {
			what := onCommit.FindStringSubmatch(m[2])
			switch {
			case what == nil:
			case strings.EqualFold(what[1], "drop"):
				l.Drop = append(l.Drop, "pg_temp."+m[1])
			default:
				l.Empty = append(l.Empty, "pg_temp."+m[1])
			}
		}
	}
	l.Defers = has("constraints") && defers.MatchString(text)
	l.Changes = changes.MatchString(text)
	if has("xact_lock") && locksInTx.MatchString(text) {
		l.Notes = append(l.Notes, noteLock)
	}
	if has("notify") && notifies.MatchString(text) {
		l.Notes = append(l.Notes, noteNotify)
	}
	if asksTime.MatchString(text) {
		l.Notes = append(l.Notes, noteTime)
	}
	return l
}

// localNames are the settings that a text sets until the end of its transaction, or perhaps for its
// session: a name too many does no harm.
func localNames(text string, args []driver.NamedValue) (names []string) {
	for _, m := range setsLocal.FindAllStringSubmatch(text, -1) {
		switch name := strings.ToLower(strings.Trim(m[3], `"`)); {
		case m[1] != "":
			names = append(names, "timezone")
		case m[2] != "":
			names = append(names, "session_authorization")
		case name != "transaction":
			names = append(names, name)
		}
	}
	for _, m := range setsConfig.FindAllStringSubmatch(text, -1) {
		if m[1] != "" {
			names = append(names, strings.ToLower(m[1]))
			continue
		}
		if i, err := strconv.Atoi(m[2]); err == nil && i > 0 && i <= len(args) {
			names = append(names, strings.ToLower(fmt.Sprint(args[i-1].Value)))
		}
	}
	return names
}

var _ dialects.SandboxJudge = dialect{}

// outsideOnly are the statements that PostgreSQL refuses in a transaction.
var outsideOnly = regexp.MustCompile(`(?is)^\s*(?:vacuum\b|(?:create|drop|alter)\s+(?:database|tablespace)\b|(?:create|drop|alter)\s+subscription\b|alter\s+system\b|discard\s+all\b|` +
	`(?:create\s+(?:unique\s+)?|drop\s+)index\s+concurrently\b|reindex\b.*\bconcurrently\b|prepare\s+transaction\b|(?:commit|rollback)\s+prepared\b)`)

// SandboxesAlone: locks of rows are in the way only of tests that write the same rows.
func (dialect) SandboxesAlone() bool { return false }

// Refuses knows the statements that run only outside of transactions.
func (dialect) Refuses(text string) string {
	if m := outsideOnly.FindString(text); m != "" {
		return "PostgreSQL runs " + strings.Join(strings.Fields(strings.ToUpper(m)), " ") + " only outside of a transaction, and a sandbox is one"
	}
	return ""
}

var setsIsolation = regexp.MustCompile(`(?is)^\s*set\s+transaction\s+isolation\s+level\s+[a-z]+(?:\s+[a-z]+)?\s*;?\s*$`)

// Ignores knows SET TRANSACTION ISOLATION LEVEL, which is an error after the first query.
func (dialect) Ignores(text string) bool { return setsIsolation.MatchString(text) }

// ReadsOnly is never asked: SET TRANSACTION READ ONLY lasts as long as a savepoint.
func (dialect) ReadsOnly(string) error { return nil }

// LeavesNothing is never asked: a session is cleaned in a transaction.
func (dialect) LeavesNothing(error) bool { return false }

var _ dialects.LockExplainer = dialect{}

var blockedBy = regexp.MustCompile(`\b(\d+)[^\d]*$`)

// LockLost knows a deadlock (40P01), whose detail names the sessions, and lock_timeout (55P03). In
// each line of the detail the last number is that of the session in the way.
func (dialect) LockLost(err error) (lost bool, blockers []uint64) {
	var e *pgconn.PgError
	if !errors.As(err, &e) || e.Code != "40P01" && e.Code != "55P03" {
		return false, nil
	}
	for line := range strings.Lines(e.Detail) {
		if m := blockedBy.FindStringSubmatch(line); m != nil {
			if n, err := strconv.ParseUint(m[1], 10, 64); err == nil {
				blockers = append(blockers, n)
			}
		}
	}
	return true, blockers
}
