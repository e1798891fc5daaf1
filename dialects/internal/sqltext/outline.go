package sqltext

import (
	"strings"
	"unicode/utf8"
)

// mostOutline is the length of an outline, in bytes, at which it is cut.
const mostOutline = 200

// Outline returns a text for people to read: without literals, for which ? stands, without
// comments, in one line and cut. names: "…" is a name; else it may be a string. Outline cuts the
// text at the place from which it can be read in more than one way: the rest may be inside a
// literal. It also cuts the text if a statement sets something to a word without quotes.
func Outline(src string, rules *Rules, reading Reading, names bool) string {
	o := outliner{names: names}
	o.lx.Init(src, rules, reading)
	for o.text.Len() < mostOutline {
		tok := o.lx.Next()
		if tok == EOF {
			if o.lx.OpenQuote || o.lx.OpenComment {
				o.cut()
			}
			return o.text.String()
		}
		if !o.put(tok) {
			o.cut()
			return o.text.String()
		}
	}
	o.cut()
	return o.text.String()
}

type outliner struct {
	lx    Lexer
	text  strings.Builder
	names bool
	begun bool  // the first word of the statement was read
	kind  uint8 // the code of the first word

	// Of the last token:
	end     int  // where it ended
	literal bool // it is a number, or continues a number
	dollar  bool // it is a $
}

// The codes of the words that begin a statement.
const (
	data    uint8 = 1 << iota
	setting       // sets something to a value that may have no quotes
)

var beginnings = NewNames(
	Group{data, "select insert update delete merge replace values with explain"},
	Group{setting, "set pragma alter"},
)

// secrets are followed by a secret, which in some databases needs no quotes.
var secrets = Words("identified password key")

// put writes a token. It returns false if the text must be cut before the token.
func (o *outliner) put(tok Token) bool {
	lx := &o.lx
	if o.ambiguous() || o.hides(tok) {
		return false
	}
	from, to := lx.Span()
	glued := o.text.Len() > 0 && from == o.end
	text := lx.Text()
	switch {
	case tok == Number && o.dollar && glued:
		o.literal = false // a placeholder's number
	case glued && o.continuesNumber(tok):
		o.end = to // as in 0x1F, 1.5e10
		return true
	case tok == Number, tok == String, tok == Quoted && !o.isName(text):
		text = "?"
		o.literal = tok == Number
	default:
		o.literal = false
	}
	o.dollar = tok == Operator && text == "$"
	o.write(text, glued)
	o.end = to
	return true
}

// ambiguous reports whether the text can be read in two ways from here on.
func (o *outliner) ambiguous() bool {
	return o.lx.Doubt != 0 || o.lx.Strange || o.lx.Mixed || o.lx.StrayBackslash
}

// continuesNumber reports whether a token that stands right behind a number belongs to it.
func (o *outliner) continuesNumber(tok Token) bool {
	return o.literal && (tok == Number || tok == Word || tok == Dot)
}

// hides reports whether a token is, or is followed by, a value that may have no quotes.
func (o *outliner) hides(tok Token) bool {
	switch {
	case tok == Semicolon:
		o.begun, o.kind = false, 0
		return false
	case !o.begun:
		o.begun, o.kind = true, o.lx.WordIn(beginnings)
		return false
	case o.kind == data:
		return false
	case tok == Word && secrets.Lookup(o.lx.Text()) != 0:
		return true
	}
	return o.kind == setting && (tok == Assign || tok == Open || tok == Operator && o.lx.Text() == "=" || o.lx.IsWord("to"))
}

// isName reports whether a text in quotes, or a name without them, is shown.
func (o *outliner) isName(text string) bool {
	switch text[0] {
	case '"':
		return o.names
	case '[':
		return false // it may be a subscript
	}
	return true
}

func (o *outliner) write(text string, glued bool) {
	if o.text.Len() > 0 && !glued {
		o.text.WriteByte(' ')
	}
	if room := mostOutline - o.text.Len(); len(text) > room {
		for room > 0 && !utf8.RuneStart(text[room]) {
			room--
		}
		text = text[:max(room, 0)]
	}
	o.text.WriteString(strings.ToValidUTF8(text, "?"))
}

// cut shows that something is missing.
func (o *outliner) cut() { o.text.WriteString(" …") }
