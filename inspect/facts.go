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
	// mostLost is how many connections may be lost in Window without a word.
	mostLost = 3
	// noProcessor is how late a timer is in a process that gets no processor.
	noProcessor = 250 * time.Millisecond
)

// facts are what the rules judge: a Pool, and figures that follow from it.
type facts struct {
	Pool

	use     string            // a text: how many connections are in use
	waits   bool              // statements wait, and not only for a moment
	longest time.Duration     // the longest wait of a present waiter
	nobody  string            // a text: nobody waits, or how many wait for how short a time
	open    int               // connections that are open
	full    bool              // the server is full
	unseen  int               // connections that are lent, and whose statement does not have them yet
	first   bool              // statements wait for a first connection, and not for long
	raw     int               // connections that functions of Raw have: listeners, mostly
	rawest  pooldriver.Holder // the one of raw that is held longest

	dialsFail    bool   // dials fail, and that matters
	dialsFailed  bool   // the last dial has failed within a minute: of later ones, which nobody has needed, nothing is known
	failed       string // why statements got no connection in Window; empty: each got one
	failedBefore string // why in the last minute

	running                         int // other connections that run a statement
	lasting                         int // those of running whose statement has been running for long
	shortestRunning, longestRunning time.Duration
	commits                         int // those of lasting that run a COMMIT
	known                           int // those of running for whose statement it is known how long it usually takes
	new                             int // those of running for whose statement it is not known
	slow                            int // those of known whose statement is slower

	idle     int // other connections that run no statement
	unused   int // those of idle without a statement for more than a moment
	idleLong int // those of idle without a statement for long
	rows     int // those of idle that are held because rows are open
	readers  int // connections whose rows are open and mostly not read

	blocked         int // lasting statements that have begun after inTx
	shortestBlocked time.Duration
	idlest          pooldriver.Holder // the holder that has run nothing for longest
	inTx            pooldriver.Holder // the holder in a transaction that has run nothing for longest
	hung            pooldriver.Holder // the one of commits that runs longest
	reader          pooldriver.Holder // the reader that has its connection longest

	most    share                    // the statement with the largest part of the time held
	lately  time.Duration            // how long the slowest statement of Window takes
	slowest string                   // a text: the statement that is slower than usual
	commit  pooldriver.StatementTime // of COMMIT, in Window

	storm    pooldriver.LabelArrivals // the label that takes over; Since is zero: none does
	stormHas LabelUse                 // what it has

	others bool // statements end that take no longer than usual, while others are slower

	grave, errors uint64 // statements that failed in Window: for want of room or by a fault of the server; for any reason of classes
	shares        uint64 // sum of class.share of errors
	failing       string // a text: which of them, most often

	nested, nestedSure bool // see findNested

	noFallback  bool                   // pool_replica_fallback=off
	away        int                    // replicas that do not serve
	readsAway   int                    // reads that no replica has served, in Window
	lag         time.Duration          // of the replica that is most behind
	busiest     pooldriver.ReplicaPool // the replica for which reads wait
	replicaWait time.Duration          // how long they wait

	forgotten int                     // rows that have been in memory for long
	oldest    pooldriver.BufferedRows // those of forgotten that are there for longest
}

// share is the holders with one label and one statement.
type share struct {
	label, statement string
	count            int
	held             time.Duration // sum
	longest          time.Duration
	holder           pooldriver.Holder // the holder that has held longest
}

