package pooldriver

import (
	"context"
	"database/sql/driver"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/pool"
)

// What a program sets on the *sql.DB of a database that is the program's own (SQLite)
// holds for every connection of the Connector. A connection is brought up to it when
// it is taken from the pool, before its next use.

// settings is what was set, in the order in which it was last set. It is bounded:
// there is one entry for each name, and the dialect knows so many names.
type settings struct {
	keeper dialects.SettingsKeeper // nil: the dialect keeps nothing

	// version counts the changes of list. A connection that has the same one is
	// brought up to it.
	version atomic.Uint64
	mu      sync.Mutex // protects following fields; no I/O under it
	list    []setting
}

// setting is an entry. It is not changed once it is in a list.
type setting struct {
	dialects.Setting
	args    []driver.NamedValue
	version uint64
}

func (s setting) is(other setting) bool { return s.version == other.version && s.Name == other.Name }

// applied is what a connection has of it.
type applied struct {
	version uint64
	// undoable are the entries with an Undo that it has executed.
	undoable []setting
}

// keep remembers what the only statement of a checkout has set on r. The holder of r
// calls it at the checkout's end. known: the dialect knows what the statement has set,
// so nothing is lost. all: every connection gets it, so r need not be cleaned.
func (s *settings) keep(r *realConn, query string, args []driver.NamedValue) (known, all bool) {
	if s.keeper == nil {
		return false, false
	}
	parts := s.keeper.Settings(query)
	if len(parts) == 0 || len(args) > 0 && len(parts) > 1 {
		return false, false // only the driver knows which argument belongs to which part
	}
	args = cloned(args)
	all = true
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, part := range parts {
		if s.concernsLocked(r, part) {
			s.putLocked(r, part, args)
			continue
		}
		all = false
		if part.Ends {
			r.applied.forget(part.Name)
		}
	}
	return true, all
}

// concernsLocked reports whether a statement that r has executed means something to the
// others: not if it ends what was not set here, or sets what they have, or belongs to
// what somebody else has ended meanwhile.
func (s *settings) concernsLocked(r *realConn, part dialects.Setting) bool {
	if part.Ends || part.Default {
		return contains(s.list, part.Name)
	}
	return part.Of == "" || contains(s.list, part.Of) || !contains(r.applied.undoable, part.Of)
}

func contains(list []setting, name string) bool {
	return slices.ContainsFunc(list, func(e setting) bool { return e.Name == name })
}

// putLocked changes the list by one statement, which r has executed. If r has all that
// was set before, it has all that is set now; if another has set something since r was
// brought up, r executes both before its next use, in their order. What belongs to a
// setting that is made anew comes after it again.
func (s *settings) putLocked(r *realConn, part dialects.Setting, args []driver.NamedValue) {
	now := s.version.Load() + 1
	var again []setting
	s.list = slices.DeleteFunc(slices.Clone(s.list), func(e setting) bool {
		if e.Of == part.Name && !part.Ends {
			e.version = now
			again = append(again, e)
		}
		return e.Name == part.Name || e.Of == part.Name
	})
	entry := setting{part, args, now}
	r.applied.forget(part.Name)
	if !part.Ends {
		s.list = append(append(s.list, entry), again...)
		r.applied.remember(entry)
	}
	if r.applied.version == now-1 && len(again) == 0 {
		r.applied.version = now
	}
	s.version.Store(now)
}

func (s *settings) now() ([]setting, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list, s.version.Load()
}

func cloned(args []driver.NamedValue) []driver.NamedValue {
	args = slices.Clone(args)
	for i, a := range args {
		if b, ok := a.Value.([]byte); ok {
			args[i].Value = slices.Clone(b)
		}
	}
	return args
}

func (a *applied) remember(e setting) {
	if e.Undo != "" {
		a.undoable = append(a.undoable, e)
	}
}

func (a *applied) forget(name string) {
	a.undoable = slices.DeleteFunc(a.undoable, func(e setting) bool { return e.Name == name })
}

func (a *applied) has(e setting) bool {
	return slices.ContainsFunc(a.undoable, e.is)
}

// broughtUp brings a connection that was taken from the pool up to what was set. If
// it fails, or the driver panics, the connection is closed, unless that would be the end
// of its database.
func (c *Connector) broughtUp(ctx context.Context, lease pool.Lease[*realConn]) (err error) {
	r := lease.Value()
	if r.applied.version == c.settings.version.Load() {
		return nil
	}
	done := false
	defer func() {
		if !done {
			c.stats.discards.Add(1)
			discard(r, lease)
		}
	}()
	list, version := c.settings.now()
	if err := r.bringUp(ctx, list); err != nil {
		if r.Irreplaceable() { // it is tried again at its next use
			done = true
			mustEnd(lease.Release())
		}
		return fmt.Errorf("pooldriver: a connection to %s could not be given what was set on its *sql.DB: %w", c.template.Target(), err)
	}
	r.applied.version = version
	r.Statements().MarkAllStale()
	done = true
	return nil
}

// bringUp executes what r lacks of list, in order, after it has undone what is in it
// no more.
func (r *realConn) bringUp(ctx context.Context, list []setting) error {
	for _, mine := range slices.Clone(r.applied.undoable) {
		if slices.ContainsFunc(list, mine.is) {
			continue
		}
		if err := r.Command(ctx, mine.Undo); err != nil {
			return fmt.Errorf("taking back %s: %w", mine.Name, err)
		}
		r.applied.forget(mine.Name)
	}
	for _, e := range list {
		if e.version <= r.applied.version || r.applied.has(e) {
			continue
		}
		if err := r.Command(ctx, e.Text, e.args...); err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
		r.applied.remember(e)
	}
	return nil
}
