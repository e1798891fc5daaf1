package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver"
)

// These are parts of sentences. Each is empty if there is nothing to say.

func (f *facts) theyWait() string { return waiting(f.Stats.Pool.Waiting) }

// prefixWait says that statements wait, in front of another sentence.
func (f *facts) prefixWait() string {
	return between("", f.theyWait(), ". ")
}

// alsoWait says that others wait.
func (f *facts) alsoWait() string {
	return between("; ", f.theyWait(), "")
}

func (f *facts) theyRun() string {
	return counted(f.running, "1 statement runs", "%d statements run")
}

// lost says that connections were lost, and statements with them.
func (f *facts) lost() string { return f.lostConnections() + f.lostStatements() }

func (f *facts) lostConnections() string {
	if f.Window.Lost == 0 {
		return ""
	}
	return fmt.Sprintf(" In the last %s %s.", Brief(window), counted(int(f.Window.Lost), "1 connection was lost, or cut by the deadline of its statement", "%d connections were lost, or cut by the deadline of their statement"))
}

// lostStatements says that statements got no connection.
func (f *facts) lostStatements() string {
	if f.failed == "" {
		return ""
	}
	return fmt.Sprintf(" In the last %s statements got no connection: %s.", Brief(window), f.failed)
}

// refused says how many statements were refused.
func (f *facts) refused() string { return cmp.Or(f.failed, "nobody was refused") }

// dials says how long dials have failed, and why.
func (f *facts) dials() string {
	d := f.Stats.DialsFailing
	if d.Failed == 0 {
		return ""
	}
	return failing(d) + "."
}

func failing(d pooldriver.DialsFailing) string {
	why := clipError(d.Error)
	if d.Failed == 1 {
		return fmt.Sprintf("the last dial has failed, %s ago: %s", Brief(d.Ago), why)
	}
	return fmt.Sprintf("the last %d dials have failed, for %s: %s", d.Failed, Brief(d.For), why)
}

// after is a sentence behind another one.
func after(sentence string) string {
	if sentence == "" {
		return ""
	}
	return " " + strings.ToUpper(sentence[:1]) + sentence[1:]
}

// silence reports whether statements run and none has ended for a while, or all were lost. If a connection
// was left to ask the server, silence is no reason.
func (f *facts) silence() bool {
	if f.Asked.Answered {
		return false
	}
	if f.running == 0 {
		return f.idle == 0 && f.raw == 0 && f.Window.Lost > 0 && f.Window.Silent >= still && f.Stats.Pool.Waiting > 0
	}
	longer := f.Window.Lost > 0 || f.shortestRunning > 2*f.lately // else they end as they ended before
	return f.idle == 0 && f.shortestRunning >= still && longer && (f.Stats.Pool.Waiting > 0 || f.running > 1)
}

// opensInVain reports whether nothing comes back, and a new connection does not open either.
func (f *facts) opensInVain() bool {
	enough := still
	if f.lasting > 0 || f.Window.Lost > 0 {
		enough = long
	}
	return f.Stats.Pool.CreatingFor >= enough && f.Window.Silent >= still
}

// usual says how long the statement with most of the time usually takes.
func (f *facts) usual() string {
	if f.most.holder.Usual == 0 {
		return ""
	}
	return " Usually it takes " + Brief(f.most.holder.Usual) + " at most."
}

// inUse begins a sentence.
func (f *facts) inUse() string {
	return fmt.Sprintf("%d of %d connections are in use", f.Stats.Pool.Lent, f.Stats.Pool.Max)
}

// allLent reports whether statements wait because each connection is lent: none is opened, checked or closed.
func (f *facts) allLent() bool {
	s := f.Stats.Pool
	return f.waits && s.Lent >= s.Max && s.Creating+s.Checking+s.Destroying == 0
}

// measured reports whether it is known how long the statements that run or, where none does, those of Window have taken before.
func (f *facts) measured() bool {
	if f.running > 0 {
		return f.new*2 <= f.running && f.new < f.running
	}
	known := 0
	for _, t := range f.Statements {
		if t.Usual > 0 {
			known++
		}
	}
	return known > 0 && known*2 >= len(f.Statements)
}

