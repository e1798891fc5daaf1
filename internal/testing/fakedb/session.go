package fakedb

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// session is the server's side of one connection. Its fields are guarded by
// the server's mutex.
type session struct {
	server *Server
	id     int
	dead   bool

	inTx       bool
	isolation  driver.IsolationLevel
	readOnly   bool
	undo       []func()
	savepoints []savepoint

	vars     map[string]any
	option   any
	temp     map[string]*table
	prepared map[*stmt]bool
	openRows int
	executed int
	insertID int64
}

type savepoint struct {
	name string
	undo int // length of the undo log when it was set
}

type table struct {
	name    string
	columns []column
	rows    []*row
}

type row struct{ values []any }

func (x *session) describeLocked() Session {
	d := Session{
		ID: x.id, InTx: x.inTx, Isolation: x.isolation, ReadOnly: x.readOnly,
		Vars: maps.Clone(x.vars), OpenRows: x.openRows, Executed: x.executed,
		Temp: slices.Sorted(maps.Keys(x.temp)),
	}
	for s := range x.prepared {
		d.Prepared = append(d.Prepared, s.parsed.text)
	}
	slices.Sort(d.Prepared)
	return d
}

// Errors of transactions.
var (
	ErrTxOpen   = errors.New("fakedb: a transaction is open already")
	ErrReadOnly = errors.New("fakedb: the transaction is read-only")
)

// UnsupportedIsolation is the one isolation level the server does not know.
const UnsupportedIsolation = driver.IsolationLevel(5) // sql.LevelSnapshot

func (x *session) beginLocked(opts driver.TxOptions) error {
	if x.inTx {
		return ErrTxOpen
	}
	if opts.Isolation == UnsupportedIsolation {
		return fmt.Errorf("fakedb: isolation level %d is not supported", opts.Isolation)
	}
	x.inTx, x.isolation, x.readOnly = true, opts.Isolation, opts.ReadOnly
	x.server.changedLocked()
	return nil
}

func (x *session) commitLocked() {
	x.inTx, x.isolation, x.readOnly = false, 0, false
	x.undo, x.savepoints = nil, nil
	x.server.changedLocked()
}

func (x *session) rollbackLocked() {
	x.undoLocked(0)
	x.commitLocked()
}

func (x *session) undoLocked(length int) {
	for i := len(x.undo) - 1; i >= length; i-- {
		x.undo[i]()
	}
	x.undo = x.undo[:length]
}

// changeLocked does what do does, and remembers how to undo it.
func (x *session) changeLocked(do, undo func()) {
	do()
	if x.inTx {
		x.undo = append(x.undo, undo)
	}
}

func (x *session) savepointLocked(name string) (int, error) {
	for i := len(x.savepoints) - 1; i >= 0; i-- {
		if x.savepoints[i].name == name {
			return i, nil
		}
	}
	return 0, fmt.Errorf("fakedb: no such savepoint: %s", name)
}

func (x *session) tableLocked(name string) (*table, error) {
	if t := x.temp[name]; t != nil {
		return t, nil
	}
	if t := x.server.tables[name]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("fakedb: no such table: %s", name)
}

func (t *table) index(name string) (int, error) {
	for i, c := range t.columns {
		if c.name == name {
			return i, nil
		}
	}
	return 0, fmt.Errorf("fakedb: no such column: %s", name)
}

func (t *table) remove(r *row) {
	t.rows = slices.DeleteFunc(t.rows, func(other *row) bool { return other == r })
}
