// Package dbsettings keeps what a program sets on a *sql.DB whose database is the
// program's own (SQLite), and says what each connection must execute to have the same
// settings. It calls no driver: its caller executes the statements.
package dbsettings

import (
	"database/sql/driver"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pooldriver/pooldriver/dialects"
)

// List is the settings of one *sql.DB, in the order in which the program last set them.
// It has one entry for each name. The dialect knows a bounded number of names, so the
// list is bounded, too. The zero value keeps nothing.
type List struct {
	keeper dialects.SettingsKeeper // nil: the dialect has no such settings

	// version counts the changes of entries. A connection of the same version has all
	// entries.
	version atomic.Uint64
	// nextTx is the statement of a setting that waits for the next transaction; nil: none.
	nextTx  atomic.Pointer[string]
	mu      sync.Mutex // protects following fields; no I/O under it
	entries []entry    // a new slice for each change
}

// entry is one setting. It does not change while it is in a list.
type entry struct {
	dialects.Setting
	args    []driver.NamedValue
	version uint64
}

func (e entry) is(other entry) bool { return e.version == other.version && e.Name == other.Name }

func contains(entries []entry, name string) bool {
	return slices.ContainsFunc(entries, func(e entry) bool { return e.Name == name })
}

// Applied says which settings one connection has. The zero value is right for a new connection.
// Only the holder of the connection uses it.
type Applied struct {
	version uint64
	// undoable is the entries with an Undo that the connection has executed.
	undoable []entry
}

func (a *Applied) remember(e entry) {
	if e.Undo != "" {
		a.undoable = append(a.undoable, e)
	}
}

func (a *Applied) forget(name string) {
	a.undoable = slices.DeleteFunc(a.undoable, func(e entry) bool { return e.Name == name })
}

func (a *Applied) has(e entry) bool { return slices.ContainsFunc(a.undoable, e.is) }

// Init notes what the dialect knows of settings. It is called before any other method.
func (l *List) Init(d dialects.Dialect) { l.keeper, _ = d.(dialects.SettingsKeeper) }

// Current reports whether a connection has all settings.
func (l *List) Current(a *Applied) bool { return a.version == l.version.Load() }

// Record keeps what query has set on the connection of a. known: the dialect knows what
// query has set, so nothing is lost. all: every connection gets the settings, so this connection
// need not be cleaned.
func (l *List) Record(a *Applied, query string, args []driver.NamedValue) (known, all bool) {
	if l.keeper == nil {
		return false, false
	}
	parts, alone := l.keeper.Settings(query)
	if len(parts) == 0 || len(args) > 0 && !alone {
		return false, false // only the driver knows which argument belongs to which part
	}
	args = cloned(args)
	all = true
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, part := range parts {
		if part.NextTx {
			var waits *string
			if !part.Ends {
				waits = &part.Text
			}
			l.nextTx.Store(waits)
			all = false // the connection has the setting, but its next borrower is somebody else
			continue
		}
		if l.concernsLocked(a, part) {
			l.putLocked(a, part, args)
			continue
		}
		all = false
		if part.Ends {
			a.forget(part.Name)
		}
	}
	return true, all
}

// Private reports whether query sets up something that would be different for each connection.
func (l *List) Private(query string) bool {
	if l.keeper == nil {
		return false
	}
	parts, _ := l.keeper.Settings(query)
	return slices.ContainsFunc(parts, func(s dialects.Setting) bool { return s.Private })
}

// WaitsForTx reports whether a setting waits for the next transaction.
func (l *List) WaitsForTx() bool { return l.nextTx.Load() != nil }

// TakeNextTx returns and removes the statement of a setting that waits for the next transaction.
// The next transaction is the caller's. The result is "" if no setting waits.
func (l *List) TakeNextTx() string {
	if l.nextTx.Load() == nil {
		return "" // the usual case: no write
	}
	if text := l.nextTx.Swap(nil); text != nil {
		return *text
	}
	return ""
}

// KeepNextTx keeps a setting that was taken for a transaction that has not begun.
func (l *List) KeepNextTx(text string) { l.nextTx.CompareAndSwap(nil, &text) }

// concernsLocked reports whether the other connections must execute part, too. They need not if
// part ends a setting that was never set here, or sets a value that they have anyway, or belongs to
// a setting that another connection has ended meanwhile.
func (l *List) concernsLocked(a *Applied, part dialects.Setting) bool {
	if part.Ends || part.Default {
		return contains(l.entries, part.Name)
	}
	return part.Of == "" || contains(l.entries, part.Of) || !contains(a.undoable, part.Of)
}

// putLocked changes the list by one part, which the connection of a has executed. If the
// connection had all settings before, it has all settings now. If it lacked some, it
// executes the missing ones and part in the list's order before its next use. If part
// replaces a setting that others belong to, those follow part in the list again.
func (l *List) putLocked(a *Applied, part dialects.Setting, args []driver.NamedValue) {
	now := l.version.Load() + 1
	var again []entry
	l.entries = slices.DeleteFunc(slices.Clone(l.entries), func(e entry) bool {
		if e.Of == part.Name && !part.Ends {
			e.version = now
			again = append(again, e)
		}
		return e.Name == part.Name || e.Of == part.Name
	})
	e := entry{part, args, now}
	a.forget(part.Name)
	if !part.Ends {
		l.entries = append(append(l.entries, e), again...)
		a.remember(e)
	}
	if a.version == now-1 && len(again) == 0 {
		a.version = now
	}
	l.version.Store(now)
}

// cloned copies arguments, which belong to the caller after its statement.
func cloned(args []driver.NamedValue) []driver.NamedValue {
	args = slices.Clone(args)
	for i, a := range args {
		if b, ok := a.Value.([]byte); ok {
			args[i].Value = slices.Clone(b)
		}
	}
	return args
}

// BringUp gives a connection all settings. Through execute, it first undoes settings that the list
// has no more, and then sets what the connection lacks, in the list's order. After an error,
// BringUp can be called again.
func (l *List) BringUp(a *Applied, execute func(text string, args ...driver.NamedValue) error) error {
	l.mu.Lock()
	entries, version := l.entries, l.version.Load()
	l.mu.Unlock()
	for _, mine := range slices.Clone(a.undoable) {
		if slices.ContainsFunc(entries, mine.is) {
			continue
		}
		if err := execute(mine.Undo); err != nil {
			return fmt.Errorf("taking back %s: %w", mine.Name, err)
		}
		a.forget(mine.Name)
	}
	for _, e := range entries {
		if e.version <= a.version || a.has(e) {
			continue
		}
		if err := execute(e.Text, e.args...); err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
		a.remember(e)
	}
	a.version = version
	return nil
}
