// Package dbsettings keeps what a program sets on a *sql.DB whose database is the
// program's own (SQLite), and says what each connection must execute to have the same
// settings. It calls no driver: its caller executes the statements.
package dbsettings

import (
	"context"
	"database/sql/driver"
	"errors"
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
	nextTx atomic.Pointer[string]
	// forVacuum is the statement of a setting that is executed before each VACUUM; nil: none.
	forVacuum atomic.Pointer[string]
	mu        sync.Mutex // protects following fields; no I/O under it
	entries   []entry    // a new slice for each change
}

// entry is one setting. It does not change while it is in a list.
type entry struct {
	dialects.Setting
	args    []driver.NamedValue
	version uint64
	failed  *atomic.Bool // it has failed on a connection lately, and may take long to fail again
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
	// lacking is the entries with an Undo that have failed on the connection, and the entries that
	// belong to them.
	lacking []entry
}

// Lacks reports whether the connection lacks a setting that has failed on it.
func (a *Applied) Lacks() bool { return a.lacking != nil }

func (a *Applied) remember(e entry) {
	if e.Undo != "" {
		a.undoable = append(a.undoable, e)
	}
}

func (a *Applied) forget(name string) {
	a.undoable = slices.DeleteFunc(a.undoable, func(e entry) bool { return e.Name == name })
	a.keepLacking(func(e entry) bool { return e.Name != name && e.Of != name })
}

func (a *Applied) keepLacking(keep func(entry) bool) {
	var left []entry
	for _, e := range a.lacking {
		if keep(e) {
			left = append(left, e)
		}
	}
	a.lacking = left
}

// settled reports whether a has executed e, or lacks it.
func (a *Applied) settled(e entry) bool {
	return slices.ContainsFunc(a.undoable, e.is) || slices.ContainsFunc(a.lacking, e.is)
}

// Init notes what the dialect knows of settings. It is called before any other method.
func (l *List) Init(d dialects.Dialect) { l.keeper, _ = d.(dialects.SettingsKeeper) }

// Current reports whether a connection has all settings.
func (l *List) Current(a *Applied) bool { return a.version == l.version.Load() }

// Record keeps what query has set on the connection of a. known: the dialect knows what
// query has set, so nothing is lost. all: every connection gets the settings, so this connection
// need not be cleaned. repeatable is Repeatable of dialects.SettingRepeater.
func (l *List) Record(a *Applied, query string, args []driver.NamedValue, repeatable func(dialects.Setting, []driver.NamedValue) string) (known, all bool) {
	if l.keeper == nil {
		return false, false
	}
	parts, alone, complete := l.keeper.Settings(query)
	if len(parts) == 0 || len(args) > 0 && !alone {
		return false, false // only the driver knows which argument belongs to which part
	}
	args = cloned(args)
	for i, part := range parts {
		if part.Undo != "" && !part.Ends {
			parts[i].Text = repeatable(part, args)
		}
	}
	all = complete
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, part := range parts {
		if part.ForVacuum {
			l.forVacuum.Store(&part.Text)
			continue
		}
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
	return complete, all
}

// Refusal returns why query must not be executed on one connection; nil: it may.
func (l *List) Refusal(query string) error {
	if l.keeper == nil {
		return nil
	}
	parts, _, _ := l.keeper.Settings(query)
	for _, part := range parts {
		if part.Refusal != nil {
			return part.Refusal
		}
	}
	return nil
}

// ForVacuum is the statement to execute before a VACUUM; "": there is none.
func (l *List) ForVacuum() string {
	if text := l.forVacuum.Load(); text != nil {
		return *text
	}
	return ""
}

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
	e := entry{part, args, now, new(atomic.Bool)}
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

// Execute executes a statement on a connection.
type Execute func(text string, args ...driver.NamedValue) error

// BringUp gives a connection all settings. Through execute, it first undoes settings that are no
// longer in the list, and then sets what the connection lacks, in the list's order. A setting with
// Undo that fails is left out: see Complete. After an error, BringUp can be called again.
func (l *List) BringUp(a *Applied, execute Execute) error {
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
	a.keepLacking(func(e entry) bool { return slices.ContainsFunc(entries, e.is) })
	for _, e := range entries {
		if e.version <= a.version || a.settled(e) {
			continue
		}
		if e.failed.Load() {
			a.lacking = append(a.lacking, e)
		} else if err := a.set(e, execute); err != nil && e.Undo == "" {
			return err
		}
	}
	a.version = version
	return nil
}

// set executes e.
func (a *Applied) set(e entry, execute Execute) error {
	if e.Of != "" && contains(a.lacking, e.Of) {
		a.lacking = append(a.lacking, e)
		return nil
	}
	if err := execute(e.Text, e.args...); err != nil {
		if e.Undo != "" {
			e.failed.Store(!errors.Is(err, context.Canceled)) // a cancelled context says nothing about the setting
			a.lacking = append(a.lacking, e)
		}
		return fmt.Errorf("%s: %w", e.Name, err)
	}
	e.failed.Store(false)
	a.remember(e)
	return nil
}

// Complete tries once more to set what the connection lacks.
func (a *Applied) Complete(execute Execute) error {
	var failed []error
	lacking := a.lacking
	a.lacking = nil
	for _, e := range lacking {
		if err := a.set(e, execute); err != nil {
			failed = append(failed, err)
			if e.Undo == "" {
				a.lacking = append(a.lacking, e)
			}
		}
	}
	return errors.Join(failed...)
}

// StandIn lets query, which may end a setting, succeed on a connection that lacks the setting. It reports
// whether it has executed anything.
func (l *List) StandIn(a *Applied, query string, execute Execute) (done bool) {
	parts, _, _ := l.keeper.Settings(query)
	for _, part := range parts {
		if part.Ends && part.Undo != "" && contains(a.lacking, part.Name) {
			done = execute(part.Undo) == nil || done
		}
	}
	return done
}
