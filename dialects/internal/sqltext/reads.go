package sqltext

import "github.com/pooldriver/pooldriver/dialects"

// OnlyReads reports whether a text is known to read and do nothing else. A text that can be read in two
// ways is not known to read only. A text that locks rows does not only read: its locks last as long as its
// rows are open.
func (l *Language) OnlyReads(query string) bool {
	return l.Effect(query) == dialects.Clean && l.All(query, (*Statement).onlyReads)
}

// All reports whether a text is understood and can be read in one way only, and something holds for each of its
// statements.
func (l *Language) All(query string, holds func(*Statement) bool) bool {
	all, understood, certain := l.each(query, holds)
	return all && understood && certain
}

// AsksBack reports whether a text asks for what the last statement has left.
func (l *Language) AsksBack(query string) bool {
	none, _, _ := l.each(query, func(s *Statement) bool { return !s.asksBack() })
	return !none
}

// TakesLocks reports whether a text takes an advisory lock.
func (l *Language) TakesLocks(query string) bool {
	none, _, _ := l.each(query, func(s *Statement) bool {
		return !s.finds(func(i int) bool { return s.Has(i, AppLocks) && s.Mark(i+1, '(') })
	})
	return !none
}

// Understands reports whether a text, as it is likely to be read, is understood.
func (l *Language) Understands(query string) bool {
	_, understood, _ := l.each(query, func(*Statement) bool { return true })
	return understood
}

// each looks at the statements of a text, as it is likely to be read, until something does not hold. certain: it
// cannot be read in another way.
func (l *Language) each(query string, holds func(*Statement) bool) (all, understood, certain bool) {
	s := statements.Get().(*Statement)
	defer s.release()
	for s.begin(l, query, 0); s.next(); s.finish() {
		if !holds(s) {
			return false, false, false
		}
	}
	return true, !s.strange && !s.misread, s.doubt == 0
}

func (s *Statement) onlyReads() bool {
	i := 0
	for s.Mark(i, '(') {
		i++
	}
	if !s.Mark(i, End) && !s.Has(i, First) {
		return false
	}
	for ; !s.Mark(i, End); i++ {
		switch t := s.At(i); {
		case t.Kind == ',':
			s.skipValues(i)
		case t.IsName() && s.acts(i):
			return false
		}
	}
	return true
}

// acts reports whether the name at i may do more than read.
func (s *Statement) acts(i int) bool {
	role, called := s.Role(i), s.Mark(i+1, '(')
	switch {
	case role&Acts != 0 && (called || s.Mark(i, Word)):
		return true
	case role&Locks != 0 && (s.Is(i-1, "for") || s.Is(i-1, "key") || s.Is(i-1, "in")):
		return true
	case called && s.lang.Pure && role&Pure == 0:
		return true
	}
	// A function may be called in the notation of an attribute: (ROW($1)::t).f.
	return s.Mark(i-1, '.') && (s.Mark(i-2, ')') || s.Mark(i-2, ']'))
}

func (s *Statement) asksBack() bool {
	shows := s.Is(0, "show") || s.Is(0, "get")
	return s.finds(func(i int) bool {
		role := s.Role(i)
		return role != 0 && (role&AsksShown != 0 && shows || s.asks(i, role))
	})
}

// finds reports whether something holds at a place in s.
func (s *Statement) finds(holds func(int) bool) bool {
	for i := 0; !s.Mark(i, End); i++ {
		if s.Mark(i, ',') {
			s.skipValues(i)
		}
		if holds(i) {
			return true
		}
	}
	return false
}

// asks reports whether the name at i asks for what the last statement has left.
func (s *Statement) asks(i int, role Role) bool {
	called := s.Mark(i+1, '(')
	return role&AsksCalled != 0 && called || role&AsksEmpty != 0 && called && s.Mark(i+2, ')') ||
		role&AsksValue != 0 && s.Is(i+1, "value") ||
		role&AsksSystem != 0 && (s.Mark(i-1, System) || s.Mark(i-1, '.') && s.Mark(i-3, System))
}