func factsOf(p Pool) *facts {
	f := &facts{Pool: p, nobody: "nobody waits"}
	s := p.Stats.Pool
	f.unseen = s.Lent - len(p.Holders)
	f.open = max(0, s.Count-s.Creating-s.Destroying)
	f.addWaits()
	f.failed, f.failedBefore = Failures(p.Window.Failed), Failures(p.Recent.Failed)
	f.dialsFail = p.Stats.DialsFailing.Failed > 0 && (f.open == 0 || s.Waiting > 0 || p.Window.DialErrors > 0)
	f.dialsFailed = p.Stats.DialsFailing.Failed > 0 && p.Stats.DialsFailing.Ago < time.Minute
	for _, h := range p.Holders {
		f.add(h)
	}
	for _, h := range p.Holders {
		f.addBlocked(h)
	}
	f.most = mostOf(p)
	f.nested, f.nestedSure = findNested(p)
	f.addStatements()
	f.addReplicas()
	f.addArrivals()
	f.addErrors()
	for _, r := range p.BufferedRows {
		if p.At.Sub(r.Since) >= rowsLeft {
			if f.forgotten++; f.forgotten == 1 || r.Since.Before(f.oldest.Since) {
				f.oldest = r
			}
		}
	}
	f.use = f.inUse()
	if f.full = s.Allowed > 0 && s.Allowed < s.Max; f.full {
		f.use = fmt.Sprintf("The server is full: it allows us %d of %d connections, and %d are in use", s.Allowed, s.Max, s.Lent)
	}
	if f.raw > 0 {
		f.use += fmt.Sprintf(" (%d by functions of Raw)", f.raw)
	}
	return f
}

// room is how many connections there may be now.
func (f *facts) room() int {
	if f.full {
		return f.Stats.Pool.Allowed
	}
	return f.Stats.Pool.Max
}

// addWaits looks at the statements that wait.
func (f *facts) addWaits() {
	s := f.Stats.Pool
	if f.longest = longestWait(f.Pool); s.Waiting == 0 {
		return
	}
	f.first = s.Count == s.Creating && f.longest < long
	f.waits = !f.first && (len(f.Waiters) == 0 || f.longest >= shortWait || f.Window.WaitP99 > shortWait || f.Window.MeanHold >= long)
	f.nobody = waiting(s.Waiting) + ", for " + Brief(f.longest) + " at most"
}

// add counts a connection that somebody has.
func (f *facts) add(h pooldriver.Holder) {
	switch {
	case h.Pin == pooldriver.PinRaw:
		if f.raw++; f.raw == 1 || h.Since.Before(f.rawest.Since) {
			f.rawest = h
		}
		return
	case h.Running:
		f.addRunning(h)
	default:
		f.addIdle(h)
	}
	f.addReader(h, f.At.Sub(h.Since))
}

// addRunning counts a connection that runs a statement.
func (f *facts) addRunning(h pooldriver.Holder) {
	lasts := h.RunningFor
	if f.running++; f.running == 1 || lasts < f.shortestRunning {
		f.shortestRunning = lasts
	}
	f.longestRunning = max(f.longestRunning, lasts)
	if lasts >= long {
		if f.lasting++; h.Statement == commitText {
			if f.commits++; lasts > f.hung.RunningFor {
				f.hung = h
			}
		}
	}
	if h.Usual == 0 {
		f.new++
	}
	if h.Usual == 0 || h.Statement == commitText {
		return
	}
	if f.known++; lastsUnusually(h) {
		f.slow++
		f.slowest = fmt.Sprintf("%s%s has been running for %s, and usually takes %s at most", between("", h.Label, ": "), clip(h.Statement, maxStatement), Brief(lasts), Brief(h.Usual))
	}
}

// lastsUnusually reports whether a statement of which it is known how long it usually takes has been running for much longer.
func lastsUnusually(h pooldriver.Holder) bool {
	return h.RunningFor >= 10*h.Usual && h.RunningFor >= h.Usual+200*time.Millisecond
}

// commitText is Holder.Statement of a COMMIT, whoever has begun the transaction.
const commitText = "COMMIT"

// addStatements looks how long statements take lately.
func (f *facts) addStatements() {
	slower := map[string]bool{}
	for _, t := range f.Statements {
		f.lately = max(f.lately, t.Lately)
		if t.Statement == commitText {
			f.commit = t
			continue
		}
		if t.Usual > 0 && t.Lately <= 2*t.Usual && f.At.Sub(t.Last) < long {
			f.others = true
		}
		if isSlower(t) {
			slower[t.Statement] = true
			f.slowest = cmp.Or(f.slowest, fmt.Sprintf("%s takes %s, and usually %s at most", clip(t.Statement, maxStatement), Brief(t.Lately), Brief(t.Usual)))
		}
	}
	for _, h := range f.Holders {
		if h.Running && h.Usual > 0 && !lastsUnusually(h) && slower[h.Statement] {
			f.slow++
		}
	}
	if f.known == 0 && len(slower)*2 > len(f.Statements) {
		f.slow = 1
	}
}

