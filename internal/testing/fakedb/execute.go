package fakedb

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// outcome is what one statement gave.
type outcome struct {
	result driver.Result
	set    *resultSet // nil for statements that give no rows
}

type resultSet struct {
	columns []column
	rows    [][]any
	endless bool // the table "numbers"
	limit   int64

	breakAt  int // fail after so many rows; -1 never
	breakErr error
}

// result is what Exec gives.
type result struct {
	lastID   int64
	affected int64
	noLastID bool
}

// ErrNoLastInsertID is what Result.LastInsertId answers under NoLastInsertID.
var ErrNoLastInsertID = errors.New("fakedb: LastInsertId is not supported")

func (r result) LastInsertId() (int64, error) {
	if r.noLastID {
		return 0, ErrNoLastInsertID
	}
	return r.lastID, nil
}

func (r result) RowsAffected() (int64, error) { return r.affected, nil }

// executeLocked runs one statement.
func (x *session) executeLocked(s *statement, text string, args []driver.NamedValue) (outcome, error) {
	if x.readOnly && slices.Contains([]verb{"create", "drop", "insert", "update", "delete"}, s.verb) && !s.temp {
		return outcome{}, ErrReadOnly
	}
	out, err := x.dispatchLocked(s, args)
	if err != nil {
		return outcome{}, err
	}
	x.executed++
	x.server.executed = append(x.server.executed, text)
	x.server.changedLocked()
	return out, nil
}

//nolint:cyclop // a table: a case for each verb
func (x *session) dispatchLocked(s *statement, args []driver.NamedValue) (outcome, error) {
	switch s.verb {
	case "ping":
		return outcome{result: result{}}, nil
	case "create":
		return x.createLocked(s)
	case "drop":
		return x.dropLocked(s)
	case "insert":
		return x.insertLocked(s, args)
	case "update":
		return x.updateLocked(s, args)
	case "delete":
		return x.deleteLocked(s, args)
	case "select":
		set, err := x.selectLocked(s, args)
		return outcome{result: result{}, set: set}, err
	case "begin":
		return outcome{result: result{}}, x.beginLocked(driver.TxOptions{})
	case "commit":
		x.commitLocked()
		return outcome{result: result{}}, nil
	case "rollback":
		x.rollbackLocked()
		return outcome{result: result{}}, nil
	case "savepoint", "release", "rollback to":
		return outcome{result: result{}}, x.savepointCommandLocked(s)
	case "set":
		v, err := evaluate(s.value, nil, nil, args)
		if err == nil {
			x.vars[s.name] = v
		}
		return outcome{result: result{}}, err
	case "show":
		v := x.showLocked(s.name)
		return outcome{result: result{}, set: &resultSet{
			columns: []column{columnFor(s.name, v)}, rows: [][]any{{v}}, limit: -1, breakAt: -1,
		}}, nil
	case "call":
		return x.callLocked(s, args)
	}
	panic("fakedb: unknown verb " + string(s.verb))
}

func (x *session) createLocked(s *statement) (outcome, error) {
	home := x.server.tables
	if s.temp {
		home = x.temp
	}
	if home[s.name] != nil {
		return outcome{}, fmt.Errorf("fakedb: table exists: %s", s.name)
	}
	x.changeLocked(
		func() { home[s.name] = &table{name: s.name, columns: s.columns} },
		func() { delete(home, s.name) })
	return outcome{result: driver.ResultNoRows}, nil
}

func (x *session) dropLocked(s *statement) (outcome, error) {
	t, err := x.tableLocked(s.name)
	if err != nil {
		return outcome{}, err
	}
	home := x.server.tables
	if x.temp[s.name] != nil {
		home = x.temp
	}
	x.changeLocked(func() { delete(home, s.name) }, func() { home[s.name] = t })
	return outcome{result: driver.ResultNoRows}, nil
}

