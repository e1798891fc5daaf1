package inspect

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/pool"
)

func TestTheVerdictSaysWhetherThePoolIsTheProblem(t *testing.T) {
	idle, running := pooldriver.Holder{Idle: time.Second}, pooldriver.Holder{Running: true}
	runningFor := func(conn uint64) pooldriver.Holder { return pooldriver.Holder{Conn: conn, Running: true} }
	rows := pooldriver.Holder{Idle: 3 * time.Second, Pin: pooldriver.PinRows, Label: "GET /list", TakenAt: []pooldriver.Frame{{Func: "shop/main.list", File: "/src/list.go", Line: 12}}}
	inTx := pooldriver.Holder{Idle: 4 * time.Second, Pin: pooldriver.PinTransaction, Label: "POST /orders"}
	raw := pooldriver.Holder{Conn: 9, Running: true, Pin: pooldriver.PinRaw}
	seconds := func(n ...time.Duration) map[uint64]time.Duration {
		all := map[uint64]time.Duration{}
		for i, d := range n {
			all[uint64(i+1)] = d * time.Second
		}
		return all
	}
	for _, tc := range []struct {
		name     string
		pool     Pool
		level    string
		sentence string
	}{
		{"nobody waits", Pool{Stats: stats(3, 10, 0)}, "calm",
			"The pool is not the problem: 3 of 10 connections are in use, and nobody waits."},
		{"held for nothing", Pool{Stats: stats(2, 2, 3), Holders: []pooldriver.Holder{idle, idle}}, "bad",
			"3 statements wait. 2 of 2 connections are in use, and 2 of them run no statement: held, for longest, for 1s."},
		{"a slow database", Pool{Stats: stats(2, 2, 1), Holders: []pooldriver.Holder{runningFor(1), runningFor(2)}, Window: Window{Running: seconds(3, 2)}}, "busy",
			"1 statement waits. 2 of 2 connections are in use, and 2 of their statements have been running for more than 1s: the database is slow."},
		{"a small pool", Pool{Stats: stats(2, 2, 1), Holders: []pooldriver.Holder{running, running}}, "busy",
			"1 statement waits. 2 of 2 connections are in use, and their statements are short: the pool is small, if the database has room for more."},
		{"forgotten rows", Pool{Stats: stats(2, 2, 0), Holders: []pooldriver.Holder{rows, rows}}, "bad",
			"2 of 2 connections are in use, and none of them runs a statement: rows are open on each of them, and nobody reads them, for longest by GET /list at main.list (list.go:12), for 3s. The next statement waits."},
		{"forgotten rows beside a listener", Pool{Stats: stats(2, 2, 0), Holders: []pooldriver.Holder{rows, raw}}, "bad",
			"2 of 2 connections are in use (1 by functions of Raw), and none of them runs a statement: rows are open on each of them, and nobody reads them, for longest by GET /list at main.list (list.go:12), for 3s. The next statement waits."},
		{"a listener", Pool{Stats: stats(2, 4, 0), Holders: []pooldriver.Holder{running, raw}, Window: Window{Still: time.Hour, Running: map[uint64]time.Duration{9: time.Hour}}}, "calm",
			"The pool is not the problem: 2 of 4 connections are in use (1 by functions of Raw), and nobody waits."},
		{"a lock", Pool{Stats: stats(4, 4, 2), Holders: []pooldriver.Holder{inTx, runningFor(1), runningFor(2), runningFor(3)}, Window: Window{Still: 3 * time.Second, Running: seconds(3, 2, 0)}}, "bad",
			"2 statements have been running for 2s or longer, while a transaction by POST /orders has run nothing for 4s: it may hold the locks that they wait for; 2 statements wait."},
		{"a black hole", Pool{Stats: stats(2, 2, 3), Holders: []pooldriver.Holder{runningFor(1), runningFor(2)}, Window: Window{Still: 3 * time.Second, Running: seconds(3, 3)}}, "bad",
			"Nothing has moved for 3s: 2 statements run, and none has ended; 3 statements wait. The database or the network does not answer, or each of them waits for a lock that others have."},
		{"one long statement", Pool{Stats: stats(1, 2, 0), Holders: []pooldriver.Holder{runningFor(1)}, Window: Window{Still: time.Minute, Running: seconds(60)}}, "calm",
			"The pool is not the problem: 1 of 2 connections are in use, and nobody waits."},
		{"failures of late", Pool{Stats: stats(1, 2, 0), Window: Window{Failed: map[pooldriver.AcquireFailure]uint64{pooldriver.AcquireTimeout: 3, pooldriver.AcquireCancelled: 9}}}, "busy",
			"Nobody waits now, but in the last 10s statements got no connection: timeout 3. 1 of 2 connections are in use."},
		{"rows in memory", Pool{Stats: stats(0, 2, 0), BufferedRows: []pooldriver.BufferedRows{{Since: time.Now().Add(-time.Minute)}, {Since: time.Now()}}}, "busy",
			"The rows of 1 query are open in memory, because others needed their connection, the oldest for 1m0s: look whether somebody forgets to close them. 0 of 2 connections are in use, and nobody waits."},
		{"a full server", Pool{Stats: full(2, 3), Holders: []pooldriver.Holder{running, running}}, "bad",
			"3 statements wait. The server is full: it allows us 2 of 10 connections, and 2 are in use: who else has connections to it?"},
		{"a full server and nobody waits", Pool{Stats: full(2, 0)}, "busy",
			"The server is full: it allows us 2 of 10 connections, and 2 are in use. Nobody waits."},
		{"the first connection", Pool{Stats: pooldriver.Stats{Pool: pool.Stats{Max: 4, Count: 1, Creating: 1, Waiting: 2}}}, "calm",
			"2 statements wait for a first connection, which is being opened."},
		{"nobody is let in", Pool{Stats: failing(0, 0, 340, 12*time.Second)}, "bad",
			"The database cannot be reached, or refuses us: the last 340 dials have failed, for 12s: no route. No connection is open."},
		{"nobody is let in, and statements wait for a dial", Pool{Stats: failing(1, 3, 1, time.Second)}, "bad",
			"The database cannot be reached, or refuses us: the last dial has failed, 1s ago: no route. No connection is open."},
		{"dials fail, and others are open", Pool{Stats: failing(-3, 0, 2, time.Second)}, "busy",
			"3 of 10 connections are in use, and nobody waits, but the last 2 dials have failed, for 1s: no route."},
		{"the breaker", Pool{Stats: pooldriver.Stats{Pool: pool.Stats{Max: 4, State: pool.Inactive}}}, "bad",
			"The circuit breaker is open: statements fail at once, because connecting failed."},
		{"waits of late", Pool{Stats: stats(1, 4, 0), Recent: Recent{Acquired: 7, WaitP99: 250 * time.Millisecond}}, "busy",
			"Nobody waits now, but one statement of 100 has waited up to 250ms. 1 of 4 connections are in use."},
		{"short waits", Pool{Stats: stats(1, 4, 0), Recent: Recent{Acquired: 7, WaitP99: 50 * time.Millisecond}}, "calm",
			"The pool is not the problem: 1 of 4 connections are in use, and nobody waits."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, Verdict{tc.level, tc.sentence}, Judge(tc.pool))
		})
	}
}

// failing are those of a pool of 10 whose dials fail. creating below 0: so many are lent.
func failing(creating, waiting, failed int, lasts time.Duration) pooldriver.Stats {
	s := stats(max(0, -creating), 10, waiting)
	s.Pool.Creating = max(0, creating)
	s.Pool.Count = max(creating, -creating)
	s.DialsFailing = pooldriver.DialsFailing{Failed: failed, For: lasts, Ago: time.Second, Error: "no route"}
	return s
}

// full are those of a pool of 10 on a server that allows it so many.
func full(allowed, waiting int) pooldriver.Stats {
	s := stats(allowed, 10, waiting)
	s.Pool.Allowed = allowed
	return s
}
