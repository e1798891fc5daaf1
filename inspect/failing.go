package inspect

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// class says what a class of SQLSTATE means, where that is worth a word.
type class struct {
	name  string
	says  string
	grave bool   // a few of these are too many
	share uint64 // one of so many statements that fails is not usual
}

// classes are those of which many are not usual. The others are the program's own business: constraints, conflicts.
var classes = []class{
	{"53", "no room: a disk, the memory or a limit is full", true, 20},
	{"58", "an error of the server's system or disk", true, 20},
	{"XX", "an error inside the server", true, 20},
	{"22", "a value is wrong, or a sequence is at its end", false, 4},
	{"25", "the server is read-only, or the transaction is in the wrong state", false, 20},
	{"42", "a wrong text, or a right is missing", false, 20},
	{"54", "a limit of the server", false, 20},
	{"55", "a lock could not be had, or the object is not ready", false, 20},
	{"57", "ended by a timeout, or by the server", false, 20},
	{"HY", "an error without a class", false, 20},
	{"other", "an error without a SQLSTATE", false, 20},
}

// addErrors looks at the statements that have failed in Window.
func (f *facts) addErrors() {
	type failed struct {
		class
		n uint64
	}
	var all []failed
	for _, c := range classes {
		if n := f.Window.Errors[c.name]; n > 0 {
			all = append(all, failed{c, n})
			f.errors += n
			f.shares += n * c.share
			if c.grave {
				f.grave += n
			}
		}
	}
	slices.SortStableFunc(all, func(a, b failed) int { return cmp.Compare(b.n, a.n) })
	var list []string
	for _, c := range all {
		list = append(list, fmt.Sprintf("%d of class %s (%s)", c.n, c.name, c.says))
	}
	f.failing = strings.Join(list, ", ")
}

// fewErrors is how many statements may fail in Window without a word.
const fewErrors = 5

// manyFail reports whether so many fail as is not usual.
func (f *facts) manyFail() bool { return f.errors >= fewErrors && f.shares >= f.Window.Ended }

func (f *facts) statementsFail() string {
	return fmt.Sprintf("%sIn the last %s statements failed: %s. %s, and %s.", f.prefixWait(), Brief(window), f.failing, f.use, f.nobody)
}
