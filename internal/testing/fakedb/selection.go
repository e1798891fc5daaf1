package fakedb

import (
	"database/sql/driver"
	"fmt"
)

// evaluate computes an expression; t and r are nil where no row is at hand.
func evaluate(e expr, t *table, r *row, args []driver.NamedValue) (any, error) {
	switch e.kind {
	case literalExpr:
		return e.value, nil
	case argExpr:
		n := 0
		for _, a := range args {
			if a.Name == "" {
				if n++; n == e.index {
					return a.Value, nil
				}
			}
		}
		return nil, fmt.Errorf("fakedb: argument %d is missing", e.index)
	case namedArgExpr:
		for _, a := range args {
			if a.Name == e.name {
				return a.Value, nil
			}
		}
		return nil, fmt.Errorf("fakedb: argument :%s is missing", e.name)
	case columnExpr:
		if t == nil {
			return nil, fmt.Errorf("fakedb: no such column: %s", e.name)
		}
		i, err := t.index(e.name)
		if err != nil {
			return nil, err
		}
		return r.values[i], nil
	case starExpr, countExpr:
	}
	return nil, fmt.Errorf("fakedb: * is not a value")
}

// selectLocked runs a SELECT.
func (x *session) selectLocked(s *statement, args []driver.NamedValue) (*resultSet, error) {
	set := &resultSet{limit: -1, breakAt: -1}
	if s.limit != nil {
		v, err := evaluate(*s.limit, nil, nil, args)
		if err != nil {
			return nil, err
		}
		n, ok := v.(int64)
		if !ok {
			return nil, fmt.Errorf("fakedb: LIMIT needs an integer, not %T", v)
		}
		set.limit = n
	}
	if s.name == "" {
		return set, set.constant(s, args)
	}
	if s.name == "numbers" {
		if set.limit < 0 {
			return nil, fmt.Errorf("fakedb: numbers needs a LIMIT")
		}
		return numbers(set.limit), nil
	}
	t, err := x.tableLocked(s.name)
	if err != nil {
		return nil, err
	}
	found, err := t.matchLocked(s.where, args)
	if err != nil {
		return nil, err
	}
	if len(s.items) == 1 && s.items[0].expr.kind == countExpr {
		n := int64(len(found))
		set.columns = []column{columnFor("count", n)}
		set.rows = [][]any{{n}}
		return set, nil
	}
	return set, set.project(s, t, found, args)
}

// numbers is the beginning of the table of that name.
func numbers(limit int64) *resultSet {
	return &resultSet{columns: []column{columnFor("n", int64(0))}, endless: true, limit: limit, breakAt: -1}
}

// constant fills the set with the one row of a SELECT without FROM.
func (set *resultSet) constant(s *statement, args []driver.NamedValue) error {
	var values []any
	for _, it := range s.items {
		v, err := evaluate(it.expr, nil, nil, args)
		if err != nil {
			return err
		}
		values = append(values, cloneValue(v))
		set.columns = append(set.columns, columnFor(it.name, v))
	}
	set.rows = [][]any{values}
	return nil
}

// project fills the set with what the items make of the rows found.
func (set *resultSet) project(s *statement, t *table, found []*row, args []driver.NamedValue) error {
	for _, it := range s.items {
		switch it.expr.kind {
		case starExpr:
			set.columns = append(set.columns, t.columns...)
		case columnExpr:
			i, err := t.index(it.expr.name)
			if err != nil {
				return err
			}
			c := t.columns[i]
			c.name = it.name
			set.columns = append(set.columns, c)
		default:
			v, err := evaluate(it.expr, nil, nil, args)
			if err != nil {
				return err
			}
			set.columns = append(set.columns, columnFor(it.name, v))
		}
	}
	for _, r := range found {
		var values []any
		for _, it := range s.items {
			if it.expr.kind == starExpr {
				values = append(values, r.values...)
				continue
			}
			v, err := evaluate(it.expr, t, r, args)
			if err != nil {
				return err
			}
			values = append(values, cloneValue(v))
		}
		set.rows = append(set.rows, values)
	}
	return nil
}

// row returns the values of the nth row, from 0, and false behind the last.
func (set *resultSet) row(n int64) ([]any, bool) {
	if set.limit >= 0 && n >= set.limit {
		return nil, false
	}
	if set.endless {
		return []any{n}, true
	}
	if n >= int64(len(set.rows)) {
		return nil, false
	}
	return set.rows[n], true
}
