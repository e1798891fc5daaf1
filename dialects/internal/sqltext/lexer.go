package sqltext

import (
	"strings"
	"unicode/utf8"
)

// Lexer walks over one text. It is a plain value that is used on the stack,
// and a copy of it looks ahead without moving the original.
type Lexer struct {
	src     string
	pos     int
	rules   *Rules
	reading Reading

	tok        Token // the last token
	start, end int

	// The name last read, its qualifier, and the token before both.
	name, qualifier      span
	qualified, nameQuote bool
	afterName            bool // for the token At: that name stands directly before the @
	before               Token
	beforeSpan           span

	depth   int32
	version uint32 // of the last versioned comment that is doubtful; 0: there was none
	with    uint64 // bit n: at depth n a list of WITH names is being read

	inCode      bool // inside a versioned comment read as code
	codeIsDoubt bool
	hasA0       bool // the text has the byte A0 (DoubtfulSpace)

	// Doubt collects the doubts met so far.
	Doubt Doubt
	// Strange is set by text that is not understood: bytes that begin no token, and constructs that
	// Rules marks so.
	Strange bool
	// Mixed is set by versioned comments that a server may read in a way that is none of the
	// Readings: for example, the server executes one comment and skips the other. Mixed counts also
	// if the text is misread.
	Mixed bool
	// StrayBackslash is set by a backslash outside quotes, except in MySQL's \N. No database
	// accepts it: the text is misread.
	StrayBackslash bool
	// OpenQuote is set when the text ends inside quotes, OpenComment when it
	// ends inside a comment.
	OpenQuote, OpenComment bool
}

type span struct{ from, to int }

// Init puts a zero lexer at the beginning of src.
func (lx *Lexer) Init(src string, rules *Rules, reading Reading) {
	lx.src, lx.rules, lx.reading = src, rules, reading
	lx.hasA0 = rules.has(DoubtfulSpace) && strings.IndexByte(src, 0xa0) >= 0
}

// Next returns the next token. Comments and white space are no tokens.
func (lx *Lexer) Next() Token { return lx.scan(nil) }

// Skim goes on to the next token that a classifier must look at: the
// parenthesis after a name (Call), a word that is in words, a semicolon, the
// end, and := and @ where Rules says so. The words are shorter than 32 bytes.
func (lx *Lexer) Skim(words *Names) Token { return lx.scan(words) }

// Text returns the text of the last token.
func (lx *Lexer) Text() string { return lx.src[lx.start:lx.end] }

// Token returns the last token; a Call counts as Open.
func (lx *Lexer) Token() Token { return lx.tok }

// Span is where the last token stands in the text.
func (lx *Lexer) Span() (from, to int) { return lx.start, lx.end }

// Ended reports whether the last token ends a statement.
func (lx *Lexer) Ended() bool { return lx.tok == EOF || lx.tok == Semicolon }

// Broken reports whether the whole text, once read to its end, cannot be
// trusted: something was not understood, or a quote or comment is open.
func (lx *Lexer) Broken() bool { return lx.Strange || lx.Mixed || lx.OpenQuote || lx.OpenComment }

// Misread reports whether no database accepts the text as it was read so far.
func (lx *Lexer) Misread() bool { return lx.OpenQuote || lx.StrayBackslash }

// IsName reports whether the last token is a name, in quotes or not.
func (lx *Lexer) IsName() bool { return lx.tok == Word || lx.tok == Quoted }

// IsWord reports whether the last token is this lower-case keyword.
func (lx *Lexer) IsWord(lower string) bool { return lx.tok == Word && Equal(lx.Text(), lower) }

// AfterWord reports whether the token before the name last read is this
// lower-case keyword.
func (lx *Lexer) AfterWord(lower string) bool {
	return lx.before == Word && Equal(lx.BeforeText(), lower)
}

// Name returns the name last read, without its quotes and qualifiers.
func (lx *Lexer) Name() string { return lx.src[lx.name.from:lx.name.to] }

// Qualifier returns what stands before the dot of the name last read, or "".
func (lx *Lexer) Qualifier() string {
	if !lx.qualified {
		return ""
	}
	return lx.src[lx.qualifier.from:lx.qualifier.to]
}

// Qualified reports whether the name last read follows a dot.
func (lx *Lexer) Qualified() bool { return lx.qualified }

