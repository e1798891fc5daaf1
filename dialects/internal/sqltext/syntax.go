// Package sqltext says what a text does, by its words: what it leaves in its session, whether it only
// reads, and what of it may be shown. It reads tokens, not a grammar. Where a text is in doubt, the
// answer is that it may have left something.
//
// A Language has all that is known of a database: how its texts are written (Feature), what its words
// mean (Role), and which statements it has (Head). The packages of dialects/internal/classify have the
// languages.
package sqltext

// Feature is a rule in which the databases' texts differ. A rule that begins with Doubtful is not known
// to hold: a text for which it matters is not understood.
type Feature uint32

const (
	DollarQuotes      Feature = 1 << iota // $$ … $$ and $tag$ … $tag$ are strings
	DoubtfulDollars                       // the same, for some versions
	EscapeStrings                         // E'…' has backslash escapes whatever the session's setting
	AlternativeQuotes                     // q'[…]' is a string; it is not understood
	NestedComments                        // /* /* */ */ is one comment
	DoubtfulNesting
	VersionedComments // /*! … */ and /*M! … */ are code, for some servers
	ReturnEndsComment // a carriage return ends a -- comment as a newline does
	DashNeedsSpace    // -- opens a comment only before white space
	HashComments      // # opens a comment
	HashNames         // # may begin a name (SQL Server's temporary tables)
	Backticks         // `…` is a name
	Brackets          // […] is a name
	DoubtfulBrackets  // […] is a name or a subscript
	UnicodeNames      // U&"…" is a name, whose escapes are not read
	DoubtfulUnicode
	OpenQueries   // (SELECT …) is a statement
	CaseInQuotes  // "Lower" is another name than lower
	UserVariables // @x is a variable of the session, and := assigns to one
	TclVariables  // $x(…) and the like are one token, quotes and all; they are not understood
	DoubtfulSpace // byte A0, outside of quotes and of UTF-8, is white space in some character sets
)

// Reading is one way of reading a text. Settings that the text does not show decide which one holds.
type Reading struct {
	SingleEscapes bool // backslash escapes in '…'
	DoubleEscapes bool // backslash escapes in "…"
}

// Quotes is a set of kinds of quotes.
type Quotes uint8

const (
	Single Quotes = 1 << iota // '…'
	Double                    // "…"
)

// differs reports whether a text has other tokens in r than in the reading first. In first, doubt are the quotes
// that would end elsewhere if backslashes were read the other way.
func (r Reading) differs(first Reading, doubt Quotes) bool {
	return doubt&Single != 0 && r.SingleEscapes != first.SingleEscapes || doubt&Double != 0 && r.DoubleEscapes != first.DoubleEscapes
}

// Kind is the kind of a token. A punctuation mark is its own kind: '('.
type Kind byte

const (
	None      Kind = iota // outside of the statement, or too far away
	End                   // of the statement
	Word                  // a name or keyword without quotes
	Quoted                // a name in quotes of any kind, or a string in double quotes
	Disguised             // U&"…": with its escapes it may be any name
	String
	Number // digits; the text after them is a token of its own
	Cast   // ::
	Assign // :=
	System // @@
)

// Token is a piece of a statement. Comments and white space are no tokens.
type Token struct {
	Kind     Kind
	From, To int // where it stands in the text
}

// IsName reports whether a token is a name, in quotes or not.
func (t Token) IsName() bool { return t.Kind >= Word && t.Kind <= Disguised }
