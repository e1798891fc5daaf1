package sqltext

import (
	"strings"
	"unicode/utf8"
)

// lexer reads the tokens of a text.
type lexer struct {
	src      string
	pos      int
	features Feature
	reading  Reading
	last     Token
	escaped  bool // the last string has escapes whatever the session's setting
	inCode   bool // inside a versioned comment, which is read as code

	unlikely bool // this is not the likely reading

	doubt   Quotes // those that end elsewhere in another reading
	strange bool   // something was not understood
	version bool   // a comment is code for some servers, and not for others
	misread bool   // no database accepts the text as it was read: a quote is open, or a backslash stands alone
}

func (x *lexer) has(f Feature) bool { return x.features&f != 0 }

// next reads a token. The last one is End.
func (x *lexer) next() Token {
	for x.pos < len(x.src) {
		from := x.pos
		c := x.src[from]
		x.pos++
		var kind Kind
		switch classes[c] {
		case space:
			continue
		case letter:
			kind = x.word()
		case digit:
			x.pos = x.skip(x.pos, digit)
			kind = Number
		case alone, point:
			kind = Kind(c)
		default:
			if kind = x.read(c); kind == None {
				continue
			}
		}
		x.last = Token{Kind: kind, From: from, To: x.pos}
		return x.last
	}
	x.strange = x.strange || x.inCode
	return Token{Kind: End, From: x.pos, To: x.pos}
}

// class is a set of kinds of bytes. A byte is of one kind, or of none.
type class uint16

const (
	space class = 1 << iota
	letter
	digit
	point
	alone // a token of its own in every language, as the point is
	dollar
	hash
	colon
	mark // it stands in front of a number, or for a value

	wordByte = letter | digit | dollar // a dollar sign does not begin a word
)

var classes = func() (t [256]class) {
	for c := range t {
		switch b := byte(c); {
		case b == ' ', b >= '\t' && b <= '\r':
			t[c] = space
		case b >= '0' && b <= '9':
			t[c] = digit
		case b|0x20 >= 'a' && b|0x20 <= 'z', b == '_', b >= 0x80:
			t[c] = letter
		case strings.IndexByte("(),=<>+", b) >= 0:
			t[c] = alone
		}
	}
	t['.'], t['$'], t['#'], t[':'], t['-'], t['?'] = point, dollar, hash, colon, mark, mark
	return t
}()

// is reports whether a byte is of a class.
func is(c byte, of class) bool { return classes[c]&of != 0 }

// skip returns the place behind the bytes of a class that begin at pos.
func (x *lexer) skip(pos int, of class) int {
	for pos < len(x.src) && classes[x.src[pos]]&of != 0 {
		pos++
	}
	return pos
}

// read goes past the token that begins with c. None: a comment.
func (x *lexer) read(c byte) Kind {
	switch {
	case x.isQuote(c):
		return x.quote(c)
	case x.opensLine(c):
		x.line()
		return None
	case c == '/' && x.at(0) == '*':
		x.comment()
		return None
	case c == '*' && x.inCode && x.at(0) == '/':
		x.inCode = false
		x.pos++
		return None
	case c == '#' && x.has(HashNames) && is(x.at(0), wordByte|hash):
		x.pos = x.skip(x.pos, wordByte|hash)
		return Quoted
	case c == '$' && x.has(DollarQuotes|DoubtfulDollars):
		return x.dollar()
	case c == ';':
		return End
	}
	return x.mark(c)
}

// isQuote reports whether c opens a string or a name in quotes.
func (x *lexer) isQuote(c byte) bool {
	return c == '\'' || c == '"' || c == '`' && x.has(Backticks) || c == '[' && x.has(Brackets|DoubtfulBrackets)
}

// pairOf is the token of two bytes; None: they are none.
func pairOf(c, next byte) Kind {
	switch {
	case c == ':' && next == ':':
		return Cast
	case c == ':' && next == '=':
		return Assign
	case c == '@' && next == '@':
		return System
	}
	return None
}

// mark reads a punctuation mark or an operator.
func (x *lexer) mark(c byte) Kind {
	if pair := pairOf(c, x.at(0)); pair != None {
		x.pos++
		return pair
	}
	if x.has(TclVariables) && strings.IndexByte("$@:#", c) >= 0 {
		n := x.skip(x.pos, wordByte|colon)
		x.strange = x.strange || n < len(x.src) && x.src[n] == '('
	}
	if strings.IndexByte("!%&*-/?^|~]{}#@`[:$", c) < 0 {
		x.strange = true
		if c == '\\' && x.at(0) != 'N' { // MySQL's \N
			x.misread = true
			if x.unlikely { // the rest of the text does not matter
				x.pos = len(x.src)
			}
		}
		return '\\'
	}
	return Kind(c)
}

// at returns the byte n places behind the current one, or 0.
func (x *lexer) at(n int) byte { return x.peek(x.pos + n) }

// peek returns the byte at pos, or 0.
func (x *lexer) peek(pos int) byte {
	if pos < len(x.src) {
		return x.src[pos]
	}
	return 0
}

func (x *lexer) word() Kind {
	from := x.pos - 1
	x.pos = x.skip(x.pos, wordByte)
	word := x.src[from:x.pos]
	if x.at(0) == '&' && Equal(word, "u") && x.at(1) == '"' && x.has(UnicodeNames|DoubtfulUnicode) {
		x.strange = x.strange || x.has(DoubtfulUnicode)
		x.pos += 2
		x.until('"', false)
		return Disguised
	}
	if x.has(DoubtfulSpace) && strings.IndexByte(word, 0xa0) >= 0 && !utf8.ValidString(word) { // città is a name
		x.strange = true
	}
	return Word
}