// Keyword reports whether the name last read can be a keyword: it is neither
// quoted nor qualified.
func (lx *Lexer) Keyword() bool { return !lx.nameQuote && !lx.qualified }

// KeepsCapitals reports whether the name last read is quoted or has a quoted
// qualifier, with a capital letter in it. If quotes keep the letter case, it is another name than
// the unquoted name of the same letters.
func (lx *Lexer) KeepsCapitals() bool {
	return lx.nameQuote && hasCapital(lx.Name()) ||
		lx.qualified && lx.qualifier.from > 0 && lx.src[lx.qualifier.from-1] == '"' && hasCapital(lx.Qualifier())
}

// Disguised reports whether the name last read is written U&"…": with its escapes, or with those of
// a UESCAPE after it, it may be any name.
func (lx *Lexer) Disguised() bool {
	return lx.nameQuote && lx.name.from >= len(unicodeName) && lx.opensUnicode(lx.name.from-len(unicodeName))
}

const unicodeName = `u&"`

// opensUnicode reports whether a name in Unicode's escapes opens at from, and from is not inside a
// word.
func (lx *Lexer) opensUnicode(from int) bool {
	return lx.rules.has(UnicodeNames|DoubtfulUnicode) && HasPrefix(lx.src[from:], unicodeName) && (from == 0 || !wordByte[lx.src[from-1]])
}

func hasCapital(s string) bool {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' {
			return true
		}
	}
	return false
}

// Before returns the token before the name last read and its qualifiers.
func (lx *Lexer) Before() Token { return lx.before }

// BeforeText returns the text of the token that Before returns.
func (lx *Lexer) BeforeText() string { return lx.src[lx.beforeSpan.from:lx.beforeSpan.to] }

// BeforeAt is where the token that Before returns stands in the text.
func (lx *Lexer) BeforeAt() int { return lx.beforeSpan.from }

// PreviousWord returns the text of the name directly before the last token, or "".
func (lx *Lexer) PreviousWord() string {
	if !lx.afterName {
		return ""
	}
	return lx.Name()
}

// Depth returns how many parentheses are open.
func (lx *Lexer) Depth() int { return int(lx.depth) }

