package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver"
)

const (
	// shortWait is the longest wait that is normal.
	shortWait = 100 * time.Millisecond
	// long: if a connection is held without a statement, or a statement runs, for so long, that may
	// be the reason why others wait.
	long = time.Second
	// still: if nothing has moved for so long, something hangs.
	still = 2 * time.Second
	// rowsLeft is how long rows may be in memory before they count as forgotten.
	rowsLeft = 2 * time.Second
)

// facts are the figures from which Judge makes a verdict.
type facts struct {
	use     string // a text: how many connections are in use
	waits   bool   // statements wait, and not only for a moment
	nobody  string // a text: nobody waits, or how many wait for how short a time
	full    bool   // the server is full
	raw     int    // connections that functions of Raw have: listeners, mostly
	running int    // other connections that run a statement
	idle    int    // other connections that run no statement
	unused  int    // the idle connections without a statement for more than a moment

	idleLong int // the idle connections without a statement for long
	rows     int // the idle connections that are held because rows are open
	readers  int // connections whose rows are open and mostly not read

	lasting         int           // statements that have been running for long
	shortestRunning time.Duration // of the running statements
	blocked         int           // lasting statements that have begun after inTx
	shortestBlocked time.Duration
	idlest          pooldriver.Holder // the holder that has run nothing for longest
	inTx            pooldriver.Holder // the holder in a transaction that has run nothing for longest
	reader          pooldriver.Holder // the reader that has its connection longest

	most share // the statement with the largest part of the time held
}

// share is the holders with one label and one statement.
type share struct {
	label, statement string
	count            int
	held             time.Duration // sum
	longest          time.Duration
	holder           pooldriver.Holder // the holder that has held longest
}

func factsOf(p Pool) facts {
	f := facts{nobody: "nobody waits"}
	if n := p.Stats.Pool.Waiting; n > 0 {
		longest := longestWait(p)
		f.waits = len(p.Waiters) == 0 || longest >= shortWait || p.Window.WaitP99 > shortWait
		f.nobody = counted(n, "1 statement waits", "%d statements wait") + ", for " + Brief(longest) + " at most"
	}
	for _, h := range p.Holders {
		held := p.At.Sub(h.Since)
		if h.Pin == pooldriver.PinRaw {
			f.raw++
			continue
		}
		if h.Running {
			f.addRunning(h.RunningFor)
		} else {
			f.addIdle(h)
		}
		f.addReader(h, held)
	}
	for _, h := range p.Holders {
		f.addBlocked(h, p.At)
	}
	f.most = mostOf(p)
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
	if f.running++; f.running == 1 || lasts < f.shortestRunning {
		f.shortestRunning = lasts
	}
	if lasts >= long {
		f.lasting++
	}
}

