package sqltext

// Token is the kind of a token.
type Token uint8

const (
	Start     Token = iota // before the first token
	EOF                    // the end of the text
	Word                   // an unquoted name or keyword
	Quoted                 // a name in quotes of any kind, or a string in double quotes
	String                 // a string
	Number                 // digits; the text after them is a token of its own
	Open                   // (
	Close                  // )
	Semicolon              // ;
	Comma                  // ,
	Dot                    // .
	At                     // the @ of a variable, not of @@
	Assign                 // :=
	Cast                   // ::
	Operator               // any other character
	Call                   // from Skim only: the ( after a name
)

// Doubt says why a text can be read in more than one way: this depends on settings and versions
// that the text does not show.
type Doubt uint8

const (
	// DoubtSingle: a quote after a backslash in '…'.
	DoubtSingle Doubt = 1 << iota
	// DoubtDouble: a quote after a backslash in "…".
	DoubtDouble
	// DoubtVersion: a versioned comment that is code for some servers only.
	DoubtVersion
)

// Reading is one way of reading a text.
type Reading struct {
	SingleEscapes bool // backslash escapes in '…'
	DoubleEscapes bool // backslash escapes in "…"
	SkipVersioned bool // doubtful versioned comments are comments
}
