package inspect

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/pool"
)

// Verdict says in one sentence whether the program waits for the pool.
type Verdict struct {
	Level    string // "calm", "busy" or "bad"
	Sentence string
}

const (
	// shortWait is a wait that nobody has to look into.
	shortWait = 100 * time.Millisecond
	// long is how long a connection may be held without a statement, or a statement run, before
	// that may be the reason for what others wait for.
	long = time.Second
	// still is for how long nothing has to have moved to say that something hangs.
	still = 2 * time.Second
	// rowsLeft is how long rows may be in memory before they count as forgotten.
	rowsLeft = 2 * time.Second
)

// Judge is a pure function of what the pool looks like, and has looked like in the last seconds.
func Judge(p Pool) Verdict {
	f := factsOf(p)
	s := p.Stats.Pool
	if v, ok := judgeNoConnection(p); ok {
		return v
	}
	switch {
	case f.hangs(p):
		return Verdict{"bad", fmt.Sprintf("Nothing has moved for %s: %s, and none has ended%s. The database or the network does not answer, or each of them waits for a lock that others have.",
			Brief(p.Window.Still), counted(f.running, "1 statement runs", "%d statements run"), alsoWait(s.Waiting))}
	case f.blocks():
		return Verdict{"bad", fmt.Sprintf("%s for %s or longer, while a transaction%s has run nothing for %s: it may hold the locks that they wait for%s.",
			counted(f.lasting, "1 statement has been running", "%d statements have been running"), Brief(f.shortestLasting), by(f.inTx), Brief(f.inTx.Idle), alsoWait(s.Waiting))}
	case s.Waiting > 0:
		return f.judgeWaiting(p)
	case s.Max > 0 && s.Lent >= s.Max && f.idleLong == s.Lent-f.raw && f.idleLong > 0:
		return Verdict{"bad", fmt.Sprintf("%s, and none of them runs a statement: %s. The next statement waits.", f.use, f.heldBy())}
	}
	return f.judgeNobodyWaits(p)
}

// judgeNoConnection is Judge where no connection is open. ok is false if one is.
func judgeNoConnection(p Pool) (_ Verdict, ok bool) {
	s := p.Stats.Pool
	switch {
	case s.State == pool.Inactive:
		return Verdict{"bad", "The circuit breaker is open: statements fail at once, because connecting failed."}, true
	case p.Stats.DialsFailing.Failed > 0 && s.Count <= s.Creating+s.Destroying:
		return Verdict{"bad", "The database cannot be reached, or refuses us: " + dialsFail(p.Stats.DialsFailing) + " No connection is open."}, true
	case s.Waiting > 0 && s.Count == s.Creating:
		level := "calm"
		if len(p.Waiters) > 0 && time.Since(p.Waiters[0].Since) >= long {
			level = "bad"
		}
		return Verdict{level, fmt.Sprintf("%s for a first connection, which is being opened.", waiting(s.Waiting))}, true
	}
	return Verdict{}, false
}

// facts is what a verdict is made of.
type facts struct {
	use      string // how many connections are in use
	full     bool   // the server is
	raw      int    // connections that functions of Raw have: listeners, mostly
	running  int    // others that run a statement
	idle     int    // others that run none
	unused   int    // of these, connections that have run none for more than a moment
	idleLong int    // of these, for long
	rows     int    // of these, because rows are open

	lasting         int // statements that have been running for long
	shortestLasting time.Duration
	idlest          pooldriver.Holder // the one that has run nothing for longest
	inTx            pooldriver.Holder // the same of those in a transaction
}

func factsOf(p Pool) facts {
	f := facts{}
	for _, h := range p.Holders {
		switch {
		case h.Pin == pooldriver.PinRaw:
			f.raw++
		case h.Running:
			f.addRunning(p.Window.Running[h.Conn])
		default:
			f.addIdle(h)
		}
	}
	s := p.Stats.Pool
	f.use = fmt.Sprintf("%d of %d connections are in use", s.Lent, s.Max)
	if f.full = s.Allowed > 0 && s.Allowed < s.Max; f.full {
		f.use = fmt.Sprintf("The server is full: it allows us %d of %d connections, and %d are in use", s.Allowed, s.Max, s.Lent)
	}
	if f.raw > 0 {
		f.use += fmt.Sprintf(" (%d by functions of Raw)", f.raw)
	}
	return f
}

// addRunning counts a connection whose statement has been running for lasts.
func (f *facts) addRunning(lasts time.Duration) {
	f.running++
	if lasts < long {
		return
	}
	f.lasting++
	if f.shortestLasting == 0 || lasts < f.shortestLasting {
		f.shortestLasting = lasts
	}
}

// addIdle counts a connection that is held and runs nothing.
func (f *facts) addIdle(h pooldriver.Holder) {
	f.idle++
	if h.Idle >= shortWait {
		f.unused++
	}
	if h.Idle >= long {
		f.idleLong++
	}
	if h.Idle > f.idlest.Idle {
		f.idlest = h
	}
	switch h.Pin {
	case pooldriver.PinRows:
		f.rows++
	case pooldriver.PinTransaction, pooldriver.PinRawTransaction:
		if h.Idle > f.inTx.Idle {
			f.inTx = h
		}
	}
}

