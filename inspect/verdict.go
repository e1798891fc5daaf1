package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/pool"
)

// Verdict says in one sentence whether the program waits for the pool, and why.
type Verdict struct {
	Level    string // "calm", "busy" or "bad"
	Sentence string
}

// Judge is a pure function of the pool's figures of now and of the last seconds. It tries causes in
// order, and an earlier cause explains the later ones: without new connections every pool is too small.
func Judge(p Pool) Verdict {
	f := factsOf(p)
	for _, judge := range []func(Pool, *facts) (Verdict, bool){
		judgeDials, judgeNested, judgeLocks, judgeSilence, judgeReaders, judgeIdle,
	} {
		if v, ok := judge(p, &f); ok {
			return v
		}
	}
	if f.waits {
		return f.judgeWaiting(p)
	}
	return f.judgeNobodyWaits(p)
}

// judgeDials judges a pool whose dials fail, or whose first dial is running.
func judgeDials(p Pool, f *facts) (_ Verdict, ok bool) {
	s, d := p.Stats.Pool, p.Stats.DialsFailing
	failed := p.Window.Failed[pooldriver.AcquireDialFailed]
	switch {
	case s.State == pool.Inactive:
		return Verdict{"bad", "The circuit breaker is open: statements fail at once, because connecting failed." + withSpace(d)}, true
	case d.Failed > 0 && s.Count <= s.Creating+s.Destroying:
		return Verdict{"bad", cause(d) + dialsFail(d) + " No connection is open."}, true
	case d.Failed > 0 && (s.Waiting > 0 || failed > 0 || p.Window.DialErrors > 0):
		level, lost := "busy", ""
		if s.Waiting > 0 || failed > 0 {
			level = "bad"
		}
		if failed > 0 {
			lost = counted(int(failed), " In the last 10s 1 statement got no connection.", " In the last 10s %d statements got no connection.")
		}
		return Verdict{level, fmt.Sprintf("%s%s Connections that are open still work: %s%s.%s", cause(d), dialsFail(d), lowerFirst(f.use), alsoWait(s.Waiting), lost)}, true
	case s.Waiting > 0 && s.Count == s.Creating:
		level := "calm"
		if len(p.Waiters) > 0 && p.At.Sub(p.Waiters[0].Since) >= long {
			level = "bad"
		}
		return Verdict{level, fmt.Sprintf("%s for a first connection, which is being opened.", waiting(s.Waiting))}, true
	}
	return Verdict{}, false
}

// judgeNested judges a pool in which every holder waits for one more connection.
func judgeNested(p Pool, f *facts) (Verdict, bool) {
	found, sure := nested(p)
	if !found {
		return Verdict{}, false
	}
	looks := ""
	if !sure {
		looks = ", as it looks"
	}
	return Verdict{"bad", fmt.Sprintf("A deadlock in the program%s: each holder of a connection waits for one more, and none is left. %s%s. Do the inner work in the same transaction or task, or before the outer one; a larger pool only makes it rarer.",
		looks, f.most.has(p), at(f.most.holder))}, true
}

// judgeLocks judges a pool whose statements wait for locks. The server says so or, if the server could
// not be asked, a transaction of ours runs nothing meanwhile.
func judgeLocks(p Pool, f *facts) (Verdict, bool) {
	if len(p.Asked.Locks) > 0 {
		return judgeAskedLocks(p), true
	}
	if p.Asked.Answered && !p.Asked.Hidden || f.blocked == 0 {
		return Verdict{}, false
	}
	return Verdict{"bad", fmt.Sprintf("%s for %s or longer, while a transaction%s has run nothing for %s: it may hold the locks that they wait for%s.",
		counted(f.blocked, "1 statement has been running", "%d statements have been running"), Brief(f.shortestBlocked), by(f.inTx), Brief(f.inTx.Idle), alsoWait(p.Stats.Pool.Waiting))}, true
}

// judgeAskedLocks names the session that blocks others. Blocking sessions may wait, too: the session at
// the end of the chain, which does not wait, is to blame.
func judgeAskedLocks(p Pool) Verdict {
	locks := p.Asked.Locks
	waits := func(conn uint64) bool {
		return slices.ContainsFunc(locks, func(l pooldriver.LockWait) bool { return l.Conn == conn })
	}
	blame := locks[0]
	statements := map[uint64]bool{}
	for _, l := range locks {
		statements[l.Conn] = true
		if l.BlockerProcess != 0 && (l.BlockerConn == 0 || !waits(l.BlockerConn)) {
			blame = l
		}
	}
	victim := holderOf(p, blame.Conn)
	text := fmt.Sprintf("%s for a lock (%s)", counted(len(statements), "1 statement waits", "%d statements wait"), blame.Lock)
	if victim.Statement != "" {
		text += fmt.Sprintf(", for %s: %s%s", Brief(victim.RunningFor), between("", victim.Label, ": "), clip(victim.Statement, maxStatement))
	}
	return Verdict{"bad", text + ". " + blocker(p, blame) + alsoWait(p.Stats.Pool.Waiting) + "."}
}

