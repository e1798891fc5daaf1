package inspect

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/pool"
)

func overloaded(s pooldriver.Stats) pooldriver.Stats {
	s.Pool.Overloaded = true
	return s
}

func TestTheVerdictSaysWhetherThePoolIsTheProblem(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	idle, running := pooldriver.Holder{Idle: time.Second, Since: now}, pooldriver.Holder{Running: true, Since: now}
	usual := pooldriver.Holder{Running: true, Since: now, Statement: "SELECT cart", Usual: 2500 * time.Microsecond}
	idleTx := pooldriver.Holder{Idle: 9 * time.Second, Since: ago(9 * time.Second), Pin: pooldriver.PinTransaction}
	// runs is a holder whose statement has been running since it took its connection.
	runs := func(conn uint64, seconds time.Duration, label, text string) pooldriver.Holder {
		d := seconds * time.Second
		return pooldriver.Holder{Conn: conn, Running: true, RunningFor: d, Since: ago(d), Label: label, Statement: text, Pin: pooldriver.PinStatement}
	}
	// leaks is a holder whose transaction runs nothing.
	leaks := func(conn uint64, seconds time.Duration) pooldriver.Holder {
		d := seconds * time.Second
		return pooldriver.Holder{Conn: conn, Idle: d, IdlePinned: d, Since: ago(d), Pin: pooldriver.PinTransaction, Label: "POST /orders", Statement: "UPDATE stock"}
	}
	rows := pooldriver.Holder{Idle: 3 * time.Second, Since: ago(3 * time.Second), Pin: pooldriver.PinRows, Label: "GET /list", TakenAt: []pooldriver.Frame{{Func: "shop/main.list", File: "/src/list.go", Line: 12}}}
	reads := pooldriver.Holder{Conn: 3, Idle: 20 * time.Millisecond, IdlePinned: 9 * time.Second, Since: ago(10 * time.Second), Pin: pooldriver.PinRows, Label: "GET /export"}
	raw := pooldriver.Holder{Conn: 9, Running: true, RunningFor: time.Hour, Since: ago(time.Hour), Pin: pooldriver.PinRaw}
	waits := func(label string, since time.Duration, holds ...uint64) pooldriver.Waiter {
		return pooldriver.Waiter{Label: label, Since: ago(since), Holds: holds}
	}
	fourReports := []pooldriver.Holder{runs(1, 5, "GET /report", "SELECT sales"), runs(2, 5, "GET /report", "SELECT sales"), runs(3, 4, "GET /report", "SELECT sales"), runs(4, 4, "GET /report", "SELECT sales")}
	known := Window{Known: window, MeanHold: 5 * time.Millisecond}
	answered := Asked{Asked: true, Answered: true}
	lock := pooldriver.LockWait{Conn: 2, Lock: "row", BlockerConn: 1, BlockerProcess: 77}
	refused := func(s pooldriver.Stats) pooldriver.Stats {
		s.DialsFailing.Cause, s.DialsFailing.Error = pooldriver.DialLoginRefused, "password authentication failed"
		return s
	}
	arrivals := func(lately, usually float64, lasts time.Duration) pooldriver.LabelArrivals {
		a := pooldriver.LabelArrivals{Label: "GET /pay", Lately: lately, Usual: usually}
		if lasts > 0 {
			a.Since = ago(lasts)
		}
		return a
	}
	storm := func(a pooldriver.LabelArrivals) Pool {
		p := Pool{Stats: stats(2, 2, 3), Holders: []pooldriver.Holder{usual, usual}, Window: known,
			Waiters: []pooldriver.Waiter{waits("GET /pay", time.Second), waits("GET /pay", time.Second), waits("", time.Second)}}
		p.Stats.Arrivals = []pooldriver.LabelArrivals{a}
		p.Holders[0].Label, p.Window.Failed = "GET /pay", map[pooldriver.AcquireFailure]uint64{pooldriver.AcquireTimeout: 3}
		p.Labels = append(labelsOf(p), LabelUse{Label: "GET /list", Holds: 1})
		return p
	}
	dialsLongAgo := Pool{Stats: outage(-3, 0, 2, 3*time.Minute)}
	dialsLongAgo.Stats.DialsFailing.Ago = 2 * time.Minute
	copies := raw
	copies.Label = "COPY /export"
	opens := Pool{Stats: stats(1, 4, 1), Holders: []pooldriver.Holder{usual}, Window: Window{Known: window, Lost: 7, Errors: map[string]uint64{"57": 7}}}
	opens.Stats.Pool.Count, opens.Stats.Pool.Creating = 3, 2
	replicaDied := storm(arrivals(400, 20, 40*time.Second))
	replicaDied.Stats.Replica.Pools = []pooldriver.ReplicaPool{{Host: "r1", State: pooldriver.ReplicaDead, Since: ago(3 * time.Second)}}
	replicaDied.Window.Reads = map[pooldriver.ReplicaRead]uint64{pooldriver.ReplicaDead: 100}
	for _, tc := range []struct {
		name     string
		pool     Pool
		level    string
		sentence string
	}{
		{"nobody waits", Pool{Stats: stats(3, 10, 0)}, "calm",
			"The pool is not the problem: 3 of 10 connections are in use, and nobody waits."},
		{"held for nothing", Pool{Stats: stats(2, 2, 3), Holders: []pooldriver.Holder{idle, idle}}, "bad",
			"3 statements wait. 2 of 2 connections are in use, and 2 of them run no statement: held, for longest, for 1s; one statement has 2 of 2 connections, for 0s."},
		{"leaked transactions", Pool{Stats: stats(2, 2, 3), Holders: []pooldriver.Holder{leaks(1, 4), leaks(2, 3)}}, "bad",
			"3 statements wait. 2 of 2 connections are in use, and 2 of them run no statement: transactions are open, for longest by POST /orders, for 4s; POST /orders has 2 of 2 connections, for 4s: UPDATE stock."},
		{"a slow report, and the pool is full", Pool{Stats: stats(4, 4, 1), Holders: fourReports}, "bad",
			"1 statement waits. 4 of 4 connections are in use. GET /report has 4 of 4 connections, for 5s: SELECT sales. It is slow, or waits for a lock, or the database does not answer: no connection is left to ask the server."},
		{"slow statements", Pool{Stats: stats(4, 4, 1), Holders: fourReports, Asked: answered}, "busy",
			"1 statement waits. 4 of 4 connections are in use, and their statements are slow. GET /report has 4 of 4 connections, for 5s: SELECT sales."},
		{"slow statements that have just begun", Pool{Stats: stats(2, 2, 1), Holders: []pooldriver.Holder{runs(1, 0, "GET /report", ""), runs(2, 0, "GET /report", "")}, Window: Window{Known: window, MeanHold: 3 * time.Second}}, "busy",
			"1 statement waits. 2 of 2 connections are in use, and their statements are slow. GET /report has 2 of 2 connections, for 0s."},
		{"a small pool", Pool{Stats: stats(2, 2, 1), Holders: []pooldriver.Holder{usual, running}, Window: known}, "busy",
			"1 statement waits. 2 of 2 connections are in use, and their statements take no longer than before: the pool is small."},
		{"a small pool, and one label comes more often than usual", storm(arrivals(400, 20, 40*time.Second)), "bad",
			"3 statements wait. GET /pay comes 400 times a second, and usually 20, for 40s: it has 1 of 2 connections, and 2 of those who wait. In the last 10s statements got no connection: timeout 3."},
		{"one label that never came before", storm(arrivals(400, 0.2, 3*time.Second)), "bad",
			"3 statements wait. GET /pay comes 400 times a second, and usually none, for 3s: it has 1 of 2 connections, and 2 of those who wait. In the last 10s statements got no connection: timeout 3."},
		{"a small pool, and a label that comes as often as before", storm(arrivals(20, 20, 0)), "busy",
			"3 statements wait. 2 of 2 connections are in use, and their statements take no longer than before: the pool is small. In the last 10s statements got no connection: timeout 3."},
		{"a small pool, and a label that comes more often, but has little of the pool", storm(pooldriver.LabelArrivals{Label: "GET /list", Lately: 9, Usual: 1, Since: ago(time.Minute)}), "busy",
			"3 statements wait. 2 of 2 connections are in use, and their statements take no longer than before: the pool is small. In the last 10s statements got no connection: timeout 3."},
		{"a program that has never run without waits", Pool{Stats: stats(2, 2, 1), Holders: []pooldriver.Holder{running, running}, Window: known}, "busy",
			"1 statement waits, for 0s at most, and why is not known: it is not known how long these statements take when nobody waits. 2 of 2 connections are in use."},
		{"a new text is slow, and the others are as before", Pool{Stats: stats(2, 2, 3), Holders: []pooldriver.Holder{runs(1, 0, "GET /report", "SELECT sales"), runs(2, 0, "GET /report", "SELECT sales")}, Window: known, Statements: []pooldriver.StatementTime{{Statement: "SELECT cart", Runs: 100, Usual: time.Millisecond, Lately: time.Millisecond}}}, "busy",
			"3 statements wait, for 0s at most, and why is not known: it is not known how long these statements take when nobody waits. 2 of 2 connections are in use. GET /report has 2 of 2 connections, for 0s: SELECT sales."},
		{"the same, and one statement of the others has to wait for it", Pool{Stats: stats(3, 3, 3), Holders: []pooldriver.Holder{runs(1, 0, "GET /report", "SELECT sales"), runs(2, 0, "GET /report", "SELECT sales"), {Conn: 3, Running: true, RunningFor: 556 * time.Millisecond, Since: now, Statement: "UPDATE stock", Usual: 50 * time.Millisecond}}, Window: known, Statements: []pooldriver.StatementTime{{Statement: "SELECT cart", Runs: 100, Usual: time.Millisecond, Lately: time.Millisecond, Last: now}}}, "busy",
			"3 statements wait, for 0s at most, and why is not known: it is not known how long these statements take when nobody waits. 3 of 3 connections are in use. GET /report has 2 of 3 connections, for 0s: SELECT sales."},
		{"a COMMIT that hangs", Pool{Stats: stats(1, 4, 0), Holders: []pooldriver.Holder{runs(1, 3, "POST /orders", "COMMIT")}}, "bad",
			"1 COMMIT has been running for 3s by POST /orders, which is not usual."},
		{"functions of Raw have all", Pool{Stats: stats(1, 1, 2), Holders: []pooldriver.Holder{copies}}, "bad",
			"2 statements wait. 1 of 1 connections are in use (1 by functions of Raw), for longest by COPY /export: no other is left."},
		{"connections are killed, and new ones are opened", opens, "bad",
			"Connections are lost. In the last 10s 7 connections were lost, or cut by the deadline of their statement. Statements failed: 7 of class 57 (ended by a timeout, or by the server). 1 of 4 connections are in use, and 1 statement waits, for 0s at most."},
		{"a label comes more often, because its replica has died", replicaDied, "busy",
			"No replica serves: in the last 10s 100 reads went to the primary. Replica r1 does not serve (dead) for 3s."},
		{"a page that got no answer, while others get theirs", Pool{Stats: stats(1, 2, 0), Holders: []pooldriver.Holder{runs(1, 3, "", "a")}, Window: known, Asked: Asked{Asked: true, Took: time.Second}}, "busy",
			"1 statement runs, the first for 3s. Others get their answers, and the server has not said within 1s who waits for what. One statement has 1 of 1 connections, for 3s: a. 1 of 2 connections are in use, and nobody waits."},
		{"a program that gets no processor", Pool{Stats: stats(2, 2, 1), Holders: []pooldriver.Holder{usual, running}, Window: Window{Known: window, Late: 400 * time.Millisecond}}, "bad",
			"This process gets no processor: in the last 10s it was twice late by 400ms or more for what a timer had begun, so that statements look slow. 2 of 2 connections are in use, and 1 statement waits, for 0s at most."},
		{"a failover to another zone", Pool{Stats: stats(2, 2, 1), Holders: []pooldriver.Holder{usual, running}, Window: known, Statements: []pooldriver.StatementTime{{Statement: "SELECT cart", Runs: 100, Usual: 2500 * time.Microsecond, Lately: 22 * time.Millisecond}}}, "bad",
			"The database, or the way to it, is slower than usual: SELECT cart takes 22ms, and usually 2.5ms at most. 2 of 2 connections are in use, and 1 statement waits, for 0s at most."},
		{"a text that is short or long by tenant", Pool{Stats: stats(1, 2, 0), Holders: []pooldriver.Holder{usual}, Window: known, Statements: []pooldriver.StatementTime{{Statement: "SELECT cart", Runs: 100, Usual: 500 * time.Millisecond, Lately: 400 * time.Millisecond}}}, "calm",
			"The pool is not the problem: 1 of 2 connections are in use, and nobody waits."},
		{"a COMMIT that always takes 45 ms", Pool{Stats: stats(1, 2, 0), Holders: []pooldriver.Holder{usual}, Window: known, Statements: []pooldriver.StatementTime{{Statement: "COMMIT", Runs: 100, Usual: 50 * time.Millisecond, Lately: 45 * time.Millisecond}}}, "calm",
			"The pool is not the problem: 1 of 2 connections are in use, and nobody waits."},
		{"connections are killed", Pool{Stats: stats(1, 4, 0), Holders: []pooldriver.Holder{usual}, Window: Window{Known: window, Lost: 7}}, "busy",
			"Connections are lost. In the last 10s 7 connections were lost, or cut by the deadline of their statement. 1 of 4 connections are in use, and nobody waits."},
		{"pods wait for the advisory lock of a migration", Pool{Stats: stats(1, 4, 0), Holders: []pooldriver.Holder{runs(1, 9, "", "SELECT pg_advisory_lock(?)")}, Window: known, Asked: Asked{Asked: true, Answered: true, Locks: []pooldriver.LockWait{{Conn: 1, Lock: "advisory", BlockerProcess: 7}}}}, "busy",
			"1 statement waits for a lock (advisory), for 9s: SELECT pg_advisory_lock(?). In the way is a session that is not of this pool: process 7."},
		{"a failover beside a batch that is idle in its transaction", Pool{Stats: outage(-2, 1, 3, time.Second), Holders: []pooldriver.Holder{idleTx, running}, Window: Window{Known: window, Lost: 3, DialErrors: 3}}, "bad",
			"The database cannot be reached, or refuses us: the last 3 dials have failed, for 1s: no route. Connections that are open still work: 2 of 10 connections are in use; 1 statement waits."},
		{"a server that ends all sessions again and again", Pool{Stats: outage(0, 0, 1, time.Second), Window: Window{Known: window, Lost: 3, DialErrors: 1, Failed: map[pooldriver.AcquireFailure]uint64{pooldriver.AcquireDialFailed: 1}}}, "bad",
			"The database cannot be reached, or refuses us: the last dial has failed, 1s ago: no route. In the last 10s 3 connections were lost, or cut by the deadline of their statement. No connection is open."},
		{"one connection runs nothing, and the others have to be opened", Pool{Stats: stats(1, 10, 3), Holders: []pooldriver.Holder{idle}, Window: Window{Known: window, Lost: 7}}, "bad",
			"Connections are lost. In the last 10s 7 connections were lost, or cut by the deadline of their statement. 1 of 10 connections are in use, and 3 statements wait, for 0s at most."},
		{"connections are mostly held for nothing, and are lost by that", Pool{Stats: stats(5, 10, 1), Holders: []pooldriver.Holder{running, running, running, running, running}, Window: Window{Known: window, Lost: 7, Ended: 100, Held: 10 * time.Second, IdlePinned: 9 * time.Second}}, "bad",
			"Connections are lost. In the last 10s 7 connections were lost, or cut by the deadline of their statement. 5 of 10 connections are in use, and 1 statement waits, for 0s at most."},
		{"nothing is known yet", Pool{Stats: stats(2, 2, 1), Holders: []pooldriver.Holder{running, running}, Waiters: []pooldriver.Waiter{waits("", time.Second)}, Window: Window{Known: time.Second}}, "busy",
			"1 statement waits. 2 of 2 connections are in use: looking, 2s."},
		{"forgotten rows", Pool{Stats: stats(2, 2, 0), Holders: []pooldriver.Holder{rows, rows}}, "bad",
			"2 of 2 connections are in use, and none of them runs a statement: rows are open on each of them, and nobody reads them, for longest by GET /list at main.list (list.go:12), for 3s; GET /list has 2 of 2 connections, for 3s. The next statement waits."},
		{"forgotten rows beside a listener", Pool{Stats: stats(2, 2, 0), Holders: []pooldriver.Holder{rows, raw}}, "bad",
			"2 of 2 connections are in use (1 by functions of Raw), and none of them runs a statement: rows are open on each of them, and nobody reads them, for longest by GET /list at main.list (list.go:12), for 3s. The next statement waits."},
		{"a slow reader", Pool{Stats: stats(1, 1, 0), Holders: []pooldriver.Holder{reads}}, "busy",
			"1 of 1 connections are in use, and on 1 of them rows are open that the program reads slowly, for longest by GET /export, for 10s, of which the database has waited 90 %."},
		{"a slow reader, and others wait", Pool{Stats: stats(1, 1, 2), Holders: []pooldriver.Holder{reads}}, "bad",
			"2 statements wait. 1 of 1 connections are in use, and on 1 of them rows are open that the program reads slowly, for longest by GET /export, for 10s, of which the database has waited 90 %."},
		{"a slow reader, and room", Pool{Stats: stats(1, 2, 0), Holders: []pooldriver.Holder{reads}}, "calm",
			"The pool is not the problem: 1 of 2 connections are in use, and nobody waits."},
		{"a listener", Pool{Stats: stats(2, 4, 0), Holders: []pooldriver.Holder{running, raw}}, "calm",
			"The pool is not the problem: 2 of 4 connections are in use (1 by functions of Raw), and nobody waits."},
		{"idle in a transaction", Pool{Stats: stats(1, 4, 0), Holders: []pooldriver.Holder{leaks(1, 4)}}, "busy",
			"A transaction by POST /orders has run nothing for 4s: it keeps a connection, and its locks. 1 of 4 connections are in use, and nobody waits."},
		{"a lock, and nobody could ask", Pool{Stats: stats(3, 3, 2), Holders: []pooldriver.Holder{leaks(1, 4), runs(2, 3, "", "a"), runs(3, 2, "", "b")}}, "bad",
			"2 statements have been running for 2s or longer, while a transaction by POST /orders has run nothing for 4s: it may hold the locks that they wait for; 2 statements wait."},
		{"slow statements, a transaction, and no lock", Pool{Stats: stats(3, 4, 0), Holders: []pooldriver.Holder{leaks(1, 4), runs(2, 3, "", "a"), runs(3, 2, "", "b")}, Asked: answered}, "busy",
			"A transaction by POST /orders has run nothing for 4s: it keeps a connection, and its locks. 3 of 4 connections are in use, and nobody waits."},
		{"slow statements that began before the transaction", Pool{Stats: stats(3, 3, 2), Holders: []pooldriver.Holder{leaks(1, 2), runs(2, 5, "GET /report", "a"), runs(3, 4, "GET /report", "a")}}, "busy",
			"2 statements wait. 3 of 3 connections are in use, and their statements are slow. GET /report has 2 of 3 connections, for 5s: a; besides, a transaction by POST /orders has run nothing for 2s."},
		{"a lock of our own", Pool{Stats: stats(3, 4, 0), Holders: []pooldriver.Holder{leaks(1, 4), runs(2, 3, "GET /stock", "UPDATE n"), runs(3, 2, "", "")},
			Asked: Asked{Asked: true, Answered: true, Locks: []pooldriver.LockWait{{Conn: 3, Lock: "row", BlockerConn: 2, BlockerProcess: 78}, lock}}}, "bad",
			"2 statements wait for a lock (row), for 3s: GET /stock: UPDATE n. In the way is POST /orders, which has run nothing for 4s, last: UPDATE stock."},
		{"a lock of another program", Pool{Stats: stats(1, 4, 0), Holders: []pooldriver.Holder{runs(2, 3, "", "SELECT n")},
			Asked: Asked{Asked: true, Answered: true, Locks: []pooldriver.LockWait{{Conn: 2, Lock: "relation", BlockerProcess: 4711, BlockerUser: "alice psql", BlockerState: "idle in transaction", BlockerFor: time.Minute, BlockerStatement: "LOCK TABLE n"}}}}, "bad",
			"1 statement waits for a lock (relation), for 3s: SELECT n. In the way is a session that is not of this pool: process 4711 of alice psql, idle in transaction for 1m0s, last: LOCK TABLE n."},
		{"a lock of nobody knows whom", Pool{Stats: stats(1, 4, 0), Holders: []pooldriver.Holder{runs(2, 3, "", "SELECT n")}, Asked: Asked{Asked: true, Answered: true, Locks: []pooldriver.LockWait{{Conn: 2, Lock: "metadata"}}}}, "bad",
			"1 statement waits for a lock (metadata), for 3s: SELECT n. The server does not say to us who has it."},
		{"a black hole", Pool{Stats: stats(2, 2, 3), Holders: []pooldriver.Holder{runs(1, 3, "", "a"), runs(2, 3, "", "b")}}, "bad",
			"Nothing has moved for 3s: 2 statements run, and none has ended; 3 statements wait. The database or the network does not answer, or each of them waits for a lock that others have."},
		{"a black hole, and the page got no answer either", Pool{Stats: stats(1, 2, 0), Holders: []pooldriver.Holder{runs(1, 3, "", "a")}, Window: Window{Silent: 3 * time.Second}, Asked: Asked{Asked: true, Took: time.Second}}, "bad",
			"The database or the network does not answer: 1 statement runs, the first for 3s, and the server has not answered a question of this page within 1s."},
		{"one long statement", Pool{Stats: stats(1, 2, 0), Holders: []pooldriver.Holder{runs(1, 60, "", "a")}, Asked: answered}, "calm",
			"The pool is not the problem: 1 of 2 connections are in use, and nobody waits."},
		{"tasks that wait for each other", Pool{Stats: stats(2, 2, 2), Holders: []pooldriver.Holder{leaks(1, 4), leaks(2, 4)}, Waiters: []pooldriver.Waiter{waits("x", 1, 1), waits("x", 1, 2)}}, "bad",
			"A deadlock in the program: each holder of a connection waits for one more, and none is left. POST /orders has 2 of 2 connections, for 4s: UPDATE stock."},
		{"nested statements without tasks", Pool{Stats: stats(2, 2, 2), Holders: []pooldriver.Holder{leaks(1, 4), leaks(2, 3)}, Waiters: []pooldriver.Waiter{waits("POST /orders", 4*time.Second), waits("POST /orders", 3*time.Second)}}, "bad",
			"A deadlock in the program, as it looks: each holder of a connection waits for one more, and none is left. POST /orders has 2 of 2 connections, for 4s: UPDATE stock."},
		{"a crowd waits for transactions that call somebody for 200 ms", Pool{Stats: stats(1, 1, 2), Holders: []pooldriver.Holder{{Conn: 1, Idle: 200 * time.Millisecond, Since: ago(200 * time.Millisecond), Pin: pooldriver.PinTransaction, Label: "POST /checkout"}}, Waiters: []pooldriver.Waiter{{Label: "POST /checkout", Since: ago(200 * time.Millisecond)}}, Window: known}, "bad",
			"2 statements wait. 1 of 1 connections are in use, and 1 of them run no statement: held, for longest by POST /checkout, for 200ms."},
		{"leaks, and waiters that came later", Pool{Stats: stats(2, 2, 2), Holders: []pooldriver.Holder{leaks(1, 4), leaks(2, 3)}, Waiters: []pooldriver.Waiter{waits("POST /orders", 3*time.Second), waits("POST /orders", 2*time.Second)}}, "bad",
			"2 statements wait. 2 of 2 connections are in use, and 2 of them run no statement: transactions are open, for longest by POST /orders, for 4s; POST /orders has 2 of 2 connections, for 4s: UPDATE stock."},
		{"failures of late", Pool{Stats: stats(1, 2, 0), Window: Window{Failed: map[pooldriver.AcquireFailure]uint64{pooldriver.AcquireTimeout: 3, pooldriver.AcquireCancelled: 9}}}, "busy",
			"In the last 10s statements got no connection: timeout 3. Now 1 of 2 connections are in use, and nobody waits."},
		{"an overload", Pool{Stats: overloaded(stats(2, 2, 1)), Waiters: []pooldriver.Waiter{waits("x", 70*time.Millisecond)}, Window: Window{Failed: map[pooldriver.AcquireFailure]uint64{pooldriver.AcquireOverloaded: 840}}}, "busy",
			"Overload: more statements come than 2 connections serve, and pool_queue_target refuses the rest. In the last 10s: overloaded 840. 2 of 2 connections are in use, and 1 statement waits, for 70ms at most."},
		{"rows in memory", Pool{Stats: stats(0, 2, 0), BufferedRows: []pooldriver.BufferedRows{{Since: ago(time.Minute)}, {Since: now}}}, "busy",
			"The rows of 1 query are open in memory, because others needed their connection, the oldest for 1m0s. 0 of 2 connections are in use, and nobody waits."},
		{"a full server", Pool{Stats: full(2, 3), Holders: []pooldriver.Holder{running, running}}, "bad",
			"The server is full: it allows us 2 of 10 connections, and 2 are in use, and 3 statements wait, for 0s at most."},
		{"a full server and nobody waits", Pool{Stats: full(2, 0), Window: Window{DialErrors: 1}}, "busy",
			"The server is full: it allows us 2 of 10 connections, and 2 are in use, and nobody waits."},
		{"a full server, and nobody has needed it for long", Pool{Stats: full(2, 0)}, "calm",
			"The server had no room for more than 2 of 10 connections. Nobody has needed one more since, so that nobody knows whether it has room again. 2 of 10 connections are in use."},
		{"database/sql has a limit below the pool's", Pool{Stats: stats(2, 10, 0), DBs: []DB{{MaxOpen: 2, InUse: 2, WaitCount: 18}}}, "busy",
			"SetMaxOpenConns(2) is below the pool's 10 connections: 2 of 2 are in use, and callers queue in database/sql, where the pool does not see them: 18 so far. 2 of 10 connections are in use."},
		{"and nobody has reached it", Pool{Stats: stats(1, 10, 0), DBs: []DB{{MaxOpen: 2, InUse: 1, WaitCount: 18}}}, "calm",
			"The pool is not the problem: 1 of 10 connections are in use, and nobody waits."},
		{"the first connection", Pool{Stats: pooldriver.Stats{Pool: pool.Stats{Max: 4, Count: 1, Creating: 1, Waiting: 2}}}, "calm",
			"2 statements wait for a first connection, which is being opened."},
		{"nobody is let in", Pool{Stats: outage(0, 0, 340, 12*time.Second)}, "bad",
			"The database cannot be reached, or refuses us: the last 340 dials have failed, for 12s: no route. No connection is open."},
		{"nobody is let in, and statements wait for a dial", Pool{Stats: outage(1, 3, 1, time.Second)}, "bad",
			"The database cannot be reached, or refuses us: the last dial has failed, 1s ago: no route. No connection is open."},
		{"a new password", Pool{Stats: refused(outage(-2, 6, 11, 3*time.Second)), Holders: []pooldriver.Holder{running, running}, Window: Window{Failed: map[pooldriver.AcquireFailure]uint64{pooldriver.AcquireDialFailed: 83}}}, "bad",
			"The server refuses our login: the last 11 dials have failed, for 3s: password authentication failed. Connections that are open still work: 2 of 10 connections are in use; 6 statements wait. In the last 10s statements got no connection: dial failed 83."},
		{"dials have failed a while ago, and others are open", Pool{Stats: outage(-3, 0, 2, time.Second)}, "busy",
			"3 of 10 connections are in use, and nobody waits, but the last 2 dials have failed, for 1s: no route."},
		{"dials have failed minutes ago, and nobody has needed one since", dialsLongAgo, "calm",
			"The pool is not the problem: 3 of 10 connections are in use, and nobody waits."},
		{"the breaker", Pool{Stats: pooldriver.Stats{Pool: pool.Stats{Max: 4, State: pool.Inactive}}}, "bad",
			"The circuit breaker is open: statements fail at once, because connecting failed."},
		{"waits of late", Pool{Stats: stats(1, 4, 0), Window: Window{WaitP99: 250 * time.Millisecond}}, "busy",
			"In the last 10s one statement of 100 has waited up to 250ms for a connection. Now 1 of 4 connections are in use, and nobody waits."},
		{"a moment's wait", Pool{Stats: stats(4, 4, 1), Holders: []pooldriver.Holder{running, running, running, running}, Waiters: []pooldriver.Waiter{waits("", 2*time.Millisecond)}, Window: known}, "calm",
			"The pool is not the problem: 4 of 4 connections are in use, and 1 statement waits, for 2ms at most."},
		{"a moment's wait, and longer ones of late", Pool{Stats: stats(2, 2, 1), Holders: []pooldriver.Holder{usual, running}, Waiters: []pooldriver.Waiter{waits("", 2*time.Millisecond)}, Window: Window{Known: window, WaitP99: time.Second}}, "busy",
			"1 statement waits. 2 of 2 connections are in use, and their statements take no longer than before: the pool is small."},
		{"short waits", Pool{Stats: stats(1, 4, 0), Window: Window{WaitP99: 50 * time.Millisecond}}, "calm",
			"The pool is not the problem: 1 of 4 connections are in use, and nobody waits."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.pool.At = now
			v, _ := Judge(tc.pool)
			require.Equal(t, tc.level+": "+tc.sentence, v.Level+": "+v.Sentence)
		})
	}
	replicaDied.At = now
	_, besides := Judge(replicaDied)
	require.Equal(t, "unknown", besides[0].Rule, "the pool is small for what replicas do usually")
	_, besides = Judge(Pool{Stats: full(2, 3), Holders: []pooldriver.Holder{idle, idle}})
	require.Equal(t, "held for nothing", besides[0].Rule, "all that there may be")
}

// outage are those of a pool of 10 whose dials fail. creating below 0: so many are lent.
func outage(creating, waiting, failed int, lasts time.Duration) pooldriver.Stats {
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