// prefix is the word directly before the quote at pos: E'…'.
func (x *lexer) prefix(pos int) string {
	if x.last.Kind == Word && x.last.To == pos {
		return x.src[x.last.From:pos]
	}
	return ""
}

// quote reads what opens with the quote c.
func (x *lexer) quote(c byte) Kind {
	from := x.pos - 1
	prefix := x.prefix(from)
	// A string on the next line continues E'…', with its escapes (PostgreSQL's manual, 4.1.2.1).
	x.escaped = c == '\'' && x.has(EscapeStrings) && (Equal(prefix, "e") || x.last.Kind == String && x.escaped)
	closing, doubt, escapes := c, Quotes(0), x.escaped
	switch c {
	case '[':
		closing = ']'
	case '\'':
		doubt, escapes = Single, escapes || x.reading.SingleEscapes
	case '"':
		doubt, escapes = Double, x.reading.DoubleEscapes
	}
	if differs := x.until(closing, escapes); differs && !x.escaped {
		x.doubt |= doubt
	}
	return x.quoted(c, prefix, x.src[from+1:x.pos])
}

// quoted is the token of a text in quotes.
func (x *lexer) quoted(c byte, prefix, text string) Kind {
	switch {
	case c == '\'':
		x.strange = x.strange || x.has(AlternativeQuotes) && (Equal(prefix, "q") || Equal(prefix, "nq"))
		return String
	case c == '[' && x.has(DoubtfulBrackets) && !isSubscript(text):
		x.strange = true
	}
	return Quoted
}

// until goes past the closing quote. A doubled quote stands for one quote. differs: the end would be
// another if backslashes were read the other way.
func (x *lexer) until(quote byte, escapes bool) (differs bool) {
	open := x.pos
	for {
		n := strings.IndexByte(x.src[x.pos:], quote)
		if n < 0 {
			x.pos, x.misread = len(x.src), true
			return differs
		}
		x.pos += n + 1
		odd := false // the number of backslashes in front of the quote
		for i := x.pos - 2; i >= open && x.src[i] == '\\'; i-- {
			odd = !odd
		}
		differs = differs || odd
		switch {
		case odd && escapes:
		case x.at(0) == quote:
			x.pos++
		default:
			return differs
		}
	}
}

// isSubscript reports whether the text between brackets ends at the same place when it is an expression.
func isSubscript(text string) bool {
	return strings.Count(text, "'")%2 == 0 && !strings.ContainsAny(text, "\"`;\\") &&
		!strings.Contains(text, "--") && !strings.Contains(text, "/*")
}

// dollar reads $tag$ … $tag$, or only its first sign: $1.
func (x *lexer) dollar() Kind {
	from := x.pos - 1
	end := x.skip(x.pos, letter|digit)
	if end == len(x.src) || x.src[end] != '$' || is(x.at(0), digit) {
		return '$'
	}
	if x.has(DoubtfulDollars) {
		x.strange = true
		return '$'
	}
	tag := x.src[from : end+1]
	n := strings.Index(x.src[end+1:], tag)
	if n < 0 {
		x.pos, x.misread = len(x.src), true
		return String
	}
	x.pos = end + 1 + n + len(tag)
	return String
}

func (x *lexer) opensLine(c byte) bool {
	if c == '#' {
		return x.has(HashComments)
	}
	next := x.at(1)
	return c == '-' && x.at(0) == '-' && (!x.has(DashNeedsSpace) || next <= ' ' || next == 0x7f)
}

// line goes to the end of a comment.
func (x *lexer) line() {
	ends := "\n"
	if x.has(ReturnEndsComment) {
		ends = "\n\r"
	}
	if n := strings.IndexAny(x.src[x.pos:], ends); n >= 0 {
		x.pos += n + 1
	} else {
		x.pos = len(x.src)
	}
}

// comment goes past a comment or, if it is code for the server, past its opening.
func (x *lexer) comment() {
	if x.has(VersionedComments) && x.versioned() {
		return
	}
	depth := 1
	for x.pos++; x.pos+1 < len(x.src); x.pos++ {
		switch x.src[x.pos : x.pos+2] {
		case "*/":
			x.pos++
			if depth--; depth == 0 {
				x.pos++
				return
			}
		case "/*":
			x.strange = x.strange || x.has(DoubtfulNesting)
			if x.has(NestedComments) {
				x.pos++
				depth++
			}
		}
	}
	x.pos, x.strange = len(x.src), true
}

// certainVersion is the version below which every server that the project supports executes a
// versioned comment. MariaDB skips comments of MySQL 5.7 and up, and each server those of newer versions.
const certainVersion = "50700"

// versioned goes past the opening of a comment that is code, if it is. It is not understood if some
// servers skip it.
func (x *lexer) versioned() bool {
	rest := x.src[x.pos+1:]
	mariaDB := strings.HasPrefix(rest, "M!")
	if !mariaDB && !strings.HasPrefix(rest, "!") {
		return false
	}
	code := x.pos + 2
	if mariaDB {
		code++
	}
	digits := min(x.skip(code, digit), code+6) - code
	certain := digits == 0 || digits == 5 && x.src[code:code+5] < certainVersion
	if digits < 5 {
		digits = 0
	}
	x.version = x.version || mariaDB || x.inCode || !certain
	x.strange = x.strange || x.version
	x.inCode, x.pos = true, code+digits
	return true
}