// missing says what is not known where it is not known why statements wait.
func (f *facts) missing() string {
	if f.measured() {
		return ""
	}
	return ": it is not known how long these statements take when nobody waits"
}

// standby are the COMMITs that wait for a synchronous standby.
func (f *facts) standby() (waits []pooldriver.LockWait) {
	for _, l := range f.Asked.Locks {
		if l.Lock == "SyncRep" {
			waits = append(waits, l)
		}
	}
	return waits
}

// patient reports whether only advisory locks are waited for, and nobody waits for a connection.
func (f *facts) patient() bool {
	return len(f.Asked.Locks) > 0 && f.Stats.Pool.Waiting == 0 &&
		!slices.ContainsFunc(f.Asked.Locks, func(l pooldriver.LockWait) bool { return l.Lock != "advisory" })
}

// isSlower reports whether a statement takes longer than usual. A COMMIT shares its wait for the disk with others.
func isSlower(t pooldriver.StatementTime) bool {
	least := 15 * time.Millisecond
	if t.Statement == commitText {
		least *= 2
	}
	return t.Usual > 0 && t.Lately >= 3*t.Usual && t.Lately >= t.Usual+least
}

// unanswered reports whether statements last, and the server has not said who waits for what.
func (f *facts) unanswered() bool { return f.Asked.Asked && !f.Asked.Answered && f.lasting > 0 }

// slower reports whether what runs is slower than usual. What is new may be the cause, if it runs more
// often, and others take no longer.
func (f *facts) slower() bool {
	return f.slow > 0 && f.slow*2 >= f.known && !(f.others && f.new > f.slow)
}

// grown says how much more often the label that takes over comes.
func (f *facts) grown() string {
	usual := "none"
	if f.storm.Usual >= 0.5 {
		usual = fmt.Sprintf("%.0f", f.storm.Usual)
	}
	return fmt.Sprintf("%.0f times a second, and usually %s", f.storm.Lately, usual)
}

// blockedFor says which statements a lock may keep.
func (f *facts) blockedFor() string {
	if f.blocked == 0 {
		return fmt.Sprintf("In the last %s %s", Brief(window), counted(int(f.Window.Lost), "1 statement was cut by its deadline", "%d statements were cut by their deadline"))
	}
	return counted(f.blocked, "1 statement has been running", "%d statements have been running") + " for " + Brief(f.shortestBlocked) + " or longer"
}

// mostly names what has most of the connections, if that has a name.
func (f *facts) mostly() string {
	if f.most.label == "" && f.most.statement == "" {
		return ""
	}
	return after(f.most.has(f) + ".")
}

// lock names the session that blocks others. Blocking sessions may wait, too: the session at
// the end of the chain, which does not wait, is to blame.
func (f *facts) lock() string {
	locks := f.Asked.Locks
	waits := func(l pooldriver.LockWait) bool { // does the session in the way of l wait itself?
		return slices.ContainsFunc(locks, func(o pooldriver.LockWait) bool {
			return l.BlockerConn != 0 && o.Conn == l.BlockerConn || l.BlockerConn == 0 && o.Conn == 0 && o.Process == l.BlockerProcess
		})
	}
	ours, blame := locks[0], locks[0]
	statements := map[uint64]bool{}
	for _, l := range locks {
		if l.Conn != 0 {
			statements[l.Conn] = true
		}
		if l.BlockerProcess == 0 || waits(l) {
			continue
		}
		if blame = l; l.Conn != 0 {
			ours = l
		}
	}
	if blame.Conn == 0 { // ours waits behind others
		ours = locks[max(0, slices.IndexFunc(locks, func(l pooldriver.LockWait) bool { return l.Conn != 0 && l.BlockerConn == 0 && waits(l) }))]
	}
	victim := f.holderOf(ours.Conn)
	text := fmt.Sprintf("%s for a lock (%s)", waiting(len(statements)), ours.Lock)
	if victim.Statement != "" {
		text += fmt.Sprintf(", for %s: %s%s", Brief(victim.RunningFor), between("", victim.Label, ": "), clip(victim.Statement, maxStatement))
	}
	text += ". " + f.blocker(blame)
	if blame.Conn == 0 {
		text += fmt.Sprintf(". Behind it waits process %d", ours.BlockerProcess) + between(": ", clip(ours.BlockerStatement, maxStatement), ", and behind that ours")
	}
	return text + f.alsoWait() + "."
}