// blocker describes the session that blocks.
func blocker(p Pool, l pooldriver.LockWait) string {
	if l.BlockerProcess == 0 {
		return "The server does not say to us who has it"
	}
	if h := holderOf(p, l.BlockerConn); h.Conn != 0 {
		does := "has run nothing for " + Brief(h.Idle)
		if h.Running {
			does = "runs a statement for " + Brief(h.RunningFor)
		}
		return fmt.Sprintf("In the way is %s, which %s, last: %s", cmp.Or(who(h), "another holder of ours"), does, clip(h.Statement, maxStatement))
	}
	text := fmt.Sprintf("In the way is a session that is not of this pool: process %d", l.BlockerProcess)
	if l.BlockerUser != "" {
		text += " of " + l.BlockerUser
	}
	if l.BlockerState != "" {
		text += fmt.Sprintf(", %s for %s", l.BlockerState, Brief(l.BlockerFor))
	}
	if l.BlockerStatement != "" {
		text += ", last: " + clip(l.BlockerStatement, maxStatement)
	}
	return text
}

// holderOf finds the holder of a connection. Its Conn is 0 if there is none.
func holderOf(p Pool, conn uint64) (h pooldriver.Holder) {
	for _, h := range p.Holders {
		if h.Conn == conn && conn != 0 {
			return h
		}
	}
	return h
}

// judgeSilence judges a pool whose statements run, and no statement has ended for a while. If most of
// them are the same statement, that statement may be slow. If a connection is left, the server is asked.
func judgeSilence(p Pool, f *facts) (Verdict, bool) {
	s := p.Stats.Pool
	hang := f.running > 0 && f.idle == 0 && f.shortestRunning >= still
	runs := counted(f.running, "1 statement runs", "%d statements run")
	switch {
	case p.Asked.Asked && !p.Asked.Answered && f.lasting > 0:
		return Verdict{"bad", fmt.Sprintf("The database or the network does not answer: %s, the first for %s, and the server has not answered a question of this page within %s%s.",
			runs, Brief(longestRunning(p)), Brief(p.Asked.Took), alsoWait(s.Waiting))}, true
	case p.Asked.Answered || !hang || s.Waiting == 0 && f.running == 1:
		return Verdict{}, false
	case f.most.count*4 >= 3*f.running && f.most.statement != "" && f.running > 1:
		return Verdict{"bad", fmt.Sprintf("%s%s. %s. It is slow, or waits for a lock, or the database does not answer: no connection is left to ask the server.",
			theyWait(s.Waiting), f.use, f.most.has(p))}, true
	}
	return Verdict{"bad", fmt.Sprintf("Nothing has moved for %s: %s, and none has ended%s. The database or the network does not answer, or each of them waits for a lock that others have.",
		Brief(f.shortestRunning), runs, alsoWait(s.Waiting))}, true
}

func longestRunning(p Pool) (longest time.Duration) {
	for _, h := range p.Holders {
		if h.Pin != pooldriver.PinRaw {
			longest = max(longest, h.RunningFor)
		}
	}
	return longest
}

// judgeReaders judges a pool on most of whose connections the program reads rows slowly.
func judgeReaders(p Pool, f *facts) (Verdict, bool) {
	s := p.Stats.Pool
	if f.readers == 0 || f.readers*2 <= s.Lent-f.raw || s.Waiting == 0 && s.Lent < s.Max {
		return Verdict{}, false
	}
	if f.idleLong >= f.readers {
		return Verdict{}, false // the program does not read the rows at all
	}
	level, next := "busy", " The next statement waits."
	if f.waits {
		level, next = "bad", ""
	}
	held := max(1, p.At.Sub(f.reader.Since), f.reader.IdlePinned)
	return Verdict{level, fmt.Sprintf("%s%s, and on %d of them rows are open that the program reads slowly, for longest%s, for %s, of which the database has waited %d %%: read the rows first, and work afterwards.%s",
		theyWait(s.Waiting), f.use, f.readers, by(f.reader), Brief(held), 100*f.reader.IdlePinned/held, next)}, true
}

// judgeIdle judges a pool whose connections are held and run nothing.
func judgeIdle(p Pool, f *facts) (Verdict, bool) {
	s := p.Stats.Pool
	switch {
	case f.waits && f.unused > (s.Lent-f.raw)/2:
		return Verdict{"bad", fmt.Sprintf("%s. %s, and %d of them run no statement: %s.", waiting(s.Waiting), f.use, f.unused, f.heldBy(p))}, true
	case !f.waits && s.Max > 0 && s.Lent >= s.Max && f.idleLong == s.Lent-f.raw && f.idleLong > 0:
		return Verdict{"bad", fmt.Sprintf("%s, and none of them runs a statement: %s. The next statement waits.", f.use, f.heldBy(p))}, true
	}
	return Verdict{}, false
}

// heldBy says why connections are held that run nothing.
func (f *facts) heldBy(p Pool) string {
	why := "held"
	if f.rows == f.idle {
		why = "rows are open on each of them, and nobody reads them"
	} else if f.inTx.Idle >= long {
		why = "transactions are open"
	}
	text := fmt.Sprintf("%s, for longest%s, for %s", why, by(f.idlest), Brief(f.idlest.Idle))
	if f.most.count > 1 {
		text += "; " + f.most.has(p)
	}
	return text
}
