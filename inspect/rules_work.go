package inspect

import (
	"fmt"
	"slices"

	"github.com/pooldriver/pooldriver"
)

// workRules judge who has the connections, and why others wait.
var workRules = slices.Concat(sureRules, likelyRules)

// sureRules are those of workRules that rest on what was seen, and not on how much or how long something is.
var sureRules = []rule{
	{"deadlock", bad,
		func(f *facts) bool { return f.nested || f.Window.Failed[pooldriver.AcquireDeadlock] > 0 },
		func(f *facts) string {
			looks, told := "", ""
			if f.nested && !f.nestedSure {
				looks = ", as it looks"
			}
			if n := f.Window.Failed[pooldriver.AcquireDeadlock]; n > 0 {
				told = counted(int(n), " In the last 10s 1 statement got ErrDeadlock.", " In the last 10s %d statements got ErrDeadlock.")
			}
			return fmt.Sprintf("A deadlock in the program%s: each holder of a connection waits for one more, and none is left. %s%s.%s", looks, f.most.has(f), at(f.most.holder), told)
		},
		"Do the inner work in the same transaction or task, or before the outer one; a larger pool only makes it rarer."},
	{"commit hangs", bad, func(f *facts) bool { return len(f.standby()) > 0 },
		func(f *facts) string {
			waits := f.standby()
			h := f.holderOf(waits[0].Conn)
			return fmt.Sprintf("%s to be confirmed by a synchronous standby, for %s: %s%s.", counted(len(waits), "1 COMMIT waits", "%d COMMITs wait"), Brief(h.RunningFor),
				between("", h.Label, ": ")+clip(h.Statement, maxStatement), f.alsoWait())
		},
		"Look whether a standby is missing (pg_stat_replication, synchronous_standby_names)."},
	{"advisory lock", busy, func(f *facts) bool { return f.patient() }, func(f *facts) string { return f.lock() },
		"Look whether the work that has the lock goes on, such as a migration."},
	{"lock", bad, func(f *facts) bool { return len(f.Asked.Locks) > 0 }, func(f *facts) string { return f.lock() },
		"End the session in the way, or let it commit earlier."},
	{"no answer", bad,
		func(f *facts) bool {
			return f.unanswered() && f.Window.Silent >= long // else it answers others
		},
		func(f *facts) string {
			return fmt.Sprintf("The database or the network does not answer: %s, the first for %s, and the server has not answered a question of this page within %s%s.",
				f.theyRun(), Brief(f.longestRunning), Brief(f.Asked.Took), f.alsoWait())
		},
		"Look whether the server answers others, and at the network in between."},
	{"commit hangs", bad, func(f *facts) bool { return f.commits > 0 },
		func(f *facts) string {
			return fmt.Sprintf("%s for %s%s, which is not usual%s.", counted(f.commits, "1 COMMIT has been running", "%d COMMITs have been running"), Brief(f.hung.RunningFor), by(f.hung), f.alsoWait())
		},
		"Look at the server's disk, whether a synchronous standby is missing (synchronous_standby_names), and at the network."},
	{"lock, as it looks", bad,
		func(f *facts) bool {
			return (!f.Asked.Answered || f.Asked.Hidden) && f.blocked > 0 || f.inTx.Idle >= long && f.Window.Lost > 0 && f.Stats.Pool.Waiting > 0 && f.Window.DialErrors == 0 && f.Stats.DialsFailing.Failed == 0
		},
		func(f *facts) string {
			return fmt.Sprintf("%s, while a transaction%s has run nothing for %s: it may hold the locks that they wait for%s.",
				f.blockedFor(), by(f.inTx), Brief(f.inTx.Idle), f.alsoWait())
		},
		"Commit or roll back this transaction earlier."},
	{"silence of one statement", bad,
		func(f *facts) bool {
			return f.silence() && f.most.count*4 >= 3*f.running && f.most.statement != "" && f.running > 1
		},
		func(f *facts) string {
			return fmt.Sprintf("%s%s. %s. It is slow, or waits for a lock, or the database does not answer: no connection is left to ask the server.%s",
				f.prefixWait(), f.use, f.most.has(f), f.usual())
		},
		"Look at the server who waits for what (pg_stat_activity, SHOW PROCESSLIST)."},
	{"silence", bad, func(f *facts) bool { return f.silence() },
		func(f *facts) string {
			return fmt.Sprintf("Nothing has moved for %s: %s, and none has ended%s. The database or the network does not answer, or each of them waits for a lock that others have.%s",
				Brief(max(f.shortestRunning, min(f.Window.Silent, window))), f.theyRun(), f.alsoWait(), f.lost())
		},
		"Look at the server who waits for what (pg_stat_activity, SHOW PROCESSLIST)."},
	{"raw has all", bad, func(f *facts) bool { return f.waits && f.raw > 0 && f.raw >= f.Stats.Pool.Max },
		func(f *facts) string {
			return fmt.Sprintf("%s. %s, for longest%s: no other is left.%s", f.theyWait(), f.use, by(f.rawest), f.lostStatements())
		},
		"End functions of Raw, or raise pool_max_conns by their number; Connector.Listen needs no connection of the pool."},
}

