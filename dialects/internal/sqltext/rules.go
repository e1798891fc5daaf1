// Package sqltext reads SQL just far enough to see what a statement is: words,
// names before a parenthesis, and where quotes, comments and statements end.
// It neither parses nor copies, and it allocates nothing.
//
// The dialects' classifiers are built on it. Rules has all differences between databases about the
// end of a quote or a comment. The classifiers know what the words mean.
package sqltext

// Feature is one lexical rule in which databases differ.
type Feature uint32

const (
	// DollarQuotes: $$ … $$ and $tag$ … $tag$ are strings.
	DollarQuotes Feature = 1 << iota
	// EscapeStrings: E'…' has backslash escapes whatever the session's setting.
	EscapeStrings
	// NestedComments: /* /* */ */ is one comment.
	NestedComments
	// DoubtfulNesting: it is not known whether comments nest; a comment that
	// holds another opening is marked as not understood.
	DoubtfulNesting
	// ReturnEndsComment: a carriage return ends a -- comment as a newline does.
	ReturnEndsComment
	// DashNeedsSpace: -- opens a comment only before white space.
	DashNeedsSpace
	// HashComments: # opens a comment.
	HashComments
	// HashNames: # may begin a name (SQL Server's temporary tables).
	HashNames
	// Backticks: `…` is an identifier.
	Backticks
	// Brackets: […] is an identifier.
	Brackets
	// DoubtfulBrackets: […] is an identifier or a subscript. If it holds a quote, a comment or a
	// semicolon, it is marked as not understood.
	DoubtfulBrackets
	// VersionedComments: /*! … */ and /*M! … */ are code, for some servers.
	VersionedComments
	// AtVariables: @x is a variable; Skim reports the @.
	AtVariables
	// Assignments: Skim reports :=.
	Assignments
	// TclVariables: $x(…) and the like are one token, quotes and all. They are
	// marked as not understood.
	TclVariables
	// AlternativeQuotes: q'[…]' is a string. Marked as not understood.
	AlternativeQuotes
	// UnicodeNames: U&"…" is a name, whose escapes are not read. See Disguised.
	UnicodeNames
	// DoubtfulUnicode: U&"…" may be a name. Marked as not understood.
	DoubtfulUnicode
	// DoubtfulDollars: $$ … $$ is a string for some versions, and names for others. Marked as
	// not understood.
	DoubtfulDollars
	// DoubtfulSpace: byte A0 outside of quotes and of UTF-8 is white space in some character
	// sets (MySQL's latin1). Marked as not understood.
	DoubtfulSpace
)

// class is what a byte may begin.
type class uint8

const (
	classIllegal class = iota
	classSpace
	classWord
	classDigit
	classSingle
	classDouble
	classBacktick
	classBracket
	classOpen
	classClose
	classSemicolon
	classComma
	classDot
	classDash
	classSlash
	classStar
	classHash
	classDollar
	classAt
	classColon
	classOperator
)

// Rules are the lexical rules of one dialect. They are not changed once made
// and may be used by any number of lexers at once.
type Rules struct {
	features Feature
	class    [256]class
}

// NewRules makes the rules of a dialect that has these features.
func NewRules(features Feature) *Rules {
	r := &Rules{features: features}
	for c := range r.class {
		switch {
		case isDigit(c):
			r.class[c] = classDigit
		case wordByte[c] && c != '$':
			r.class[c] = classWord
		case c == ' ', c >= '\t' && c <= '\r':
			r.class[c] = classSpace
		}
	}
	for _, c := range "!%&*+/<=>?^|~]{}#@`[" {
		r.class[c] = classOperator
	}
	for c, k := range map[byte]class{
		'\'': classSingle, '"': classDouble, '(': classOpen, ')': classClose,
		';': classSemicolon, ',': classComma, '.': classDot, '-': classDash,
		'/': classSlash, '*': classStar, '$': classDollar, ':': classColon,
	} {
		r.class[c] = k
	}
	if r.has(Backticks) {
		r.class['`'] = classBacktick
	}
	if r.has(Brackets | DoubtfulBrackets) {
		r.class['['] = classBracket
	}
	if r.has(HashComments | HashNames) {
		r.class['#'] = classHash
	}
	if r.has(AtVariables | TclVariables) {
		r.class['@'] = classAt
	}
	if r.has(TclVariables) {
		r.class['#'] = classAt
	}
	return r
}

func (r *Rules) has(f Feature) bool { return r.features&f != 0 }

func isDigit(c int) bool { return c >= '0' && c <= '9' }

// wordByte says which bytes continue a word.
var wordByte = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || isDigit(c) || c == '_' || c == '$' || c >= 0x80
	}
	return t
}()
