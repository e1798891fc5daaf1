package inspect

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// TestWhatFailsIsSaid: a disk that is full, at once; other errors if they are many; what may be the program's own business, such as
// constraints, if one statement of four fails by it; and never that callers go away.
func TestWhatFailsIsSaid(t *testing.T) {
	t.Parallel()
	judged := func(ended uint64, errors map[string]uint64) Verdict {
		v, _ := Judge(Pool{Stats: stats(1, 4, 0), Holders: []pooldriver.Holder{{Running: true}}, Window: Window{Ended: ended, Errors: errors}})
		return v
	}
	require.Equal(t, "calm", judged(1000, map[string]uint64{"ended": 900}).Level)
	for _, own := range []string{"22", "23", "40", "P0"} {
		require.Equal(t, "calm", judged(1000, map[string]uint64{own: 249}).Level)
		require.Equal(t, "statements fail", judged(1000, map[string]uint64{own: 250, "ended": 900}).Rule)
	}
	require.Contains(t, judged(1000, map[string]uint64{"P0": 200, "0A": 200, "23": 300}).Sentence, "failed: 300 of class 23 (a constraint, or no partition for a row), 200 of class 0A, 200 of class P0. ")
	require.Equal(t, "calm", judged(1000, map[string]uint64{"53": 2}).Level)
	require.Equal(t, "calm", judged(1000, map[string]uint64{"42": 49}).Level)
	require.Equal(t, "calm", judged(1, map[string]uint64{"42": 4}).Level)
	full := judged(1000, map[string]uint64{"53": 3, "42": 4})
	require.Equal(t, Verdict{"statements fail", "bad",
		"In the last 10s statements failed: 4 of class 42 (a wrong text, or a right is missing), 3 of class 53 (no room: a disk, the memory or a limit is full). 1 of 4 connections are in use, and nobody waits.",
		"Look at the errors that the program gets, and at the server's log, its disk and its memory."}, full)
	many := judged(1000, map[string]uint64{"25": 50})
	require.Equal(t, "busy statements fail", many.Level+" "+many.Rule)
	require.Contains(t, many.Sentence, "50 of class 25 (the server is read-only")
	require.Equal(t, "busy", judged(1000, map[string]uint64{"42": 499}).Level)
	require.Equal(t, "bad", judged(1000, map[string]uint64{"42": 500}).Level)
	require.Equal(t, "busy", judged(1000, map[string]uint64{"23": 1000}).Level, "it may be the program's own business")
}

// locks is a pool with these holders whose server has said who waits for whom.
func locks(now time.Time, waits ...pooldriver.LockWait) Pool {
	p := Pool{At: now, Stats: stats(2, 4, 0), Asked: Asked{Asked: true, Answered: true, Locks: waits}}
	for i := range 2 {
		p.Holders = append(p.Holders, pooldriver.Holder{Conn: uint64(i + 1), Running: true, RunningFor: time.Duration(3+i) * time.Second, Since: now.Add(-time.Minute), Label: "POST /orders", Statement: "UPDATE stock"})
	}
	return p
}

// TestTheEndOfAChainOfOthersIsToBlame: and what is between is named.
func TestTheEndOfAChainOfOthersIsToBlame(t *testing.T) {
	t.Parallel()
	reader := pooldriver.LockWait{Process: 65, Lock: "relation", BlockerProcess: 64, BlockerUser: "alice psql", BlockerState: "idle in transaction", BlockerFor: time.Minute, BlockerStatement: "SELECT n FROM stock"}
	behind := func(conn uint64) pooldriver.LockWait {
		return pooldriver.LockWait{Conn: conn, Process: 100 + conn, Lock: "relation", BlockerProcess: 65, BlockerStatement: "ALTER TABLE stock"}
	}
	for _, order := range [][]pooldriver.LockWait{{behind(1), behind(2), reader}, {reader, behind(1), behind(2)}} {
		v, _ := Judge(locks(time.Now(), order...))
		require.Equal(t, "2 statements wait for a lock (relation), for 3s: POST /orders: UPDATE stock. In the way is a session that is not of this pool: process 64 of alice psql, "+
			"idle in transaction for 1m0s, last: SELECT n FROM stock. Behind it waits process 65: ALTER TABLE stock, and behind that ours.", v.Sentence)
	}
	v, _ := Judge(locks(time.Now(), behind(1), behind(2)))
	require.Contains(t, v.Sentence, "not of this pool: process 65, last: ALTER TABLE stock.", "it does not wait")
}

