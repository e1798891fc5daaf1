// Package classify is what the classifiers of all databases share. It goes through the statements
// of a text, in each way in which the text can be read, and looks up the first word or the first two
// words of each statement. The packages below it, and the generic dialect, add a database's tables,
// and look at the statements for which a table is not enough.
package classify

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// Language is how the texts of a database are read.
type Language struct {
	Rules *sqltext.Rules
	// Readings are the ways in which a text can be read, the likely way first. The others count as
	// well if the first leaves a doubt.
	Readings []sqltext.Reading
	// WholeText: the server parses the whole text before it executes any of it.
	WholeText bool
	// QuotesNames: "…" is a name. Else it may be a string.
	QuotesNames bool
	// Unknown is the effect of a text that is not understood: a statement that begins with an
	// unknown word, and a text that ends inside quotes.
	Unknown dialects.Effect
	// Heads are the known statements.
	Heads []Head
	// Reads says which texts only read, and which ask back.
	Reads *Reads

	heads heads
	deep  Head // of a statement that stands inside of too many others
}

// Head is a kind of statement. It is known by its first word.
type Head struct {
	// Words are lower case, separated by white space.
	Words string
	// Kind is Evaluated, Skipped or one of the database's own kinds.
	Kind uint8
	// Effect is what every such statement does.
	Effect dialects.Effect
	// Then are kinds of statement that the second word tells. If the second word is none of
	// theirs, this Head counts.
	Then []Head

	then *heads
}

// heads finds kinds of statement by a word.
type heads struct {
	words *sqltext.Names // the code is an index of kinds
	kinds []Head
}

// newHeads makes heads. other counts if a word is unknown.
func newHeads(other Head, known []Head) heads {
	h := heads{kinds: append([]Head{other}, known...)}
	groups := make([]sqltext.Group, len(known))
	for i := range known {
		groups[i] = sqltext.Group{Code: uint8(i + 1), Names: known[i].Words}
		if head := &h.kinds[i+1]; head.Then != nil {
			then := newHeads(*head, head.Then)
			head.then = &then
		}
	}
	h.words = sqltext.NewNames(groups...)
	return h
}

// at returns the kind that the last token of lx tells.
func (h *heads) at(lx *sqltext.Lexer) *Head { return &h.kinds[lx.WordIn(h.words)] }

// The kinds that every database has.
const (
	// Evaluated: expressions follow, which may call functions.
	Evaluated uint8 = iota
	// Skipped: the rest of the text executes nothing.
	Skipped
	// Own is the first of the database's own kinds.
	Own
)

var empty = Head{Kind: Skipped}

// New completes a language.
func New(l Language) *Language {
	l.heads = newHeads(Head{Kind: Evaluated, Effect: l.Unknown}, l.Heads)
	l.deep = Head{Kind: Skipped, Effect: l.Unknown}
	return &l
}

// Head returns the kind of statement that begins at the last token of lx, by its first word.
func (l *Language) Head(lx *sqltext.Lexer) *Head {
	if lx.Ended() {
		return &empty
	}
	return l.heads.at(lx)
}

// Outline returns a text without literals and comments, for people.
func (l *Language) Outline(query string) string {
	return sqltext.Outline(query, l.Rules, l.Readings[0], l.QuotesNames)
}

// Walk goes through the statements of one text. A classifier embeds it. Walk calls
// nothing back, so that the classifier stays on the stack:
//
//	c.Begin(language, query)
//	for c.Next() {
//		c.Add(c.statement())
//	}
//	return c.Effect()
type Walk struct {
	Lx sqltext.Lexer

	language *Language
	query    string
	reading  int             // index of Language.Readings
	misread  bool            // the rest of this reading does not count
	inside   int             // nesting depth: the outermost statement and the statements inside of it
	effect   dialects.Effect // of this reading
	total    dialects.Effect // of the readings before it
}

// Begin puts a zero Walk at the beginning of query.
func (w *Walk) Begin(l *Language, query string) {
	w.language, w.query = l, query
	w.Lx.Init(query, l.Rules, l.Readings[0])
}

// Next goes to the first token of the next statement, and reports whether there is one.
func (w *Walk) Next() bool {
	for w.misread || !w.Lx.BeginStatement() {
		if !w.nextReading() {
			return false
		}
	}
	w.Lx.Next()
	w.inside = 0
	return true
}

// maxInside bounds how many statements stand inside of each other (EXPLAIN, SET STATEMENT …
// FOR), because a classifier calls itself for each: a text of 40 MB would end the process.
const maxInside = 20

// Statement is called at the beginning of a statement. It goes past the parentheses that open there
// and returns the statement's kind. The last token is then the first word, or the token after it if
// the kind has a second word (Then). A statement that is Skipped is read to its end.
func (w *Walk) Statement() *Head {
	if w.inside++; w.inside > maxInside {
		w.Lx.SkipStatement()
		return &w.language.deep
	}
	w.Lx.SkipOpen(w.Lx.Token())
	if w.Lx.Ended() {
		return &empty
	}
	known := &w.language.heads
	head := &known.kinds[w.Lx.WordIn(known.words)]
	if head.then != nil {
		w.Lx.Next()
		head = head.then.at(&w.Lx)
	}
	if head.Kind == Skipped {
		w.Lx.SkipStatement()
	}
	return head
}

// Add counts the effect of a statement that was read to its end.
//
// In a reading that is not the likely one, a statement that does not close its quotes,
// or has a backslash outside them, is a syntax error: it changes nothing, and nothing
// follows it. A server that parses the whole text first executes nothing of the text.
func (w *Walk) Add(effect dialects.Effect) {
	w.misread = w.reading > 0 && w.Lx.Misread()
	switch {
	case !w.misread:
		w.effect |= effect
	case w.language.WholeText:
		w.effect = dialects.Clean
	}
	if w.Lx.Mixed || w.Lx.Strange && !w.misread { // also if a later statement is misread
		w.effect |= w.language.Unknown
	}
}

// nextReading ends this reading, and begins the next one if it is needed.
func (w *Walk) nextReading() bool {
	if !w.misread && w.Lx.Broken() {
		w.effect |= w.language.Unknown
	}
	w.total |= w.effect
	certain := w.reading == 0 && w.Lx.Doubt == 0
	if w.reading++; certain || w.reading == len(w.language.Readings) {
		return false
	}
	w.misread, w.effect, w.Lx = false, dialects.Clean, sqltext.Lexer{}
	w.Lx.Init(w.query, w.language.Rules, w.language.Readings[w.reading])
	return true
}

// Effect is the effect of the whole text, after the last statement.
func (w *Walk) Effect() dialects.Effect { return w.total }

// Skip goes to the end of a statement whose remaining text executes nothing.
func (w *Walk) Skip(effect dialects.Effect) dialects.Effect {
	w.Lx.SkipStatement()
	return effect
}
