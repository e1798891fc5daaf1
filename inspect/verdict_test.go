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
	for _, tc := range []struct {
		name     string
		pool     Pool
		level    string
		sentence string
	}{
		{"nobody waits", Pool{Stats: stats(3, 10, 0)}, "calm",
			"The pool is not the problem: 3 of 10 connections are in use, and nobody waits."},
		{"held for nothing", Pool{Stats: stats(2, 2, 3), Holders: []pooldriver.Holder{idle, idle}}, "bad",
			"3 statements wait. 2 of 2 connections are in use, and 2 of them run no statement: look at the first rows below."},
		{"a slow database", Pool{Stats: stats(2, 2, 1), Holders: []pooldriver.Holder{running, idle}}, "busy",
			"1 statement waits. 2 of 2 connections are in use, and most of them run statements: the database is slow, or the pool is small."},
		{"a full server", Pool{Stats: full(2, 3), Holders: []pooldriver.Holder{running, running}}, "bad",
			"3 statements wait. The server is full: it allows us 2 of 10 connections, and 2 are in use: who else has connections to it?"},
		{"a full server and nobody waits", Pool{Stats: full(2, 0)}, "busy",
			"The server is full: it allows us 2 of 10 connections, and 2 are in use. Nobody waits."},
		{"the first connection", Pool{Stats: pooldriver.Stats{Pool: pool.Stats{Max: 4, Count: 1, Creating: 1, Waiting: 2}}}, "bad",
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
