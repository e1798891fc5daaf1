// Package droppedstate decides what a log may say about a statement whose session state ended with
// the statement: how much of its text, and how often.
package droppedstate

import (
	"runtime"
	"strings"
	"sync"
)

// Most bounds the statements that a Told remembers.
const Most = 256

// Told is the statements that the log already has. The zero value is empty. A Told is safe for
// concurrent use.
type Told struct {
	mu         sync.Mutex // protects following fields
	statements map[string]struct{}
}

// First reports whether the log must get a statement: at its first time, unless Most other
// statements came before.
func (t *Told) First(statement string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.statements[statement]; ok || len(t.statements) >= Most {
		return false
	}
	if t.statements == nil {
		t.statements = map[string]struct{}{}
	}
	t.statements[statement] = struct{}{}
	return true
}

// HeldByProgram reports whether the checkout that ends belongs to a *sql.Conn or a *sql.Tx, whose
// statements shared the state. database/sql does not tell a driver, but the call stack shows it: a
// method of these types ends such a checkout. Only the innermost calls of database/sql count. Its
// methods may also stand further out, if the program runs inside Raw of a *sql.Conn or inside the
// Value method of an argument.
//
// Only the log, Stats.StateDropped and the settings of a *sql.DB of SQLite (docs/adr/0012) depend on it,
// no statement's success. TestTheCallStackShowsAConnAndATx fails on a release of Go whose stack shows
// something else.
func HeldByProgram() bool {
	var callers [48]uintptr
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