func (x *session) insertLocked(s *statement, args []driver.NamedValue) (outcome, error) {
	t, err := x.tableLocked(s.name)
	if err != nil {
		return outcome{}, err
	}
	var added []*row
	for _, exprs := range s.rows {
		if len(exprs) != len(t.columns) {
			return outcome{}, fmt.Errorf("fakedb: table %s has %d columns, not %d", s.name, len(t.columns), len(exprs))
		}
		r := &row{}
		for i, e := range exprs {
			v, err := evaluate(e, nil, nil, args)
			if err != nil {
				return outcome{}, err
			}
			if v == nil && t.columns[i].notNull {
				return outcome{}, fmt.Errorf("fakedb: column %s is not null", t.columns[i].name)
			}
			r.values = append(r.values, cloneValue(v))
		}
		added = append(added, r)
	}
	for _, r := range added {
		x.changeLocked(func() { t.rows = append(t.rows, r) }, func() { t.remove(r) })
	}
	x.insertID = int64(len(t.rows))
	return outcome{result: result{lastID: x.insertID, affected: int64(len(added))}}, nil
}

// matchLocked returns the rows of t that the conditions select.
func (t *table) matchLocked(where []item, args []driver.NamedValue) ([]*row, error) {
	var found []*row
	for _, r := range t.rows {
		match := true
		for _, w := range where {
			i, err := t.index(w.name)
			if err != nil {
				return nil, err
			}
			v, err := evaluate(w.expr, t, r, args)
			if err != nil {
				return nil, err
			}
			match = match && sameValue(r.values[i], v)
		}
		if match {
			found = append(found, r)
		}
	}
	return found, nil
}

func (x *session) updateLocked(s *statement, args []driver.NamedValue) (outcome, error) {
	t, err := x.tableLocked(s.name)
	if err != nil {
		return outcome{}, err
	}
	found, err := t.matchLocked(s.where, args)
	if err != nil {
		return outcome{}, err
	}
	for _, r := range found {
		old, values := r.values, slices.Clone(r.values)
		for _, set := range s.items {
			i, err := t.index(set.name)
			if err != nil {
				return outcome{}, err
			}
			v, err := evaluate(set.expr, t, r, args)
			if err != nil {
				return outcome{}, err
			}
			values[i] = cloneValue(v)
		}
		x.changeLocked(func() { r.values = values }, func() { r.values = old })
	}
	return outcome{result: result{lastID: x.insertID, affected: int64(len(found))}}, nil
}

func (x *session) deleteLocked(s *statement, args []driver.NamedValue) (outcome, error) {
	t, err := x.tableLocked(s.name)
	if err != nil {
		return outcome{}, err
	}
	found, err := t.matchLocked(s.where, args)
	if err != nil {
		return outcome{}, err
	}
	for _, r := range found {
		x.changeLocked(func() { t.remove(r) }, func() { t.rows = append(t.rows, r) })
	}
	return outcome{result: result{lastID: x.insertID, affected: int64(len(found))}}, nil
}

func (x *session) savepointCommandLocked(s *statement) error {
	if !x.inTx {
		return errors.New("fakedb: savepoints need a transaction")
	}
	if s.verb == "savepoint" {
		x.savepoints = append(x.savepoints, savepoint{s.name, len(x.undo)})
		return nil
	}
	i, err := x.savepointLocked(s.name)
	if err != nil {
		return err
	}
	if s.verb == "release" {
		x.savepoints = x.savepoints[:i]
		return nil
	}
	x.undoLocked(x.savepoints[i].undo)
	x.savepoints = x.savepoints[:i+1]
	return nil
}

func (x *session) showLocked(name string) any {
	switch name {
	case "connection_id":
		return int64(x.id)
	case "transaction":
		if x.inTx {
			return "open"
		}
		return "none"
	case "isolation":
		return int64(x.isolation)
	case "read_only":
		return x.readOnly
	case "options":
		return x.option
	case "vars":
		return strings.Join(slices.Sorted(maps.Keys(x.vars)), ",")
	}
	return x.vars[name]
}

// callLocked knows one procedure, out, which answers through its argument.
func (x *session) callLocked(s *statement, args []driver.NamedValue) (outcome, error) {
	if s.name != "out" {
		return outcome{}, fmt.Errorf("fakedb: no such procedure: %s", s.name)
	}
	v, err := evaluate(s.value, nil, nil, args)
	if err != nil {
		return outcome{}, err
	}
	out, ok := v.(sql.Out)
	if !ok {
		return outcome{}, fmt.Errorf("fakedb: out needs a sql.Out, not %T", v)
	}
	dest, ok := out.Dest.(*string)
	if !ok {
		return outcome{}, fmt.Errorf("fakedb: out needs a *string, not %T", out.Dest)
	}
	if out.In {
		*dest += "+out"
	} else {
		*dest = "out"
	}
	return outcome{result: result{}}, nil
}