// blocker describes the session that blocks.
func (f *facts) blocker(l pooldriver.LockWait) string {
	if l.BlockerProcess == 0 {
		return "The server does not say to us who has it"
	}
	if h := f.holderOf(l.BlockerConn); h.Conn != 0 {
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
func (f *facts) holderOf(conn uint64) (h pooldriver.Holder) {
	for _, h := range f.Holders {
		if h.Conn == conn && conn != 0 {
			return h
		}
	}
	return h
}

// heldBy says why connections are held that run nothing.
func (f *facts) heldBy() string {
	why := "held"
	if f.rows == f.idle {
		why = "rows are open on each of them, and nobody reads them"
	} else if f.inTx.Idle >= long {
		why = "transactions are open"
	}
	text := fmt.Sprintf("%s, for longest%s, for %s", why, by(f.idlest), Brief(f.idlest.Idle))
	if f.most.count > 1 {
		text += "; " + f.most.has(f)
	}
	return text
}

// pinnedBy names the label that holds most for nothing now.
func (f *facts) pinnedBy() string {
	if len(f.Labels) == 0 {
		return ""
	}
	most := slices.MaxFunc(f.Labels, func(a, b LabelUse) int { return cmp.Compare(a.Idle, b.Idle) })
	if most.Label == "" || most.Idle == 0 {
		return ""
	}
	return ", now mostly by " + most.Label
}

// besides names a transaction that runs nothing, after a worse finding.
func (f *facts) besides() string {
	if f.inTx.Idle < long {
		return ""
	}
	return fmt.Sprintf("; besides, a transaction%s has run nothing for %s", by(f.inTx), Brief(f.inTx.Idle))
}

// replicas says how the replicas are.
func (f *facts) replicas() string {
	var list []string
	for _, r := range f.Stats.Replica.Pools {
		state := "serves"
		if r.State != pooldriver.ReplicaServed {
			state = fmt.Sprintf("does not serve (%s) for %s", words(r.State), Brief(f.At.Sub(r.Since)))
			if r.Failing.Failed > 0 {
				state += ": " + shortly(r.Failing)
			}
		}
		if r.Lag >= long {
			state += ", " + Brief(r.Lag) + " behind"
		}
		list = append(list, "Replica "+r.Host+" "+state+".")
	}
	return strings.Join(list, " ")
}

// limited is a *sql.DB whose callers wait for SetMaxOpenConns; nil: there is none.
func (f *facts) limited() *DB {
	for i, db := range f.DBs {
		if db.MaxOpen > 0 && db.MaxOpen < f.Stats.Pool.Max && db.InUse >= db.MaxOpen && db.WaitCount > 0 {
			return &f.DBs[i]
		}
	}
	return nil
}

// refusals are the reasons of failures for which the program has done nothing: it has not cancelled, or closed.
var refusals = []pooldriver.AcquireFailure{
	pooldriver.AcquireTimeout, pooldriver.AcquireGaveUp, pooldriver.AcquireQueueFull, pooldriver.AcquireOverloaded, pooldriver.AcquireBreakerOpen,
	pooldriver.AcquireDialFailed, pooldriver.AcquireDeadlock,
}

// words are those of a name that Stats counts by.
func words[S ~string](name S) string { return strings.ReplaceAll(string(name), "_", " ") }

// Failures lists the reasons of failures.
func Failures(n map[pooldriver.AcquireFailure]uint64) string {
	var list []string
	for _, why := range refusals {
		if n[why] > 0 {
			list = append(list, fmt.Sprintf("%s %d", words(why), n[why]))
		}
	}
	return strings.Join(list, ", ")
}
