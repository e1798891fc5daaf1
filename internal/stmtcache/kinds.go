package stmtcache

import (
	"database/sql/driver"
	"time"
)

// A server that keeps the types of a prepared statement's parameters
// (dialects.Traits.PreparedKeepsTypes) converts later arguments to the types of the first
// execution: if the first was a number, MySQL makes 0 of 'abc'. A cached statement is therefore
// executed with arguments of the same kinds only. For other kinds it is prepared again, as the
// driver does for each plain query.

// kind is the type of an argument as a server distinguishes it.
type kind uint8

const (
	kindNull kind = iota // NULL, which fits every kind
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

// Fits reports whether args have the kinds of the earlier executions of s, and records their kinds.
func (s *Stmt) Fits(args []driver.NamedValue) bool {
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
