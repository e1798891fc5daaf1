package sqlite

import (
	"strings"

	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// MapFiles replaces every expression by which a text names a file to open: the expressions of
// ATTACH and of VACUUM INTO, unless they are just NULL. replace gets the expression, and returns
// another expression in its place. A text without such an expression is returned as it is, without
// an allocation.
func MapFiles(query string, replace func(expr string) string) string {
	var (
		c      classifier
		mapped strings.Builder
		copied int
	)
	c.Begin(language, query)
	for c.Next() {
		if from, to, name := fileExpr(c.Lx); from < to {
			expr := query[from:to]
			if name != "" {
				expr = "'" + strings.ReplaceAll(name, "'", "''") + "'"
			}
			mapped.WriteString(query[copied:from])
			mapped.WriteString(replace(expr))
			copied = to
		}
		c.Add(c.statement())
	}
	if copied == 0 {
		return query
	}
	mapped.WriteString(query[copied:])
	return mapped.String()
}

// fileExpr finds the expression that names a file in the statement that begins at the
// last token of lx. ATTACH takes a single name, in quotes or not, for a string: then fileExpr also
// returns it as name.
func fileExpr(lx sqltext.Lexer) (from, to int, name string) {
	attach, end := lx.IsWord("attach"), ""
	switch {
	case attach:
		end = "as"
		if lx.Next(); lx.IsWord("database") {
			lx.Next()
		}
	case lx.IsWord("vacuum"):
		for lx.Next(); !lx.IsWord("into"); lx.Next() { // the name of a schema
			if lx.Ended() {
				return 0, 0, ""
			}
		}
		lx.Next()
	default:
		return 0, 0, ""
	}
	first := lx
	from, to = exprUntil(&lx, end)
	switch _, ends := first.Span(); {
	case to != ends: // more than one token
	case first.IsWord("null"):
		return 0, 0, ""
	case attach && first.IsName():
		name = unquoted(first)
	}
	return from, to, name
}

// exprUntil returns the place of the expression that begins at the last token of lx. The expression
// goes to the word end, or to the end of the statement if end is empty.
func exprUntil(lx *sqltext.Lexer, end string) (from, to int) {
	from, _ = lx.Span()
	for ; !lx.Ended(); lx.Next() {
		if end != "" && lx.Depth() == 0 && lx.IsWord(end) {
			return from, to
		}
		_, to = lx.Span()
	}
	if end != "" {
		return 0, 0 // a syntax error
	}
	return from, to
}

// unquoted is the name at the last token. A quote is doubled in a name in quotes.
func unquoted(lx sqltext.Lexer) string {
	quote := lx.Text()[:1]
	if lx.Token() != sqltext.Quoted || quote == "[" {
		return lx.Name()
	}
	return strings.ReplaceAll(lx.Name(), quote+quote, quote)
}
