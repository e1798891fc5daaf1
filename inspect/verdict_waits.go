package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver"
)

// judgeWaiting judges a pool in which statements wait, and the connections work.
func (f *facts) judgeWaiting(p Pool) Verdict {
	s := p.Stats.Pool
	switch {
	case f.full:
		return Verdict{"bad", fmt.Sprintf("%s. %s: who else has connections to it?", waiting(s.Waiting), f.use)}
	case f.lasting > f.running/2 || p.Window.MeanHold >= long:
		return Verdict{"busy", fmt.Sprintf("%s. %s, and their statements are slow. %s%s.", waiting(s.Waiting), f.use, f.most.has(p), f.besides())}
	case p.Window.Known < still && longestWait(p) < still:
		return Verdict{"busy", fmt.Sprintf("%s. %s: looking, %s.", waiting(s.Waiting), f.use, Brief(still))}
	}
	return Verdict{"busy", fmt.Sprintf("%s. %s, and their statements are short: the pool is small, if the database has room for more.", waiting(s.Waiting), f.use)}
}

// besides names a transaction that runs nothing, after a worse finding.
func (f *facts) besides() string {
	if f.inTx.Idle < long {
		return ""
	}
	return fmt.Sprintf("; besides, a transaction%s has run nothing for %s", by(f.inTx), Brief(f.inTx.Idle))
}

// judgeNobodyWaits judges a pool in which no statement waits, or only for a moment.
func (f *facts) judgeNobodyWaits(p Pool) Verdict {
	failed := failures(p.Window.Failed)
	for _, db := range p.DBs {
		if db.MaxOpen > 0 && db.MaxOpen < p.Stats.Pool.Max && db.InUse >= db.MaxOpen && db.WaitCount > 0 {
			return Verdict{"busy", fmt.Sprintf("SetMaxOpenConns(%d) is below the pool's %d connections: %d of %d are in use, and callers queue in database/sql, where the pool does not see them: %d so far. Leave it at 0, or set it to pool_max_conns or more. %s.",
				db.MaxOpen, p.Stats.Pool.Max, db.InUse, db.MaxOpen, db.WaitCount, f.use)}
		}
	}
	switch {
	case p.Stats.Pool.Overloaded:
		return Verdict{"busy", fmt.Sprintf("Overload: more statements come than %d connections serve, and pool_queue_target refuses the rest, so that the others wait for %s at most. In the last %s: %s. If the database has room for more, the pool is small.", p.Stats.Pool.Max, Brief(longestWait(p)), Brief(failedFor), cmp.Or(failed, "nobody was refused"))}
	case failed != "":
		return Verdict{"busy", fmt.Sprintf("In the last %s statements got no connection: %s. Now %s, and %s.", Brief(failedFor), failed, lowerFirst(f.use), f.nobody)}
	case f.inTx.Idle >= long:
		return Verdict{"busy", fmt.Sprintf("A transaction%s has run nothing for %s: it keeps a connection, and its locks. %s, and %s.", by(f.inTx), Brief(f.inTx.Idle), f.use, f.nobody)}
	case p.Window.WaitP99 > shortWait:
		return Verdict{"busy", fmt.Sprintf("In the last %s one statement of 100 has waited up to %s for a connection. Now %s, and %s.", Brief(failedFor), Brief(p.Window.WaitP99), lowerFirst(f.use), f.nobody)}
	case f.full:
		return Verdict{"busy", f.use + ", and " + f.nobody + "."}
	case p.Stats.DialsFailing.Failed > 0:
		return Verdict{"busy", f.use + ", and " + f.nobody + ", but " + lowerFirst(dialsFail(p.Stats.DialsFailing))}
	}
	if n, oldest := forgotten(p); n > 0 {
		return Verdict{"busy", fmt.Sprintf("%s open in memory, because others needed their connection, the oldest for %s: look whether somebody forgets to close them, or reads them slowly. %s, and %s.", counted(n, "The rows of 1 query are", "The rows of %d queries are"), Brief(oldest), f.use, f.nobody)}
	}
	return Verdict{"calm", fmt.Sprintf("The pool is not the problem: %s, and %s.", f.use, f.nobody)}
}

// refusals are the reasons of failures for which the program has done nothing: it has not cancelled, or closed.
var refusals = []pooldriver.AcquireFailure{
	pooldriver.AcquireTimeout, pooldriver.AcquireQueueFull, pooldriver.AcquireOverloaded, pooldriver.AcquireBreakerOpen,
	pooldriver.AcquireDialFailed, pooldriver.AcquireDeadlock,
}

// Refusals are these reasons, for other reports about a pool.
func Refusals() []pooldriver.AcquireFailure { return slices.Clone(refusals) }

// failures lists the reasons of failures.
func failures(n map[pooldriver.AcquireFailure]uint64) string {
	var list []string
	for _, why := range refusals {
		if n[why] > 0 {
			list = append(list, fmt.Sprintf("%s %d", strings.ReplaceAll(string(why), "_", " "), n[why]))
		}
	}
	return strings.Join(list, ", ")
}

// forgotten counts rows that have been in memory for long.
func forgotten(p Pool) (n int, oldest time.Duration) {
	for _, r := range p.BufferedRows {
		if open := p.At.Sub(r.Since); open >= rowsLeft {
			n++
			oldest = max(oldest, open)
		}
	}
	return n, oldest
}

// cause says in a word what the error of a dial means.
func cause(d pooldriver.DialsFailing) string {
	switch d.Cause {
	case pooldriver.DialLoginRefused:
		return "The server refuses our login: "
	case pooldriver.DialNoSuchName:
		return "The server's name is not found (DNS): "
	case pooldriver.DialNoAnswer:
		return "The server does not answer when we connect: "
	}
	return "The database cannot be reached, or refuses us: "
}

// dialsFail says how long dials have failed, and why.
func dialsFail(d pooldriver.DialsFailing) string {
	why := clip(d.Error, maxError)
	if d.Failed == 1 {
		return fmt.Sprintf("the last dial has failed, %s ago: %s.", Brief(d.Ago), why)
	}
	return fmt.Sprintf("the last %d dials have failed, for %s: %s.", d.Failed, Brief(d.For), why)
}

// withSpace is dialsFail as a sentence that follows another; empty: no dial has failed.
func withSpace(d pooldriver.DialsFailing) string {
	if d.Failed == 0 {
		return ""
	}
	return " " + cause(d) + dialsFail(d)
}

// theyWait says that statements wait, in front of another sentence; empty: none does.
func theyWait(n int) string { return between("", waiting(n), ". ") }

func lowerFirst(sentence string) string {
	if sentence == "" {
		return ""
	}
	return strings.ToLower(sentence[:1]) + sentence[1:]
}
