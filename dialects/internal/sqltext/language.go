package sqltext

import (
	"slices"
	"strings"
	"sync"

	"github.com/pooldriver/pooldriver/dialects"
)

// Role is what a word means in a language. It is a set of bits.
type Role uint32

const (
	Lead    Role = 1 << iota // an expression may begin after it
	Naming                   // a name after it is given, and not called: INTO t (
	Query                    // a query begins: functions are called
	Verb                     // it ends the list of names that WITH gives
	List                     // a list of names begins: WITH
	Watched                  // Language.Watch looks at it

	// Before a parenthesis.
	Harmless  // a function, or a type, that keeps no state in the session
	Bare      // harmless with (): version()
	Keyword   // no name at all: IN (, VALUES (
	Syntax    // as Keyword, but with the catalog's schema before it a harmless function: COALESCE (
	Clause    // as Keyword, if it ends one of Language.Phrases, or Language.Clause says so
	Changing  // changes the session
	Lasting   // changes the session in a way that no cleaning undoes
	Dependent // Language.Depends looks at its arguments

	// What CREATE makes, and the words before it.
	Modifier
	Temporary
	Table   // what it calls is called only by the query in it
	Routine // it has a body

	Option // of EXPLAIN

	// What OnlyReads and AsksBack look for.
	First      // a statement that only reads begins with it
	Acts       // a word, or a function, that does more than read
	Locks      // it does so after FOR, KEY or IN: FOR SHARE
	Pure       // a function that only reads, if Language.Pure is set
	AsksCalled // asks back before a parenthesis: currval('s')
	AsksEmpty  // … before (): LAST_INSERT_ID() but not LAST_INSERT_ID(1)
	AsksSystem // … after @@: @@identity
	AsksShown  // … in SHOW and GET: SHOW WARNINGS
	AsksValue  // … before VALUE: PREVIOUS VALUE FOR s
	AppLocks   // a function that takes an advisory lock
)

// Words is a list of words that have a role.
type Words = Group[Role]

// Language is what is known of a database's texts.
type Language struct {
	Features Feature
	// Readings are the ways in which a text can be read, the likely way first. The others count as
	// well if the first leaves a doubt.
	Readings []Reading
	// WholeText: the server parses the whole text before it executes any of it.
	WholeText bool
	// QuotesNames: "…" is a name. Else it may be a string.
	QuotesNames bool
	// Pure: only the functions with this role are known to read.
	Pure bool

	// Unknown is the effect of a text that is not understood. Call is that of an unknown function.
	Unknown, Call dialects.Effect
	// Temp is the effect of making a temporary object, Create of making a thing that is no Table and no Routine.
	Temp, Create dialects.Effect

	Catalog string // the schema of the server's own functions
	// IsTemp, if set, reports whether a schema is one of temporary objects.
	IsTemp func(name string) bool

	Words   []Words
	Phrases string // by commas; ^ is the beginning of a statement
	Heads   []Head

	// Watch, Depends, Routine and Clause look at the word at i, by its role.
	Watch, Depends, Routine func(s *Statement, i int) dialects.Effect
	Clause                  func(s *Statement, i int) bool

	words   *Names[Role]
	inside  *Names[Role] // of words, those that mean something to Scan wherever they stand
	phrases [][]string
	heads   *heads
}

// Head is a kind of statement. Its first word tells it.
type Head struct {
	// Words are lower case, separated by white space.
	Words string
	// Effect is what every such statement does.
	Effect dialects.Effect
	// How looks at the rest of the statement, behind the word at i, which told the kind. nil: the rest executes nothing.
	How func(s *Statement, i int) dialects.Effect
	// Then are kinds that the second word tells. If it is none of theirs, this Head counts.
	Then []Head
	// Kind is the dialect's own.
	Kind uint8

	then *heads
}

// heads finds kinds of statement by a word.
type heads struct {
	words *Names[code] // the code is an index of kinds
	kinds []Head
}

type code uint32

func newHeads(other Head, known []Head) *heads {
	h := &heads{kinds: append([]Head{other}, known...)}
	groups := make([]Group[code], len(known))
	for i, head := range known {
		groups[i] = Group[code]{code(i + 1), head.Words}
		if head.Then != nil {
			h.kinds[i+1].then = newHeads(head, head.Then)
		}
	}
	h.words = NewNames(groups...)
	return h
}

// common are the words that mean the same everywhere.
var common = []Words{
	{Query, "select values"},
	{List, "with"},
	{Verb, "select insert update delete merge replace values table"},
}

// New completes a language.
func New(l Language) *Language {
	words := slices.Concat(common, l.Words)
	l.words = NewNames(words...)
	var inside []Words
	for _, w := range words {
		if role := w.Code & (Query | Verb | List | Watched); role != 0 {
			inside = append(inside, Words{role, w.Names})
		}
	}
	l.inside = NewNames(inside...)
	l.heads = newHeads(Head{Effect: l.Unknown, How: (*Statement).Scan}, l.Heads)
	for phrase := range strings.SplitSeq(l.Phrases, ",") {
		l.phrases = append(l.phrases, strings.Fields(phrase))
	}
	return &l
}

var statements = sync.Pool{New: func() any { return new(Statement) }}

// Effect returns what a text, one statement or several, leaves behind.
func (l *Language) Effect(query string) (e dialects.Effect) {
	s := statements.Get().(*Statement)
	s.begin(l, query, 0)
	e = s.textEffect()
	doubt := s.doubt
	for i := 1; i < len(l.Readings); i++ {
		if l.Readings[i].differs(l.Readings[0], doubt) {
			s.begin(l, query, i)
			e |= s.textEffect()
		}
	}
	s.release()
	return e
}

func (s *Statement) release() {
	s.lexer = lexer{} // keeps no text alive
	statements.Put(s)
}

// textEffect is the effect of the text in one reading. In a reading that is not the likely one, a text that
// no database accepts executes only what stands before the fault: and nothing, if the server parses the
// whole text first.
func (s *Statement) textEffect() (e dialects.Effect) {
	for s.next() {
		one := s.Effect(0)
		s.finish()
		if s.unlikely && s.misread {
			break
		}
		e |= one
	}
	switch {
	case s.unlikely && s.misread && s.lang.WholeText:
		return dialects.Clean
	case s.unlikely && s.misread && !s.version:
		return e
	case s.strange || s.misread:
		return e | s.lang.Unknown
	}
	return e
}

// maxInside bounds how many statements stand inside of each other (EXPLAIN, SET STATEMENT … FOR): a text
// of 40 MB would end the process.
const maxInside = 20

// Effect is the effect of the statement that begins at i.
func (s *Statement) Effect(i int) dialects.Effect {
	if s.inside++; s.inside > maxInside {
		return s.lang.Unknown
	}
	for s.Mark(i, '(') && s.has(OpenQueries) {
		i++
		s.depth++
	}
	if s.Mark(i, End) {
		return dialects.Clean
	}
	if s.Has(i, List) {
		s.lists |= 1 << s.depth
	}
	head := s.lang.heads.at(s, i)
	if head.then != nil {
		i++
		head = head.then.at(s, i)
	}
	if s.Kind = head.Kind; head.How == nil {
		return head.Effect
	}
	return head.Effect | head.How(s, i)
}

func (h *heads) at(s *Statement, i int) *Head {
	if !s.Mark(i, Word) {
		return &h.kinds[0]
	}
	return &h.kinds[h.words.Lookup(s.Text(i))]
}