// addArrivals finds the label that comes much more often than usual, and has a quarter of the connections and waits. Reads that no replica
// serves come more often for another reason.
func (f *facts) addArrivals() {
	if f.readsAway > 0 {
		return
	}
	all := 0
	for _, l := range f.Labels {
		all += l.Holds + l.Waiting
	}
	for _, a := range f.Stats.Arrivals { // the one that comes most often is first
		i := slices.IndexFunc(f.Labels, func(l LabelUse) bool { return l.Label == a.Label })
		if i >= 0 && !a.Since.IsZero() && f.storm.Since.IsZero() && (f.Labels[i].Holds+f.Labels[i].Waiting)*4 >= all {
			f.storm, f.stormHas = a, f.Labels[i]
		}
	}
}

// addReplicas looks at the replicas.
func (f *facts) addReplicas() {
	r := f.Window.Reads
	f.readsAway = int(r[pooldriver.ReplicaDead] + r[pooldriver.ReplicaLate] + r[pooldriver.ReplicaNone])
	f.noFallback = slices.ContainsFunc(f.Settings, func(s pooldriver.Setting) bool { return s.Name == "pool_replica_fallback" && s.Value == "off" })
	for _, p := range f.Stats.Replica.Pools {
		if p.State != pooldriver.ReplicaServed {
			f.away++
		}
		f.lag = max(f.lag, p.Lag)
		wait := p.Pool.LongestWait
		if p.Pool.Waiting > 0 && wait >= shortWait && wait > f.replicaWait {
			f.busiest, f.replicaWait = p, wait
		}
	}
}

// addBlocked counts a connection whose statement may wait for a lock of inTx, the idle transaction.
func (f *facts) addBlocked(h pooldriver.Holder) {
	if h.RunningFor < long || h.Pin == pooldriver.PinRaw || f.inTx.Idle < long || f.At.Add(atOnce-h.RunningFor).Before(f.inTx.Since) {
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
func (g *share) has(f *facts) string {
	text := fmt.Sprintf("%s has %d of %d connections, for %s", cmp.Or(g.label, g.holder.Task, site(g.holder.TakenAt), "one statement"), g.count, f.Stats.Pool.Lent, Brief(g.longest))
	if g.statement != "" {
		text += ": " + clip(g.statement, maxStatement)
	}
	return text
}

// findNested reports whether every connection is held by work that waits for one more. sure: Waiter.Holds
// shows this for every holder, because all work is in tasks. Otherwise it is a guess: there is a waiter with
// the same label that began to wait when the holder's connection became idle. One waiter counts for one such
// holder only.
func findNested(p Pool) (found, sure bool) {
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
	if w.Label != h.Label || h.Running || h.Idle < long { // of a crowd some began to wait when any holder became idle
		return false
	}
	gap := w.Since.Sub(now.Add(-h.Idle))
	return gap.Abs() <= atOnce
}

func longestWait(p Pool) time.Duration {
	longest := p.Stats.Pool.LongestWait
	if len(p.Waiters) > 0 && !p.Waiters[0].Follows { // those in the queue come first
		longest = max(longest, p.At.Sub(p.Waiters[0].Since))
	}
	return longest
}

// by says who a holder is, as far as that is known: its label or task, and its line of code.
func by(h pooldriver.Holder) string {
	return between(" by ", cmp.Or(h.Label, h.Task), "") + at(h)
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

// clipError cuts the middle out of an error: it begins with what was tried, and ends with the reason.
func clipError(text string) string {
	if len(text) <= maxError {
		return text
	}
	const begin = maxError / 3
	return clip(text, begin) + strings.ToValidUTF8(text[len(text)-maxError+begin:], "")
}

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
