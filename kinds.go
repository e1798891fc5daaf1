package pooldriver

import (
	"database/sql/driver"
	"time"
)

// A server that keeps the types of a prepared statement's parameters
// (dialects.Traits.PreparedKeepsTypes) converts what comes later to those of the
// first execution: MySQL makes 0 of 'abc' where a number was. A statement that is
// kept is therefore executed with arguments of the same kinds only; for others it is
// prepared anew, as the driver does for each plain query.

// kind is what a server tells arguments apart by.
type kind uint8

const (
	kindNull kind = iota // goes with every other
	kindSigned
	kindUnsigned
	kindFloat
	kindBool
	kindText
	kindTime
	kindOther
)

func kindOf(v driver.Value) kind {
	switch v.(type) {
	case nil:
		return kindNull
	case int64:
		return kindSigned
	case uint64:
		return kindUnsigned
	case float64, float32:
		return kindFloat
	case bool:
		return kindBool
	case string, []byte:
		return kindText
	case time.Time:
		return kindTime
	}
	return kindOther
}

// fits reports whether s, as it was executed so far, can be executed with args, and
// remembers their kinds.
func (s *realStmt) fits(args []driver.NamedValue) bool {
	if s.kinds == nil {
		s.kinds = make([]kind, len(args))
	}
	if len(s.kinds) != len(args) {
		return false
	}
	for i := range args {
		k := kindOf(args[i].Value)
		if k == kindNull || k == s.kinds[i] {
			continue
		}
		if s.kinds[i] != kindNull {
			return false
		}
		s.kinds[i] = k
	}
	return true
}

// refits lets t run with a statement prepared anew if the kept one was executed with
// arguments of other kinds.
func (c *conn) refits(t *try, s *realStmt) bool {
	r := t.real
	if !r.traits.PreparedKeepsTypes || s.fits(t.args) {
		return false
	}
	r.stmts.expire(s)
	r.stmts.done(s)
	c.endTurn(t)
	return true
}
