package inspect

import (
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

// shortWait is a wait that is no problem.
const shortWait = 100 * time.Millisecond

// Judge is a pure function of the state of the pool.
func Judge(p Pool) Verdict {
	s := p.Stats.Pool
	unused := heldForNothing(p.Holders)
	use := fmt.Sprintf("%d of %d connections are in use", s.Lent, s.Max)
	full := s.Allowed > 0 && s.Allowed < s.Max
	if full {
		use = fmt.Sprintf("The server is full: it allows us %d of %d connections, and %d are in use", s.Allowed, s.Max, s.Lent)
	}
	switch {
	case s.State == pool.Inactive:
		return Verdict{"bad", "The circuit breaker is open: statements fail at once, because connecting failed."}
	case p.Stats.DialsFailing.Failed > 0 && s.Count <= s.Creating+s.Destroying:
		return Verdict{"bad", "The database cannot be reached, or refuses us: " + dialsFail(p.Stats.DialsFailing) + " No connection is open."}
	case s.Waiting > 0:
		return judgeWaiting(s, use, unused, full)
	case p.Recent.Acquired > 0 && p.Recent.WaitP99 > shortWait:
		return Verdict{"busy", fmt.Sprintf("Nobody waits now, but one statement of 100 has waited up to %s. %s.", Brief(p.Recent.WaitP99), use)}
	case full:
		return Verdict{"busy", use + ". Nobody waits."}
	case p.Stats.DialsFailing.Failed > 0:
		return Verdict{"busy", use + ", and nobody waits, but " + dialsFail(p.Stats.DialsFailing)}
	}
	return Verdict{"calm", fmt.Sprintf("The pool is not the problem: %s, and nobody waits.", use)}
}

// judgeWaiting is Judge if statements wait. unused is the number of connections on which no
// statement runs.
func judgeWaiting(s pool.Stats, use string, unused int, full bool) Verdict {
	switch {
	case s.Count == s.Creating:
		return Verdict{"bad", fmt.Sprintf("%s for a first connection, which is being opened.", waiting(s.Waiting))}
	case unused > s.Lent/2:
		return Verdict{"bad", fmt.Sprintf("%s. %s, and %d of them run no statement: look at the first rows below.", waiting(s.Waiting), use, unused)}
	case full:
		return Verdict{"bad", fmt.Sprintf("%s. %s: who else has connections to it?", waiting(s.Waiting), use)}
	}
	return Verdict{"busy", fmt.Sprintf("%s. %s, and most of them run statements: the database is slow, or the pool is small.", waiting(s.Waiting), use)}
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

// heldForNothing is how many holders run no statement.
func heldForNothing(holders []pooldriver.Holder) (n int) {
	for _, h := range holders {
		if !h.Running {
			n++
		}
	}
	return n
}

func waiting(n int) string {
	if n == 1 {
		return "1 statement waits"
	}
	return fmt.Sprintf("%d statements wait", n)
}