// scan is the one loop over the text. Every case either moves pos and continues the loop, or leaves
// the switch with the new token in tok, its beginning in start and its end in pos. With words ==
// nil each token is returned.
//
//nolint:cyclop,funlen // every byte of every statement passes here: a call for each token would cost more than the rest
func (lx *Lexer) scan(words *Names) Token {
	src, pos, rules := lx.src, lx.pos, lx.rules
	tok, start, end := lx.tok, lx.start, lx.end
	lengths := &anyLength
	if words != nil {
		lengths = &words.lengths
	}
	for pos < len(src) {
		c := src[pos]
		cl := rules.class[c]
		if cl == classSpace {
			pos++
			continue
		}
		if cl == classWord {
			from := pos
			for pos++; pos < len(src) && wordByte[src[pos]]; pos++ {
			}
			if pos-from == 1 && at(src, pos) == '&' && lx.opensUnicode(from) {
				closed := false
				lx.Strange = lx.Strange || lx.rules.has(DoubtfulUnicode)
				name, last, lastSpan := pos+2, tok, span{start, end}
				pos, closed, _ = quoted(src, pos+1, '"', false)
				lx.OpenQuote = lx.OpenQuote || !closed
				lx.setQuotedName(span{name, max(name, pos-1)}, last, lastSpan)
				tok, start, end = Quoted, from, pos
				if words == nil {
					lx.tok, lx.start, lx.end, lx.pos = tok, start, end, pos
					return tok
				}
				continue
			}
			if lx.hasA0 {
				lx.Strange = lx.Strange || !utf8.ValidString(src[from:pos]) // città is a name
			}
			if tok == Dot {
				lx.qualifier, lx.qualified = lx.name, true
			} else {
				lx.before, lx.beforeSpan, lx.qualified = tok, span{start, end}, false
			}
			lx.name, lx.nameQuote = span{from, pos}, false
			tok, start, end = Word, from, pos
			if lx.with != 0 && lx.with>>uint(lx.depth)&1 != 0 && withEnd.Lookup(src[from:pos]) != 0 {
				lx.with &^= 1 << uint(lx.depth)
			}
			if lengths[c]>>(uint(pos-from)&31)&1 != 0 && (words == nil || words.Lookup(src[from:pos]) != 0) {
				lx.tok, lx.start, lx.end, lx.pos = tok, start, end, pos
				return tok
			}
			continue
		}

		from, last, report := pos, tok, words == nil
		pos++
		switch cl {
		case classOpen:
			lx.depth++
			if tok = Open; !report && (last == Word || last == Quoted) {
				tok, report = Call, true
			}
		case classClose:
			tok = Close
			if lx.depth > 0 {
				lx.depth--
			}
			if lx.with != 0 {
				lx.with &= 1<<uint(lx.depth+1) - 1
			}
		case classComma:
			tok = Comma
		case classDot:
			tok = Dot
		case classDigit:
			tok = Number
			for pos < len(src) && src[pos] >= '0' && src[pos] <= '9' {
				pos++
			}
		case classSemicolon:
			tok, report = Semicolon, true
			if lx.inCode && lx.codeIsDoubt {
				lx.Strange = true
			}
		case classSingle, classDouble, classBacktick, classBracket:
			pos = lx.quote(cl, from, last, end)
			tok = String
			if cl != classSingle {
				tok = Quoted
				lx.setQuotedName(span{from + 1, max(from+1, pos-1)}, last, span{start, end})
			}
		case classDash:
			if at(src, pos) == '-' && (!rules.has(DashNeedsSpace) || pos+1 == len(src) || src[pos+1] <= ' ' || src[pos+1] == 0x7f) {
				pos = lineComment(src, pos, rules.has(ReturnEndsComment))
				continue
			}
			tok = Operator
		case classSlash:
			if at(src, pos) == '*' {
				pos = lx.comment(from)
				continue
			}
			tok = Operator
		case classStar:
			if lx.inCode && at(src, pos) == '/' {
				lx.inCode = false
				pos++
				continue
			}
			tok = Operator
		case classHash:
			if rules.has(HashComments) {
				pos = lineComment(src, pos, false)
				continue
			}
			tok = Operator
			if next := at(src, pos); wordByte[next] || next == '#' {
				for pos < len(src) && (wordByte[src[pos]] || src[pos] == '#') {
					pos++
				}
				tok = Quoted
				lx.setQuotedName(span{from, pos}, last, span{start, end})
			}
		case classDollar:
			tok = Operator
			if rules.has(DollarQuotes | DoubtfulDollars) {
				if e, closed, ok := dollarQuoted(src, from); ok && rules.has(DoubtfulDollars) {
					lx.Strange = true
				} else if ok {
					tok, pos = String, e
					lx.OpenQuote = lx.OpenQuote || !closed
				}
			}
			lx.tclVariable(pos, tok)
		case classAt:
			tok = Operator
			lx.tclVariable(pos, tok)
			if rules.has(AtVariables) && at(src, pos) != '@' && (from == 0 || src[from-1] != '@') {
				tok, report = At, true
				lx.afterName = last == Word
			}
		case classColon:
			tok = Operator
			switch at(src, pos) {
			case ':':
				tok = Cast
				pos++
			case '=':
				tok = Assign
				pos++
				report = report || rules.has(Assignments)
			default:
				lx.tclVariable(pos, tok)
			}
		case classOperator:
			tok = Operator
		default:
			tok = Operator
			lx.Strange = true
			lx.StrayBackslash = lx.StrayBackslash || c == '\\' && at(src, pos) != 'N'
		}
		start, end = from, pos
		if report {
			lx.tok, lx.start, lx.end, lx.pos = tok, start, end, pos
			if tok == Call {
				lx.tok = Open
			}
			return tok
		}
	}
	lx.tok, lx.start, lx.end, lx.pos = EOF, pos, pos, pos
	lx.OpenComment = lx.OpenComment || lx.inCode
	return EOF
}

// anyLength lets every word through.
var anyLength = func() (t [256]uint32) {
	for c := range t {
		t[c] = 1<<32 - 1
	}
	return t
}()

// at returns the byte at pos, or 0 at the end.
func at(src string, pos int) byte {
	if pos < len(src) {
		return src[pos]
	}
	return 0
}

// setQuotedName notes a name in quotes; last is the token before it.
func (lx *Lexer) setQuotedName(name span, last Token, lastSpan span) {
	if last == Dot {
		lx.qualifier, lx.qualified = lx.name, true
	} else {
		lx.before, lx.beforeSpan, lx.qualified = last, lastSpan, false
	}
	lx.name, lx.nameQuote = name, true
}