// TestAnAnswerIsKeptForAMomentInWhichNobodyCanBeAsked: else a lock comes and goes with each look at a pool that is nearly full.
func TestAnAnswerIsKeptForAMomentInWhichNobodyCanBeAsked(t *testing.T) {
	t.Parallel()
	c := pooldriver.Wrap(fakedb.NullConnector{}, func(c *pooldriver.Config) { c.MaxConns = 1 })
	db := sql.OpenDB(c)
	t.Cleanup(func() { _ = db.Close() })
	tx, err := db.Begin()
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	now := time.Now()
	p := locks(now, pooldriver.LockWait{Conn: 1})
	w := &watched{connector: c, asked: p.Asked, at: now.Add(-time.Second)}
	require.Equal(t, p.Asked, w.askLocked(p))
	p.At = now.Add(2 * time.Second)
	require.Equal(t, Asked{}, w.askLocked(p))
}

func TestACommitThatWaitsForItsStandbyIsSaid(t *testing.T) {
	t.Parallel()
	v, _ := Judge(locks(time.Now(), pooldriver.LockWait{Conn: 2, Lock: "SyncRep"}, pooldriver.LockWait{Conn: 1, Lock: "transactionid", BlockerConn: 2, BlockerProcess: 102}))
	require.Equal(t, Verdict{"commit hangs", "bad", "1 COMMIT waits to be confirmed by a synchronous standby, for 4s: POST /orders: UPDATE stock.",
		"Look whether a standby is missing (pg_stat_replication, synchronous_standby_names)."}, v)
}

// TestWhatIsSlowBesideOthersIsNotTheWholeDatabase: others have ended lately, as quickly as usual.
func TestWhatIsSlowBesideOthersIsNotTheWholeDatabase(t *testing.T) {
	t.Parallel()
	now := time.Now()
	slow := pooldriver.Holder{Conn: 1, Running: true, RunningFor: 3 * time.Second, Usual: time.Millisecond, Statement: "INSERT order", Since: now}
	for _, tc := range []struct {
		lately, ago time.Duration
		begins      string
	}{
		{time.Millisecond, 100 * time.Millisecond, "Some statements are slower than usual, and others are not"},
		{time.Millisecond, 2 * time.Second, "The database, or the way to it, is slower than usual"},
		{time.Second, 100 * time.Millisecond, "The database, or the way to it, is slower than usual"},
	} {
		v, _ := Judge(Pool{At: now, Stats: stats(1, 4, 0), Holders: []pooldriver.Holder{slow}, Window: Window{Known: window},
			Statements: []pooldriver.StatementTime{{Statement: "SELECT n", Runs: 100, Usual: time.Millisecond, Lately: tc.lately, Last: now.Add(-tc.ago)}}})
		require.True(t, strings.HasPrefix(v.Sentence, tc.begins), v.Sentence)
	}
}

// TestALongErrorKeepsItsReason: it is at the end.
func TestALongErrorKeepsItsReason(t *testing.T) {
	t.Parallel()
	long := "pooldriver: connecting to db: " + strings.Repeat("ä", 300) + ": x509: certificate has expired"
	cut := clipError(long)
	require.LessOrEqual(t, len(cut), maxError+len("…"))
	require.True(t, strings.HasPrefix(cut, "pooldriver: connecting to db: ää"), cut)
	require.True(t, strings.HasSuffix(cut, ": x509: certificate has expired"), cut)
	require.Equal(t, "short", clipError("short"))
	s := outage(0, 0, 3, time.Second)
	s.DialsFailing.Cause, s.DialsFailing.Error = pooldriver.DialCertificate, long
	v, _ := Judge(Pool{Stats: s})
	require.Regexp(t, `^The server's certificate is not accepted: the last 3 dials have failed, for 1s: .* certificate has expired\. No connection is open\.$`, v.Sentence)
}
