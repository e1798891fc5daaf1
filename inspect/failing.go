package inspect

import (
	"cmp"
	"fmt"
	"maps"
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

// classes have a meaning. Of those at the end, and of others, it is the program's own business that some fail: constraints, conflicts,
// what it raises itself.
var classes = []class{
	{"53", "no room: a disk, the memory or a limit is full", true, 20},
	{"58", "an error of the server's system or disk", true, 20},
	{"XX", "an error inside the server", true, 20},
	{"25", "the server is read-only, or the transaction is in the wrong state", false, 20},
	{"42", "a wrong text, or a right is missing", false, 20},
	{"54", "a limit of the server", false, 20},
	{"55", "a lock could not be had, or the object is not ready", false, 20},
	{"57", "ended by a timeout, or by the server", false, 20},
	{"70", "ended by a timeout, or by the server", false, 20}, // MariaDB and MySQL
	{"HY", "an error without a class", false, 20},
	{"other", "an error without a SQLSTATE", false, 20},
	{"22", "a value is wrong, or a sequence is at its end", false, 4},
	{"23", "a constraint, or no partition for a row", false, 4},
	{"40", "a conflict of transactions", false, 4},
}

func classOf(name string) class {
	if i := slices.IndexFunc(classes, func(c class) bool { return c.name == name }); i >= 0 {
		return classes[i]
	}
	return class{name: name, share: 4}
}

// addErrors looks at the statements that have failed in Window. That its caller goes away is no fault of a statement.
func (f *facts) addErrors() {
	names := slices.DeleteFunc(slices.Collect(maps.Keys(f.Window.Errors)), func(name string) bool { return name == "ended" || f.Window.Errors[name] == 0 })
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(f.Window.Errors[b], f.Window.Errors[a]), cmp.Compare(a, b))
	})
	var list []string
	for _, name := range names {
		c, n := classOf(name), f.Window.Errors[name]
		f.errors += n
		f.shares += n * c.share
		if c.grave {
			f.grave += n
		}
		list = append(list, fmt.Sprintf("%d of class %s", n, name)+between(" (", c.says, ")"))
	}
	f.failing = strings.Join(list, ", ")
}

// fewErrors is how many statements may fail in Window without a word.
const fewErrors = 5

// manyFail reports whether so many fail as is not usual.
func (f *facts) manyFail() bool { return f.errors >= fewErrors && f.shares >= f.Window.Ended }

// mostFail reports whether half of the statements fail, not by the program's own business, and not because connections are lost.
func (f *facts) mostFail() bool {
	return f.errors >= fewErrors && f.shares >= 10*f.Window.Ended && f.Window.Lost < mostLost
}

func (f *facts) statementsFail() string {
	return fmt.Sprintf("%sIn the last %s statements failed: %s. %s, and %s.", f.prefixWait(), Brief(window), f.failing, f.use, f.nobody)
}
