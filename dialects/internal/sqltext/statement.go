package sqltext

import (
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
)

// Statement is a statement of a text, while it is read. It reads a token when code asks for it, and keeps the last
// tokens only: a text of any length takes the same memory. If code asks for a forgotten token, the text counts as not
// understood. So a long statement that is read twice is Suspect: take what you need from its beginning first.
type Statement struct {
	lexer
	lang *Language

	tokens [window]Token
	oldest int  // the index of the first token that is kept
	read   int  // how many tokens of the statement were read
	end    int  // the index of the last token, once it was read; else -1
	over   bool // no statement follows

	Kind   uint8           // of its Head
	Noted  bool            // Language.Watch has met ON COMMIT DROP (PostgreSQL) or UPDATE (generic)
	inside int             // how many statements are around this one: EXPLAIN SELECT
	call   dialects.Effect // the effect of a call of an unknown function here
	assign bool            // the statement may assign any user variable in it

	depth      int    // how many parentheses are open
	lists      uint64 // bit n: at depth n the list of names of a WITH is being read
	callable   uint64 // bit n: a name behind the parenthesis that closes depth n may be called
	callableAt int    // the index of the last parenthesis behind which a name may be called
}

// window is how many tokens are kept. LookAhead is how many tokens ahead code may look, so that the time stays linear in
// the length of the text, and that the tokens behind are kept.
const (
	window    = 256
	LookAhead = 100
)

// begin puts s at the beginning of a text.
func (s *Statement) begin(l *Language, src string, reading int) {
	s.lexer = lexer{src: src, features: l.Features, reading: l.Readings[reading], unlikely: reading > 0}
	s.lang, s.over = l, false
}

// next goes to the next statement. The last one was read to its end.
func (s *Statement) next() bool {
	if s.over {
		return false
	}
	s.oldest, s.read, s.end = 0, 0, -1
	s.Kind, s.Noted, s.inside, s.call, s.assign = 0, false, 0, s.lang.Call, false
	s.depth, s.lists, s.callable, s.callableAt = 0, 0, 0, -1
	return true
}

// At returns a token of the statement. Behind the last one all are End.
func (s *Statement) At(i int) Token {
	if i < s.read && i >= s.oldest {
		return s.tokens[uint(i)%window]
	}
	return s.far(i)
}

// far returns token i, which At does not have: it reads on, or returns a token of Kind None if i is read and gone.
func (s *Statement) far(i int) Token {
	for i >= s.read && s.end < 0 {
		t := s.lexer.next()
		if t.Kind == End {
			s.end, s.over = s.read, t.From == t.To
		}
		s.tokens[uint(s.read)%window] = t
		s.read++
		s.oldest = max(0, s.read-window)
	}
	switch {
	case i >= s.oldest:
		return s.tokens[uint(min(i, s.read-1))%window]
	case i >= 0:
		s.strange = true // the caller did not see the whole statement
	}
	return Token{}
}

// Role is what the language says of the name at i.
func (s *Statement) Role(i int) Role {
	t := s.At(i)
	if !t.IsName() || t.Kind != Word && s.has(CaseInQuotes) && hasCapital(s.text(t)) {
		return 0
	}
	return s.lang.words.Lookup(s.name(t))
}

func hasCapital(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return 'A' <= r && r <= 'Z' })
}

// finish reads the statement to its end.
func (s *Statement) finish() {
	for s.end < 0 {
		s.At(s.read)
	}
}

func (s *Statement) text(t Token) string { return s.src[t.From:t.To] }

// name returns a name, or a string that may stand for one, without its quotes.
func (s *Statement) name(t Token) string {
	text := s.text(t)
	switch {
	case t.Kind == Disguised:
		text = text[2:]
	case t.Kind != Quoted && t.Kind != String, text[0] == '#', text[0] == '$':
		return text
	}
	return text[1:max(1, len(text)-1)]
}

// Text returns the text of a token.
func (s *Statement) Text(i int) string { return s.text(s.At(i)) }

// Name returns a name without its quotes.
func (s *Statement) Name(i int) string { return s.name(s.At(i)) }

// Mark reports whether a token is of this kind.
func (s *Statement) Mark(i int, k Kind) bool { return s.At(i).Kind == k }

// IsOperator reports whether a token is one, or a part of one.
func (s *Statement) IsOperator(i int) bool {
	k := s.At(i).Kind
	return k >= Cast && k <= System || k > System && strings.IndexByte("+-*/<>=~!@#%^&|?`$", byte(k)) >= 0
}

// Is reports whether a token is this lower-case keyword.
func (s *Statement) Is(i int, lower string) bool {
	t := s.At(i)
	return t.Kind == Word && Equal(s.text(t), lower)
}

// Has reports whether a token is a word with one of these roles.
func (s *Statement) Has(i int, r Role) bool {
	return s.Mark(i, Word) && s.Role(i)&r != 0
}

// Plain reports whether a token is a word that can be a keyword: it has no quotes and no qualifier.
func (s *Statement) Plain(i int) bool { return s.At(i).Kind == Word && s.At(i-1).Kind != '.' }

// Find returns the index of the last word of the next phrase, from i on; -1: there is none.
func (s *Statement) Find(i int, phrase ...string) int {
	for ; !s.Mark(i, End); i++ {
		if s.ends(i, phrase) && s.Plain(i-len(phrase)+1) {
			return i
		}
	}
	return -1
}

// Language is the language of the text.
func (s *Statement) Language() *Language { return s.lang }

// BehindClosingParen returns the index behind the parenthesis that closes the one at open; -1: it is far away.
func (s *Statement) BehindClosingParen(open int) int {
	depth := 0
	for i := open; i < open+LookAhead && !s.Mark(i, End); i++ {
		switch s.At(i).Kind {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// Effects returns the effects of the names from i on, in quotes or not.
func (s *Statement) Effects(i int, names *Names[dialects.Effect]) (e dialects.Effect) {
	for ; !s.Mark(i, End); i++ {
		if s.At(i).IsName() {
			e |= names.Lookup(s.Name(i))
		}
	}
	return e
}

// SkipBody goes from the BEGIN of a routine's body, at i, to the statement that begins with its END: every
// statement of the body ends with a semicolon, and the END follows the last one. The effect is Unknown if
// there is no END.
func (s *Statement) SkipBody(i int) dialects.Effect {
	if s.Is(i+1, "end") {
		return dialects.Clean
	}
	for s.finish(); s.next(); s.finish() {
		if s.Is(0, "end") {
			return dialects.Clean
		}
	}
	return s.lang.Unknown
}
