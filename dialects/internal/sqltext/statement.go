package sqltext

import "strings"

// BeginStatement goes on to the next statement and forgets the tokens of the last statement, which
// was read to its end. It reports whether a next statement exists: none follows the end of the
// text.
func (lx *Lexer) BeginStatement() bool {
	if lx.tok == EOF {
		return false
	}
	lx.tok, lx.start, lx.end = Start, lx.pos, lx.pos
	lx.depth, lx.with = 0, 0
	return true
}

// SkipStatement goes to the end of the statement.
func (lx *Lexer) SkipStatement() {
	for !lx.Ended() {
		lx.Skim(noWords)
	}
}

var noWords = NewNames()

// SkipTo goes to the next of these keywords, and reports whether the statement has one.
func (lx *Lexer) SkipTo(words *Names) bool {
	for !lx.Ended() {
		if lx.Skim(words) == Word && lx.Keyword() {
			return true
		}
	}
	return false
}

// SkipStatementNoting goes from the last token to the end of the statement,
// and returns the codes of the names on the way, quoted ones too, combined by
// or: each code is a bit.
func (lx *Lexer) SkipStatementNoting(names *Names) (codes uint8) {
	for ; !lx.Ended(); lx.Next() {
		if lx.IsName() {
			codes |= names.Lookup(lx.Name())
		}
	}
	return codes
}

// SkipBody goes from the BEGIN of a routine's body to its END: every statement
// of the body ends with a semicolon, and the END follows the last semicolon. SkipBody reports
// whether there is an END.
func (lx *Lexer) SkipBody() bool {
	for lx.Next(); !lx.IsWord("end"); lx.Next() {
		lx.SkipStatement()
		if lx.tok == EOF {
			return false
		}
	}
	return true
}

// The codes of the words between CREATE and what is created, for SkipWords.
const (
	Modifier uint8 = 1 << iota
	Temporary
)

// SkipWords goes to the next token that is none of the words, and returns the
// codes of the words before it, combined by or: each code is a bit.
func (lx *Lexer) SkipWords(words *Names) (codes uint8) {
	lx.Next()
	for code := lx.WordIn(words); code != 0; code = lx.WordIn(words) {
		codes |= code
		lx.Next()
	}
	return codes
}

// SkipOpen goes from tok, the last token, past the parentheses that open there.
func (lx *Lexer) SkipOpen(tok Token) {
	for tok == Open {
		tok = lx.Next()
	}
}

// WordIn returns the code of the last token if it is one of the words, or 0.
func (lx *Lexer) WordIn(words *Names) uint8 {
	if lx.tok != Word {
		return 0
	}
	return words.Lookup(lx.Text())
}

// BeginWith notes that the WITH of a list of named queries was read. The list ends at the verb of
// the same depth.
func (lx *Lexer) BeginWith() { lx.with |= 1 << uint(lx.depth) }

// InWith reports whether the name last read, followed by the parenthesis just
// read, stands in a list of WITH names.
func (lx *Lexer) InWith() bool { return lx.depth > 0 && lx.with>>uint(lx.depth-1)&1 != 0 }

// withEnd are the words that end a list of WITH names.
var withEnd = Words("select insert update delete merge replace values table")

// AfterWords reports whether the two tokens before the name last read are these lower-case
// keywords, with only white space between them.
func (lx *Lexer) AfterWords(first, second string) bool {
	text := strings.TrimRight(lx.src[:lx.beforeSpan.from], " \t\n\f\r")
	from := len(text) - len(first)
	return lx.AfterWord(second) && from > 0 && Equal(text[from:], first) && lx.rules.class[text[from-1]] == classSpace
}

// AfterOperand reports whether the token before the name last read ends an operand or a name, and
// is no closing parenthesis. leads are the words after which an expression may begin.
func (lx *Lexer) AfterOperand(leads *Names) bool {
	switch lx.before {
	case Word:
		glued := lx.beforeSpan.from > 0 && isDigit(int(lx.src[lx.beforeSpan.from-1])) // 1e1from
		return !glued && leads.Lookup(lx.BeforeText()) == 0
	case Quoted, String:
		return true
	case Number:
		return !lx.GluedToNumber()
	}
	return lx.before == Operator && lx.BeforeText() == "]"
}

// GluedToNumber reports whether the name last read follows a digit directly.
func (lx *Lexer) GluedToNumber() bool {
	i := lx.name.from
	return i > 0 && lx.src[i-1] >= '0' && lx.src[i-1] <= '9'
}

// OpensQuery reports whether a query, without a parenthesis of its own, follows the parenthesis
// just read. No function takes such a query: AS NOT MATERIALIZED (SELECT …), = ANY (SELECT …).
func (lx *Lexer) OpensQuery() bool {
	ahead := *lx
	ahead.Next()
	return ahead.IsWord("select") || ahead.IsWord("with")
}

// GivesName reports whether the name last read, before the parenthesis just read, is not called but
// given to something: it stands in a list of WITH names or after one of the words.
func (lx *Lexer) GivesName(words *Names) bool {
	switch lx.before {
	case Comma:
		return lx.InWith()
	case Word:
		return words.Lookup(lx.BeforeText()) != 0
	}
	return false
}
