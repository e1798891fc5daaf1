package callsite

import (
	"runtime"
	"strings"
)

// This file knows the functions of database/sql by their names. A driver has no other way to see who calls
// it. A wrapper, or another release of Go, may change what the stack shows. So nothing
// may depend on it but what a log says, and what docs/adr/0018 names. The tests of this
// file fail on a release of Go that changes the stack.

// Program is the text of the program's stack up to the call of database/sql in which the caller runs; "":
// it runs in none, or in a goroutine of database/sql.
func Program() string {
	frames, inside := new(Table).Here(1).frames()
	if !inside || len(frames) == 0 || strings.HasPrefix(frames[0].Func, "runtime.") {
		return ""
	}
	return Text(frames)
}

// HeldByProgram reports whether the checkout that ends belongs to a *sql.Conn or a *sql.Tx, whose
// statements shared the state. database/sql does not tell a driver, but the call stack shows it: a
// method of these types ends such a checkout. Only the innermost calls of database/sql count. Its
// methods may also stand further out, if the program runs inside Raw of a *sql.Conn or inside the
// Value method of an argument.
//
// The log, Stats.StateDropped and the settings of a *sql.DB of SQLite (docs/adr/0012) depend on it; no
// statement's success does.
func HeldByProgram() bool {
	var callers [48]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	inside := false
	for {
		frame, more := frames.Next()
		method, ok := methodOf(frame.Function)
		if ok && (strings.HasPrefix(method, "(*Conn).") || strings.HasPrefix(method, "(*Tx).")) {
			return true
		}
		if inside && !ok || !more {
			return false
		}
		inside = ok
	}
}

// The beginnings of the names of its functions, and of those of module pgxpooldriver, which stands in its place and has a
// Conn and a Tx, too.
const (
	databaseSQL = "database/sql."
	ofPgx       = "github.com/pooldriver/pooldriver/pgxpooldriver."
)

// methodOf is a function of database/sql, or of what stands in its place.
func methodOf(function string) (method string, ok bool) {
	if method, ok = strings.CutPrefix(function, databaseSQL); ok {
		return method, true
	}
	return strings.CutPrefix(function, ofPgx)
}

func isDatabaseSQL(f runtime.Frame) bool {
	_, ok := methodOf(f.Function)
	return ok
}