// likelyRules are the rest of workRules. Those that are surer come first.
var likelyRules = []rule{
	{"slow readers", hurts,
		func(f *facts) bool {
			return f.readers > 0 && f.readers*2 > f.Stats.Pool.Lent-f.raw && (f.Stats.Pool.Waiting > 0 || f.Stats.Pool.Lent >= f.Stats.Pool.Max) && f.idleLong < f.readers
		},
		func(f *facts) string {
			held := max(1, f.At.Sub(f.reader.Since), f.reader.IdlePinned)
			return fmt.Sprintf("%s%s, and on %d of them rows are open that the program reads slowly, for longest%s, for %s, of which the database has waited %d %%.",
				f.prefixWait(), f.use, f.readers, by(f.reader), Brief(held), 100*f.reader.IdlePinned/held)
		},
		"Read the rows first, and work afterwards."},
	{"held for nothing", bad, func(f *facts) bool { return f.waits && f.unused > (f.room()-f.raw)/2 },
		func(f *facts) string {
			return fmt.Sprintf("%s. %s, and %d of them run no statement: %s.%s", f.theyWait(), f.use, f.unused, f.heldBy(), f.lostStatements())
		},
		"Give connections back sooner: close rows, end transactions, do other work before or after them."},
	{"all held for nothing", bad,
		func(f *facts) bool {
			s := f.Stats.Pool
			return !f.waits && s.Max > 0 && s.Lent >= s.Max && f.idleLong > 0 && f.idleLong == s.Lent-f.raw
		},
		func(f *facts) string {
			return fmt.Sprintf("%s, and none of them runs a statement: %s. The next statement waits.", f.use, f.heldBy())
		},
		"Give connections back sooner: close rows, end transactions, do other work before or after them."},
	{"recovering", busy, func(f *facts) bool { return f.waits && f.Window.DialErrors > 0 && f.Stats.DialsFailing.Failed == 0 },
		func(f *facts) string {
			return fmt.Sprintf("%s, for %s at most: connecting succeeds again, and the queue is worked off. %s.%s", f.theyWait(), Brief(f.longest), f.use, f.lost())
		}, ""},
	{"often held for nothing", hurts,
		func(f *facts) bool {
			return f.waits && f.Stats.Pool.Lent*4 >= f.room()*3 && // else they wait for one that is opened
				f.Window.Ended >= fewest && f.Window.IdlePinned*2 > f.Window.Held
		},
		func(f *facts) string {
			return fmt.Sprintf("%s. %s. In the last %s no statement was running in %d %% of the time for which connections were held%s.",
				f.theyWait(), f.use, Brief(window), 100*f.Window.IdlePinned/f.Window.Held, f.pinnedBy())
		},
		"Shorten what the program does between the statements of a transaction."},
	{"statements fail", bad, func(f *facts) bool { return f.grave >= mostLost || f.mostFail() }, func(f *facts) string { return f.statementsFail() },
		"Look at the errors that the program gets, and at the server's log, its disk and its memory."},
	{"no processor", hurts, func(f *facts) bool { return f.Window.Late >= noProcessor },
		func(f *facts) string {
			return fmt.Sprintf("This process gets no processor: in the last %s it was twice late by %s or more for what a timer had begun, so that statements look slow. %s, and %s.", Brief(window), Brief(f.Window.Late), f.use, f.nobody)
		},
		"Look at the processors that the process may use (a limit of its cgroup), at their load, and at the garbage collector."},
	{"slower than usual", hurts, func(f *facts) bool { return f.slower() },
		func(f *facts) string {
			what := "The database, or the way to it, is slower than usual"
			if f.others {
				what = "Some statements are slower than usual, and others are not, as where a lock is held or a disk is slow"
			}
			return fmt.Sprintf("%s: %s%s. %s, and %s.%s", what, f.slowest, f.besides(), f.use, f.nobody, f.lost())
		},
		"Look at the server's load, its locks, the network, and the queue of a pooler in between (PgBouncer: SHOW POOLS); a larger pool does not help."},
	{"slow commits", hurts, func(f *facts) bool { return isSlower(f.commit) },
		func(f *facts) string {
			return fmt.Sprintf("COMMIT takes %s, and usually %s at most. %s, and %s.", Brief(f.commit.Lately), Brief(f.commit.Usual), f.use, f.nobody)
		},
		"Look at the server's disk, and at its standbys (synchronous_commit)."},
	{"one label takes over", hurts, func(f *facts) bool { return !f.storm.Since.IsZero() && (f.waits || f.failed != "") },
		func(f *facts) string {
			return fmt.Sprintf("%s%s comes %s, for %s: it has %d of %d connections, and %s.%s", f.prefixWait(), f.storm.Label, f.grown(),
				Brief(f.At.Sub(f.storm.Since)), f.stormHas.Holds, f.Stats.Pool.Lent, counted(f.stormHas.Waiting, "1 of those who wait", "%d of those who wait"), f.lostStatements())
		},
		"Look why it comes so often (clients that try again, a loop, a job), and bound it there, or give it a pool of its own."},
	{"slow statements", busy, func(f *facts) bool { return f.waits && (f.lasting > f.running/2 || f.Window.MeanHold >= long) },
		func(f *facts) string {
			return fmt.Sprintf("%s. %s, and their statements are slow. %s%s.", f.theyWait(), f.use, f.most.has(f), f.besides())
		},
		"Make the statement faster, or give it a pool of its own."},
	{"overload", busy, func(f *facts) bool {
		return f.Stats.Pool.Overloaded || f.Window.Failed[pooldriver.AcquireOverloaded] > 0
	},
		func(f *facts) string {
			return fmt.Sprintf("Overload: more statements come than %d connections serve, and pool_queue_target refuses the rest. In the last %s: %s. %s, and %s.",
				f.Stats.Pool.Max, Brief(window), f.refused(), f.use, f.nobody)
		},
		"Send less, or make the statements faster. If the database has room for more, raise pool_max_conns."},
	{"queue full", busy, func(f *facts) bool { return f.Window.Failed[pooldriver.AcquireQueueFull] > 0 },
		func(f *facts) string {
			return fmt.Sprintf("More statements come than %d connections serve, and pool_max_waiters refuses the rest.%s %s, and %s.", f.Stats.Pool.Max, f.lostStatements(), f.use, f.nobody)
		},
		"Send less, or make the statements faster. If the database has room for more, raise pool_max_conns."},
	{"connections lost", hurts, func(f *facts) bool { return f.Window.Lost >= mostLost },
		func(f *facts) string {
			return fmt.Sprintf("Connections are lost.%s%s %s, and %s.", f.lost(), between(" Statements failed: ", f.failing, "."), f.use, f.nobody)
		},
		"Look at the server's log and at proxies for who ends connections, and at the deadlines of statements: a deadline that ends a statement costs its connection."},
	{"opening", hurts, func(f *facts) bool {
		return f.waits && f.Stats.Pool.Creating > 0 && f.Stats.Pool.Lent < f.Stats.Pool.Max
	},
		func(f *facts) string {
			return fmt.Sprintf("%s. %s, and %d are being opened, the first for %s.", f.theyWait(), f.use, f.Stats.Pool.Creating, Brief(f.Stats.Pool.CreatingFor))
		},
		"Opening connections takes long: keep more of them (pool_min_conns), or look at the server's logins."},
	{"closing", busy,
		func(f *facts) bool {
			s := f.Stats.Pool
			return f.waits && s.Lent < s.Max && s.Destroying+s.Checking > 0
		},
		func(f *facts) string {
			return fmt.Sprintf("%s. %s, and %d are being closed or checked.%s", f.theyWait(), f.use, f.Stats.Pool.Destroying+f.Stats.Pool.Checking, f.lost())
		},
		"Look why connections are lost: deadlines that end statements, the server, a proxy."},
	{"statements fail", busy, func(f *facts) bool { return f.manyFail() }, func(f *facts) string { return f.statementsFail() },
		"Look at the errors that the program gets, and at the server's log."},
	{"looking", busy, func(f *facts) bool { return f.waits && f.Window.Known < still && f.longest < still },
		func(f *facts) string { return fmt.Sprintf("%s. %s: looking, %s.", f.theyWait(), f.use, Brief(still)) }, ""},
	{"small", busy, func(f *facts) bool { return f.allLent() && f.raw == 0 && f.readsAway == 0 && f.measured() },
		func(f *facts) string {
			return fmt.Sprintf("%s. %s, and their statements take no longer than before: the pool is small.%s", f.theyWait(), f.use, f.lostStatements())
		},
		"Raise pool_max_conns, if the database has room for more."},
	{"few beside raw", busy, func(f *facts) bool { return f.allLent() && f.raw > 0 },
		func(f *facts) string {
			return fmt.Sprintf("%s. %s, for longest%s: too few are left for the others.%s", f.theyWait(), f.use, by(f.rawest), f.lostStatements())
		},
		"End functions of Raw, or raise pool_max_conns by their number."},
	{"unknown", busy, func(f *facts) bool { return f.waits },
		func(f *facts) string {
			return fmt.Sprintf("%s, for %s at most, and why is not known%s. %s.%s%s", f.theyWait(), Brief(f.longest), f.missing(), f.inUse(), f.mostly(), f.lostStatements())
		},
		"Look at the holders of connections, and at the server: who runs what there, and for how long."},
	{"SetMaxOpenConns", busy, func(f *facts) bool { return f.limited() != nil },
		func(f *facts) string {
			db := f.limited()
			return fmt.Sprintf("SetMaxOpenConns(%d) is below the pool's %d connections: %d of %d are in use, and callers queue in database/sql, where the pool does not see them: %d so far. %s.",
				db.MaxOpen, f.Stats.Pool.Max, db.InUse, db.MaxOpen, db.WaitCount, f.use)
		},
		"Leave it at 0, or set it to pool_max_conns or more."},
	{"failed", busy, func(f *facts) bool { return f.failed != "" },
		func(f *facts) string {
			return fmt.Sprintf("In the last %s statements got no connection: %s. Now %s, and %s.", Brief(window), f.failed, lowerFirst(f.use), f.nobody)
		}, ""},
	{"idle in a transaction", busy, func(f *facts) bool { return f.inTx.Idle >= long },
		func(f *facts) string {
			return fmt.Sprintf("A transaction%s has run nothing for %s: it keeps a connection, and its locks. %s, and %s.", by(f.inTx), Brief(f.inTx.Idle), f.use, f.nobody)
		},
		"Commit or roll back earlier."},
	{"forgotten rows", busy, func(f *facts) bool { return f.forgotten > 0 },
		func(f *facts) string {
			return fmt.Sprintf("%s open in memory, because others needed their connection, the oldest for %s%s. %s, and %s.",
				counted(f.forgotten, "The rows of 1 query are", "The rows of %d queries are"), Brief(f.At.Sub(f.oldest.Since)),
				by(pooldriver.Holder{Label: f.oldest.Label, Task: f.oldest.Task, TakenAt: f.oldest.TakenAt}), f.use, f.nobody)
		},
		"Look whether somebody forgets to close them, or reads them slowly."},
	{"waited", busy, func(f *facts) bool { return f.Window.WaitP99 > shortWait },
		func(f *facts) string {
			return fmt.Sprintf("In the last %s one statement of 100 has waited up to %s for a connection. Now %s, and %s.", Brief(window), Brief(f.Window.WaitP99), lowerFirst(f.use), f.nobody)
		}, ""},
	{"failed before", busy, func(f *facts) bool { return f.failedBefore != "" },
		func(f *facts) string {
			return fmt.Sprintf("In the last minute statements got no connection: %s, the last one %s ago. Now %s, and %s.", f.failedBefore, Brief(f.Recent.FailedAgo), lowerFirst(f.use), f.nobody)
		}, ""},
	{"unanswered", busy, (*facts).unanswered,
		func(f *facts) string {
			return fmt.Sprintf("%s, the first for %s. Others get their answers, and the server has not said within %s who waits for what.%s %s, and %s.",
				f.theyRun(), Brief(f.longestRunning), Brief(f.Asked.Took), f.mostly(), f.use, f.nobody)
		},
		"Look at the server who waits for what (pg_stat_activity, SHOW PROCESSLIST), and at its load."},
	{"well", calm, func(*facts) bool { return true },
		func(f *facts) string { return fmt.Sprintf("The pool is not the problem: %s, and %s.", f.use, f.nobody) }, ""},
}