// hangs reports whether statements run, and nothing has moved for a while.
func (f *facts) hangs(p Pool) bool {
	return f.running > 0 && f.idle == 0 && p.Window.Still >= still && (p.Stats.Pool.Waiting > 0 || f.running > 1)
}

// blocks reports whether a transaction that runs nothing may be what statements wait for.
func (f *facts) blocks() bool { return f.lasting > 0 && f.inTx.Idle >= long }

// heldBy says why connections are held that run nothing.
func (f *facts) heldBy() string {
	why := "held"
	if f.rows == f.idle {
		why = "rows are open on each of them, and nobody reads them"
	}
	return fmt.Sprintf("%s, for longest%s, for %s", why, by(f.idlest), Brief(f.idlest.Idle))
}

// by says who a holder is, as far as that is known: its label or task, and its line of code.
func by(h pooldriver.Holder) string {
	who := cmp.Or(h.Label, h.Task)
	if at := site(h.TakenAt); at != "" {
		who = strings.TrimSpace(who + " at " + at)
	}
	if who == "" {
		return ""
	}
	return " by " + who
}

// judgeWaiting is Judge where statements wait.
func (f *facts) judgeWaiting(p Pool) Verdict {
	s := p.Stats.Pool
	switch {
	case f.unused > (s.Lent-f.raw)/2:
		return Verdict{"bad", fmt.Sprintf("%s. %s, and %d of them run no statement: %s.", waiting(s.Waiting), f.use, f.unused, f.heldBy())}
	case f.full:
		return Verdict{"bad", fmt.Sprintf("%s. %s: who else has connections to it?", waiting(s.Waiting), f.use)}
	case f.lasting > f.running/2:
		return Verdict{"busy", fmt.Sprintf("%s. %s, and %d of their statements have been running for more than %s: the database is slow.", waiting(s.Waiting), f.use, f.lasting, Brief(long))}
	}
	return Verdict{"busy", fmt.Sprintf("%s. %s, and their statements are short: the pool is small, if the database has room for more.", waiting(s.Waiting), f.use)}
}

// judgeNobodyWaits is Judge where no statement waits.
func (f *facts) judgeNobodyWaits(p Pool) Verdict {
	failed := failures(p.Window.Failed)
	switch {
	case failed != "":
		return Verdict{"busy", fmt.Sprintf("Nobody waits now, but in the last %s statements got no connection: %s. %s.", Brief(failedFor), failed, f.use)}
	case p.Recent.Acquired > 0 && p.Recent.WaitP99 > shortWait:
		return Verdict{"busy", fmt.Sprintf("Nobody waits now, but one statement of 100 has waited up to %s. %s.", Brief(p.Recent.WaitP99), f.use)}
	case f.full:
		return Verdict{"busy", f.use + ". Nobody waits."}
	case p.Stats.DialsFailing.Failed > 0:
		return Verdict{"busy", f.use + ", and nobody waits, but " + dialsFail(p.Stats.DialsFailing)}
	}
	if n, oldest := forgotten(p.BufferedRows); n > 0 {
		return Verdict{"busy", fmt.Sprintf("%s open in memory, because others needed their connection, the oldest for %s: look whether somebody forgets to close them. %s, and nobody waits.", counted(n, "The rows of 1 query are", "The rows of %d queries are"), Brief(oldest), f.use)}
	}
	return Verdict{"calm", fmt.Sprintf("The pool is not the problem: %s, and nobody waits.", f.use)}
}

// failures lists the reasons of failures, in the order of pooldriver's.
func failures(n map[pooldriver.AcquireFailure]uint64) string {
	var list []string
	for _, why := range []pooldriver.AcquireFailure{
		pooldriver.AcquireTimeout, pooldriver.AcquireQueueFull, pooldriver.AcquireBreakerOpen,
		pooldriver.AcquireDialFailed, pooldriver.AcquireDeadlock,
	} {
		if n[why] > 0 {
			list = append(list, fmt.Sprintf("%s %d", strings.ReplaceAll(string(why), "_", " "), n[why]))
		}
	}
	return strings.Join(list, ", ")
}

// forgotten counts rows that have been in memory for long.
func forgotten(all []pooldriver.BufferedRows) (n int, oldest time.Duration) {
	for _, r := range all {
		if open := time.Since(r.Since); open >= rowsLeft {
			n++
			oldest = max(oldest, open)
		}
	}
	return n, oldest
}

// maxError bounds what is shown of an error, in bytes.
const maxError = 200

// dialsFail says how long dials have failed, and why.
func dialsFail(d pooldriver.DialsFailing) string {
	why := d.Error
	if len(why) > maxError {
		why = strings.ToValidUTF8(why[:maxError], "") + "…"
	}
	if d.Failed == 1 {
		return fmt.Sprintf("the last dial has failed, %s ago: %s.", Brief(d.Ago), why)
	}
	return fmt.Sprintf("the last %d dials have failed, for %s: %s.", d.Failed, Brief(d.For), why)
}

func waiting(n int) string { return counted(n, "1 statement waits", "%d statements wait") }

// counted is one for n = 1, and otherwise many with n.
func counted(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return fmt.Sprintf(many, n)
}

// alsoWait says that others wait, if some do.
func alsoWait(n int) string {
	if n == 0 {
		return ""
	}
	return "; " + waiting(n)
}