// addBlocked counts a connection whose statement may wait for a lock of inTx, the idle transaction.
func (f *facts) addBlocked(h pooldriver.Holder, now time.Time) {
	if h.RunningFor < long || h.Pin == pooldriver.PinRaw || f.inTx.Idle < long || now.Add(atOnce-h.RunningFor).Before(f.inTx.Since) {
		return
	}
	if f.blocked++; f.blocked == 1 || h.RunningFor < f.shortestBlocked {
		f.shortestBlocked = h.RunningFor
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

// addReader counts a connection whose rows are open for long, and were mostly not read meanwhile.
func (f *facts) addReader(h pooldriver.Holder, held time.Duration) {
	if h.Pin != pooldriver.PinRows || h.Running && h.RunningFor >= long || held < long || h.IdlePinned < held/2 {
		return
	}
	f.readers++
	if f.reader.Conn == 0 || h.Since.Before(f.reader.Since) {
		f.reader = h
	}
}

// mostOf finds the statement that has most of the time for which connections have been held.
func mostOf(p Pool) (most share) {
	var all []share
	for _, h := range p.Holders {
		if h.Pin == pooldriver.PinRaw {
			continue
		}
		g := entry(&all, func(g share) bool { return g.label == h.Label && g.statement == h.Statement }, share{label: h.Label, statement: h.Statement})
		held := max(0, p.At.Sub(h.Since))
		g.count++
		g.held += held
		if g.count == 1 || held > g.longest {
			g.longest, g.holder = held, h
		}
	}
	for _, g := range all {
		if most.count == 0 || g.held > most.held || g.held == most.held && g.count > most.count {
			most = g
		}
	}
	return most
}

// has describes a share: "GET /report has 4 of 4 connections, for 5s: SELECT …".
func (g *share) has(p Pool) string {
	text := fmt.Sprintf("%s has %d of %d connections, for %s", cmp.Or(g.label, g.holder.Task, site(g.holder.TakenAt), "one statement"), g.count, p.Stats.Pool.Lent, Brief(g.longest))
	if g.statement != "" {
		text += ": " + clip(g.statement, maxStatement)
	}
	return text
}

// nested reports whether every connection is held by work that waits for one more. sure: Waiter.Holds
// shows this for every holder, because all work is in tasks. For a holder without a task it is a guess:
// there is a waiter with the same label that began to wait when the holder's connection became idle.
// One waiter counts for one such holder only.
func nested(p Pool) (found, sure bool) {
	s := p.Stats.Pool
	if s.Waiting == 0 || s.Idle+s.Creating+s.Checking+s.Destroying > 0 || len(p.Holders) != s.Lent {
		return false, false
	}
	holders := slices.DeleteFunc(slices.Clone(p.Holders), func(h pooldriver.Holder) bool { return h.Pin == pooldriver.PinRaw })
	slices.SortFunc(holders, func(a, b pooldriver.Holder) int { return cmp.Compare(b.Idle, a.Idle) }) // in waiters' order
	waiters := slices.Clone(p.Waiters)
	sure = true
	for _, h := range holders {
		if slices.ContainsFunc(p.Waiters, func(w pooldriver.Waiter) bool { return slices.Contains(w.Holds, h.Conn) }) {
			continue
		}
		sure = false
		i := slices.IndexFunc(waiters, func(w pooldriver.Waiter) bool { return goesOn(w, h, p.At) })
		if i < 0 {
			return false, false
		}
		waiters = slices.Delete(waiters, i, i+1)
	}
	return len(holders) > 0, sure
}

// atOnce is the most time between the end of a statement and the wait for another connection that
// its work needs. Holders' times are up to 10 ms early, and programs may have to wait for a processor.
const atOnce = 100 * time.Millisecond

// goesOn reports whether w may be the work of h: w began to wait when the connection of h became idle.
func goesOn(w pooldriver.Waiter, h pooldriver.Holder, now time.Time) bool {
	if h.Task != "" || w.Task != "" || w.Label != h.Label || h.Running || h.Idle < shortWait {
		return false
	}
	gap := w.Since.Sub(now.Add(-h.Idle))
	return gap.Abs() <= atOnce
}

func longestWait(p Pool) time.Duration {
	if len(p.Waiters) == 0 || p.Waiters[0].Follows { // those in the queue come first
		return 0
	}
	return p.At.Sub(p.Waiters[0].Since)
}

// by says who a holder is, as far as that is known: its label or task, and its line of code.
func by(h pooldriver.Holder) string {
	return between(" by ", who(h), "")
}

func who(h pooldriver.Holder) string {
	return strings.TrimSpace(cmp.Or(h.Label, h.Task) + at(h))
}

// at is the line of code of a holder; empty: it is not known.
func at(h pooldriver.Holder) string {
	return between(" at ", site(h.TakenAt), "")
}

// between puts a text that is not empty between two others.
func between(before, text, after string) string {
	if text == "" {
		return ""
	}
	return before + text + after
}

// The most that is shown of an error and of a statement, in bytes.
const (
	maxError     = 200
	maxStatement = 120
)

func clip(text string, most int) string {
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// waiting says that statements wait; empty: none does.
func waiting(n int) string {
	if n == 0 {
		return ""
	}
	return counted(n, "1 statement waits", "%d statements wait")
}

// counted returns the text one if n is 1, else the format many with n.
func counted(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return fmt.Sprintf(many, n)
}

// alsoWait says that others wait, if some do.
func alsoWait(n int) string { return between("; ", waiting(n), "") }
