package sqltext

import (
	"strings"
)

// mostOutline is the length of an outline, in bytes, at which it is cut.
const mostOutline = 200

// Outline returns a text for people to read: without literals, for which ? stands, without comments, in one
// line and cut. It is cut where it can be read in more than one way from there on: the rest may be inside a
// literal. It is also cut before a value that may have no quotes.
func (l *Language) Outline(query string) string {
	o := outline{lexer: lexer{src: query, features: l.Features, reading: l.Readings[0]}, names: l.QuotesNames}
	for {
		t := o.next()
		over := t.Kind == End && t.From == t.To
		switch {
		case o.doubt != 0, o.strange, over && o.misread, !over && (o.hides(t) || !o.put(t)):
			return o.text.String() + " …"
		case over:
			return o.text.String()
		}
	}
}

type outline struct {
	lexer
	text  strings.Builder
	names bool // "…" is a name
	begun bool // the first word of the statement was read
	first beginning

	end     int  // where the last token ended
	literal bool // the last token is a number, or continues a number
	dollar  bool // it is a $
}

// beginning is what the first word of a statement tells.
type beginning uint32

const (
	data    beginning = 1 << iota
	setting           // sets something to a value that may have no quotes
	secret            // not a first word: a secret follows, which in some databases needs no quotes
)

var beginnings = NewNames(
	Group[beginning]{data, "select insert update delete merge replace values with explain"},
	Group[beginning]{setting, "set pragma alter"},
	Group[beginning]{secret, "identified password key"},
)

// put writes a token, if there is room for it.
func (o *outline) put(t Token) bool {
	glued := o.text.Len() > 0 && t.From == o.end
	text := o.src[t.From:t.To]
	o.end = t.To
	if glued && o.literal && (t.Kind == Number || t.Kind == Word || t.Kind == '.') { // as in 0x1F, 1.5e10
		return true
	}
	o.literal = t.Kind == Number && !(o.dollar && glued) // a placeholder's number is none
	if o.literal || o.isText(t.Kind, text) {
		text = "?"
	}
	o.dollar = t.Kind == '$'
	if o.text.Len()+len(text) >= mostOutline {
		return false
	}
	if o.text.Len() > 0 && !glued {
		o.text.WriteByte(' ')
	}
	o.text.WriteString(strings.ToValidUTF8(text, "?"))
	return true
}

// isText reports whether a token is a string, or may be one.
func (o *outline) isText(kind Kind, text string) bool {
	return kind == String || kind == Quoted && (text[0] == '[' || text[0] == '"' && !o.names)
}

// hides reports whether a token is, or is followed by, a value that may have no quotes.
func (o *outline) hides(t Token) bool {
	text := o.src[t.From:t.To]
	word := t.Kind == Word
	switch {
	case t.Kind == End:
		o.begun, o.first = false, 0
		return false
	case !o.begun:
		o.begun = true
		if word {
			o.first = beginnings.Lookup(text)
		}
		return false
	case o.first&data != 0:
		return false
	case word && beginnings.Lookup(text)&secret != 0:
		return true
	}
	return o.first&setting != 0 && (t.Kind == Assign || t.Kind == '(' || t.Kind == '=' || word && Equal(text, "to"))
}
