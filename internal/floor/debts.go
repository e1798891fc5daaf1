package floor

import (
	"slices"

	"github.com/pooldriver/pooldriver/dialects"
)

// Debts are the floors to which a session owes a position: under their contexts, statements that may write were sent on it.
// From then on only the primary serves these contexts, until the session has no transaction and no rows open and Settle
// tells how far the log is. The session's lock protects Debts.
type Debts struct {
	owed   []*Floor // the floors whose position is owed, each once
	failed bool     // what has become of a statement is not known
}

// Owe is called before a statement that may write is sent under the context of f; nil: that keeps no floor.
func (d *Debts) Owe(f *Floor) {
	if f == nil || slices.Contains(d.owed, f) {
		return
	}
	d.owed = append(d.owed, f)
	f.all.mu.Lock()
	defer f.all.mu.Unlock()
	f.pending++
}

// Any reports whether the session owes anything.
func (d *Debts) Any() bool { return len(d.owed) > 0 }

// Fail records that nobody knows what has become of a statement.
func (d *Debts) Fail() { d.failed = d.failed || d.Any() }

// Settle tells all floors the position that ask returns. After an error it is not known.
func (d *Debts) Settle(ask func() (dialects.Log, error)) {
	var few [4]uint64 // before the question: its answer may lack a write that is lost meanwhile
	marks := few[:0]
	for _, f := range d.owed {
		marks = append(marks, f.Mark())
	}
	var log dialects.Log
	if !d.failed {
		if answer, err := ask(); err == nil {
			log = answer
		}
	}
	for i, f := range d.owed {
		f.settle(marks[i], log)
	}
	clear(d.owed)
	d.owed, d.failed = d.owed[:0], false
}

// Drop settles with no position.
func (d *Debts) Drop() {
	if !d.Any() {
		return
	}
	d.failed = true
	d.Settle(nil)
}

func (f *Floor) settle(mark uint64, log dialects.Log) {
	f.all.mu.Lock()
	defer f.all.mu.Unlock()
	f.pending--
	if log.Position == "" {
		f.lose()
		return
	}
	f.raise(mark, log)
}
