package sqltext

import "github.com/pooldriver/pooldriver/dialects"

// Create is the effect of CREATE, which stands at i: what it makes may be temporary, and a query in it is
// executed.
func (s *Statement) Create(i int) dialects.Effect {
	e := dialects.Clean
	for i++; s.Has(i, Modifier|Temporary); i++ {
		if s.Has(i, Temporary) {
			e = s.lang.Temp
		}
	}
	if !s.Mark(i, Word) {
		return s.Scan(i) | s.lang.Unknown
	}
	if s.namesTemp(i + 1) {
		e = s.lang.Temp
	}
	switch {
	case s.Has(i, Table):
		s.call = dialects.Clean
		body := s.Scan(i)
		if s.Noted { // ON COMMIT DROP
			e &^= dialects.Stateful
		}
		return e | body
	case s.Has(i, Routine):
		return e | s.lang.Routine(s, i)
	}
	return e | s.lang.Create
}

// namesTemp reports whether a schema of temporary objects is named before the rest of a definition begins:
// IF NOT EXISTS pg_temp.f.
func (s *Statement) namesTemp(i int) bool {
	for from := i; i < from+LookAhead; i++ {
		switch t := s.At(i); {
		case t.Kind == Disguised && s.has(UnicodeNames):
			return true
		case t.IsName(), t.Kind == String:
			if s.Mark(i+1, '.') && s.lang.IsTemp != nil && s.lang.IsTemp(s.Name(i)) {
				return true
			}
		case t.Kind != '.':
			return false
		}
	}
	return false
}

// Explain is the effect of EXPLAIN, which stands at i, and of the statement that it explains. Some forms
// execute it.
func (s *Statement) Explain(i int) dialects.Effect {
	for i++; s.Has(i, Option); i++ {
	}
	if s.Mark(i, '(') && s.has(OpenQueries) && s.Mark(i+1, Word) && !s.Has(i+1, First|Acts) { // options
		i = s.BehindClosingParen(i)
	}
	if i < 0 || s.Is(i, "explain") {
		return s.Scan(i) | s.lang.Unknown
	}
	return s.Effect(i)
}