// quote reads the quoted text that opens at from. last is the token before
// it, which ends at end.
func (lx *Lexer) quote(cl class, from int, last Token, end int) (pos int) {
	escapes, doubt, quote := false, Doubt(0), lx.src[from]
	switch cl {
	case classSingle:
		prefix := ""
		if last == Word && end == from {
			prefix = lx.Name()
		}
		escapes, doubt = lx.stringEscapes(prefix)
	case classDouble:
		escapes, doubt = lx.reading.DoubleEscapes, DoubtDouble
	case classBracket:
		quote = ']'
	}
	pos, closed, differs := quoted(lx.src, from, quote, escapes)
	if escapes && doubt == 0 { // a string on the next line continues E'…', with its escapes
		pos, closed = escapedOn(lx.src, pos, closed)
	}
	if differs {
		lx.Doubt |= doubt
	}
	if cl == classBracket && lx.rules.has(DoubtfulBrackets) && !isSubscript(lx.src[from+1:pos]) {
		lx.Strange = true
	}
	lx.OpenQuote = lx.OpenQuote || !closed
	lx.Strange = lx.Strange || lx.inCode && lx.codeIsDoubt
	return pos
}

// stringEscapes reports whether '…' has backslash escapes, and the doubt about that. prefix is the
// word that stands directly before the quote.
func (lx *Lexer) stringEscapes(prefix string) (escapes bool, doubt Doubt) {
	switch {
	case lx.rules.has(EscapeStrings) && Equal(prefix, "e"):
		return true, 0
	case lx.rules.has(AlternativeQuotes) && (Equal(prefix, "q") || Equal(prefix, "nq")):
		lx.Strange = true
	}
	return lx.reading.SingleEscapes, DoubtSingle
}

// isSubscript reports whether the text between brackets, with the closing bracket, ends at the same
// place when it is read as an expression.
func isSubscript(text string) bool {
	return strings.Count(text, "'")%2 == 0 && !strings.ContainsAny(text, "\"`;\\") &&
		!strings.Contains(text, "--") && !strings.Contains(text, "/*")
}

// comment reads the comment that opens at from, or, when it is code for the
// server, only its opening.
func (lx *Lexer) comment(from int) (pos int) {
	lx.Mixed = lx.Mixed || lx.inCode && lx.codeIsDoubt
	code, skipped := lx.versioned(from)
	if code != 0 {
		return code
	}
	pos, closed, inner := blockComment(lx.src, from, lx.rules.has(NestedComments))
	lx.Strange = lx.Strange || inner && lx.rules.has(DoubtfulNesting)
	lx.Mixed = lx.Mixed || inner && skipped // MariaDB reads nested comments where it skips one
	lx.OpenComment = lx.OpenComment || !closed
	return pos
}

// versioned returns where the code begins in the comment that opens at from; 0: the comment is no
// code in this reading. skipped: the comment is code in other readings.
func (lx *Lexer) versioned(from int) (code int, skipped bool) {
	if !lx.rules.has(VersionedComments) {
		return 0, false
	}
	code, version, certain := versionedComment(lx.src, from)
	if code == 0 {
		return 0, false
	}
	if !certain {
		lx.Doubt |= DoubtVersion
		lx.Mixed = lx.Mixed || lx.version != 0 && lx.version != version
		lx.version = version
		if lx.reading.SkipVersioned {
			return 0, true
		}
	}
	lx.Mixed = lx.Mixed || lx.inCode
	lx.inCode, lx.codeIsDoubt = true, !certain
	return code, false
}

// maxVariable is the greatest length of a variable's name that is understood, so that the time
// stays linear in the length of the text.
const maxVariable = 1000

// tclVariable looks for the parenthesis that belongs to the variable whose
// sign ends at pos.
func (lx *Lexer) tclVariable(pos int, tok Token) {
	if tok != Operator || !lx.rules.has(TclVariables) {
		return
	}
	limit := min(len(lx.src), pos+maxVariable)
	for pos < limit && (wordByte[lx.src[pos]] || lx.src[pos] == ':') {
		pos++
	}
	lx.Strange = lx.Strange || pos < len(lx.src) && (pos == limit || lx.src[pos] == '(')
}
