package pooldriver

import (
	"runtime"
	"strings"
	"sync"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/session"
)

// State that is thrown away. A statement that sets session state is of use to a
// task, a transaction and a *sql.Conn. On a *sql.DB its connection goes back with
// it, and the state is cleaned away: which is right, and should be no secret.

// mostDropsTold bounds what is remembered of warnings. Of further texts nothing is
// said; they are counted.
const mostDropsTold = 256

// drops are the warnings that were given.
type drops struct {
	mu   sync.Mutex // protects told
	told map[string]struct{}
}

// first reports whether a statement is to be told of, and will not be any more.
func (d *drops) first(statement string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.told[statement]; ok || len(d.told) >= mostDropsTold {
		return false
	}
	if d.told == nil {
		d.told = map[string]struct{}{}
	}
	d.told[statement] = struct{}{}
	return true
}

// recordSetting remembers, before it is sent, a statement without a task that sets session
// state. takeBack tells what became of it.
func (c *conn) recordSetting(op *operation) {
	if op.Effect&session.ChangesSession != 0 && c.bound.isPrivate() {
		op.real.set, op.real.setArgs = op.Text, op.Args
	}
}

// loses returns the text of the only statement of a checkout that ends, if it has set
// session state that goes with it, or else "". It is called where the checkout ends.
// What is to hold for all connections goes on from here. Of a connection that is broken
// nothing does: the statement is tried again, or the program knows.
func (c *Connector) loses(r *realConn) string {
	query, args := r.set, r.setArgs
	r.set, r.setArgs = "", nil
	if r.Unusable() || r.Effect()&session.ChangesSession == 0 || heldByProgram() {
		return ""
	}
	if c.settings.Record(&r.applied, query, args) {
		r.KeepsForAll()
		return ""
	}
	if c.config.Reset == ResetOff || r.Irreplaceable() {
		return ""
	}
	if k, ok := c.dialect.(dialects.StateKeeper); ok && k.KeepsState(query) {
		return ""
	}
	return query
}

// tellLoss counts, and warns of, state that is gone.
func (c *Connector) tellLoss(query string) {
	c.stats.stateDropped.Add(1)
	if statement := opening(query); c.drops.first(statement) {
		c.log.Warn("pooldriver: a statement on a *sql.DB set session state (a setting, a lock, a temporary table), which ended with the statement: its connection was cleaned before it is lent again; to keep it use a task (pooldriver.WithTask) or a *sql.Conn",
			"target", c.template.Target(), "statement", statement)
	}
}

// heldByProgram reports whether the checkout that ends is that of a *sql.Conn or a
// *sql.Tx, whose statements had the state to themselves. database/sql does not tell a
// driver. It can be seen in who calls it: the methods of those types that end them.
// Beyond who has called database/sql others of its methods may stand: that of a
// *sql.Conn whose Raw runs the caller, or of a *sql.Tx whose argument does.
func heldByProgram() bool {
	var callers [32]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	inside := false
	for {
		frame, more := frames.Next()
		method, ok := strings.CutPrefix(frame.Function, "database/sql.")
		if ok && (strings.HasPrefix(method, "(*Conn).") || strings.HasPrefix(method, "(*Tx).")) {
			return true
		}
		if inside && !ok || !more {
			return false
		}
		inside = ok
	}
}

// opening is how a statement begins: a few words, up to the first that may be a
// value. What follows may be a secret (SET PASSWORD = …), and is not the point.
func opening(query string) string {
	const words, size = 4, 60
	rest, end := skipComments(query), 0
	for range words {
		start := end
		for start < len(rest) && isSpace(rest[start]) {
			start++
		}
		stop := start
		for stop < len(rest) && isWordByte(rest[stop], stop == start) {
			stop++
		}
		if word := rest[start:stop]; word == "" || strings.EqualFold(word, "to") || stop > size {
			break
		}
		end = stop
	}
	if end == 0 {
		return "(not shown)"
	}
	return strings.Join(strings.Fields(rest[:end]), " ") + " …"
}

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\n' || b == '\r' }

func isWordByte(b byte, first bool) bool {
	letter := b|0x20 >= 'a' && b|0x20 <= 'z' || b == '_' || b == '@'
	return letter || !first && (b >= '0' && b <= '9' || b == '.' || b == '$')
}

// skipComments is query without the comments before it, and what else a tool may put
// there.
func skipComments(query string) string {
	for {
		query = strings.TrimLeft(query, " \t\r\n;(")
		end := ""
		switch {
		case strings.HasPrefix(query, "--"), strings.HasPrefix(query, "#"):
			end = "\n"
		case strings.HasPrefix(query, "/*"):
			end = "*/"
		default:
			return query
		}
		_, after, found := strings.Cut(query, end)
		if !found {
			return ""
		}
		query = after
	}
}
