package sandbox

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/pooldriver/pooldriver/internal/goroutine"
)

// place is where a call came from, and in which goroutine.
type place struct {
	goroutine uint64
	stack     []uintptr
}

// here is the place of the call.
func here() place { return place{goroutine: goroutine.Number(), stack: callers()} }

// hereBelow is here for a call from below the sandbox's Connector. It has no goroutine.
func hereBelow() place { return place{stack: callers()} }

// callers are the calls above the caller of here or hereBelow. Between the program and the sandbox are
// some thirty calls of database/sql and of pooldriver.
func callers() []uintptr {
	var stack [64]uintptr
	n := runtime.Callers(4, stack[:])
	return append([]uintptr(nil), stack[:n]...)
}

// passed are the prefixes of functions that stand between the program and this package.
var passed = []string{
	"database/sql.", "github.com/pooldriver/pooldriver.", "github.com/pooldriver/pooldriver/internal/", "github.com/pooldriver/pooldriver/sandbox.",
	"github.com/pooldriver/pooldriver/pgxpooldriver.", "runtime.",
}

// frames returns the calls of the program, the innermost first. most limits their number.
func (p place) frames(most int) []string {
	var all []string
	outside := false
	for frames := runtime.CallersFrames(p.stack); len(all) < most; {
		f, more := frames.Next()
		outside = outside || f.Function != "" && !isPassed(f)
		if outside && f.Function != "" && !strings.HasPrefix(f.Function, "runtime.") && !strings.HasPrefix(f.Function, "testing.") {
			all = append(all, fmt.Sprintf("%s (%s:%d)", short(f.Function), filepath.Base(f.File), f.Line))
		}
		if !more {
			break
		}
	}
	return all
}

// isPassed reports whether a call stands between the program and this package. The tests of this
// package are a program.
func isPassed(f runtime.Frame) bool {
	if strings.HasSuffix(f.File, "_test.go") {
		return false
	}
	for _, prefix := range passed {
		if strings.HasPrefix(f.Function, prefix) {
			return true
		}
	}
	return false
}

func short(function string) string { return function[strings.LastIndexByte(function, '/')+1:] }

// String is the innermost call of the program: its file and line.
func (p place) String() string {
	if f := p.frames(1); len(f) > 0 {
		return f[0]
	}
	return "an unknown place"
}

// trace is the calls of the program, a line for each.
func (p place) trace() string {
	return "\t\t" + strings.Join(p.frames(8), "\n\t\t")
}

// through reports whether the calls go through a function whose name begins with the text function.
func (p place) through(function string) bool {
	for frames := runtime.CallersFrames(p.stack); ; {
		f, more := frames.Next()
		if strings.HasPrefix(f.Function, function) {
			return true
		}
		if !more {
			return false
		}
	}
}
