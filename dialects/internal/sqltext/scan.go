package sqltext

import "github.com/pooldriver/pooldriver/dialects"

// Scan is the effect of the rest of a statement, behind the token at i, in which the server evaluates expressions: the
// effect of each name before a parenthesis, and of the words that the language watches.
func (s *Statement) Scan(i int) (e dialects.Effect) {
	for {
		i++
		switch t := s.At(i); t.Kind {
		case End:
			return e
		case '(':
			s.openParen(i)
			if s.At(i - 1).IsName() {
				e |= s.Callee(i - 1)
			}
		case ')':
			s.closeParen(i)
		case Word:
			if role := s.lang.inside.Lookup(s.text(t)); role != 0 {
				e |= s.word(i, role)
			}
		case ',':
			s.skipValues(i)
		case Assign, '@':
			e |= s.variable(i)
		}
	}
}

// ScanAssigning returns the effect, as Scan does, of a statement that may assign any user variable in it: LOAD DATA … (a, @b).
func (s *Statement) ScanAssigning(i int) dialects.Effect {
	s.assign = true
	return s.Scan(i)
}

func (s *Statement) openParen(i int) {
	s.depth++
	bit := uint64(1) << s.depth
	s.lists &^= bit
	s.callable &^= bit
	if s.Is(i-1, "with") || s.Is(i-1, "operator") || s.Is(i-1, "on") && s.Is(i-2, "distinct") {
		s.callable |= bit
	}
}

func (s *Statement) closeParen(i int) {
	if s.depth > 63 || s.callable>>s.depth&1 != 0 {
		s.callableAt = i
	}
	s.depth = max(0, s.depth-1)
}

func (s *Statement) word(i int, role Role) dialects.Effect {
	if role&Verb != 0 {
		s.lists &^= 1 << s.depth
	}
	if role&List != 0 && s.Mark(i-1, '(') {
		s.lists |= 1 << s.depth
	}
	if role&Query != 0 && s.Plain(i) {
		s.call = s.lang.Call
	}
	if role&Watched != 0 {
		return s.lang.Watch(s, i)
	}
	return dialects.Clean
}

// variable looks at := and at the @ of a variable. What INTO names is assigned.
func (s *Statement) variable(i int) dialects.Effect {
	if s.has(UserVariables) && (s.Mark(i, Assign) || s.assign || s.Is(i-1, "into")) {
		return dialects.Stateful
	}
	return dialects.Clean
}

// Callee is the effect of the name at i, which stands before a parenthesis. Any word that the server does
// not reserve may be a function of the program's: SELECT set(1).
func (s *Statement) Callee(i int) dialects.Effect {
	role := s.Role(i)
	switch {
	case s.isHarmless(i, role):
		return dialects.Clean
	case role&Lasting != 0:
		return dialects.Stateful | dialects.Unresettable
	case role&Changing != 0:
		return dialects.Stateful
	case role&Dependent != 0:
		return s.lang.Depends(s, i)
	case s.isGiven(i):
		return dialects.Clean
	case s.Mark(i, Disguised):
		return dialects.Suspect | dialects.Unresettable
	}
	return s.call
}

// isHarmless reports whether the name before a parenthesis is a keyword, or a function that keeps nothing.
func (s *Statement) isHarmless(i int, role Role) bool {
	builtIn := s.InCatalog(i)
	switch {
	case s.Plain(i) && (role&(Keyword|Syntax) != 0 || role&Clause != 0 && s.isClause(i)):
		return true
	case role&Harmless != 0, role&Bare != 0 && s.Mark(i+2, ')'):
		return builtIn || !s.Mark(i-1, '.') && !s.glued(i)
	}
	return role&Syntax != 0 && builtIn
}

// InCatalog reports whether the name at i is one of the server's own schema.
func (s *Statement) InCatalog(i int) bool {
	if !s.Mark(i-1, '.') || s.lang.Catalog == "" {
		return false
	}
	return s.Is(i-2, s.lang.Catalog) || s.Mark(i-2, Quoted) && s.Name(i-2) == s.lang.Catalog
}

// isClause reports whether a word that the server does not reserve is syntax here.
func (s *Statement) isClause(i int) bool {
	for _, phrase := range s.lang.phrases {
		if s.ends(i, phrase) {
			return true
		}
	}
	return s.lang.Clause != nil && s.lang.Clause(s, i)
}

// ends reports whether the words up to i are a phrase.
func (s *Statement) ends(i int, phrase []string) bool {
	for n := len(phrase) - 1; n >= 0; n-- {
		if phrase[n] == "^" {
			return i == -1
		}
		if !s.Is(i, phrase[n]) {
			return false
		}
		i--
	}
	return true
}

// glued reports whether a name follows a digit directly: 1e1from is the number 1e1 and the word from.
func (s *Statement) glued(i int) bool {
	from := s.At(i).From
	return from > 0 && is(s.src[from-1], digit)
}

// isGiven reports whether the name before a parenthesis is not called. It follows an operand or a name, as an alias with
// its columns does, or a query is in the parentheses.
func (s *Statement) isGiven(i int) bool {
	if s.Is(i+2, "select") || s.Is(i+2, "with") { // MATERIALIZED (SELECT …), = ANY (SELECT …)
		return true
	}
	before := i - 1
	for s.Mark(before, '.') {
		before -= 2
	}
	switch t := s.At(before); t.Kind {
	case Cast, Quoted, Disguised, String, ']':
		return true
	case Number:
		return !s.glued(i)
	case ')':
		return before != s.callableAt
	case ',':
		return s.depth > 0 && s.depth < 64 && s.lists>>(s.depth-1)&1 != 0
	case Word:
		role := s.Role(before)
		return role&Naming != 0 || role&Lead == 0 && !s.glued(before)
	}
	return false
}
