// Package mysql says what statements of MySQL and MariaDB leave behind, by their
// text. It knows no driver: every dialect that may meet them uses it.
package mysql

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/classify"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// The classifier answers for MySQL and MariaDB at once; where they differ, the
// worse answer holds. Decisions that are not obvious:
//
//   - What any INSERT or SELECT sets without a word in its text is clean when
//     it is set in so many words too: LAST_INSERT_ID(x) in an INSERT, REPLACE
//     or UPDATE (its value is in the statement's Result), SQL_CALC_FOUND_ROWS,
//     NEXTVAL and SETVAL of a sequence. Elsewhere LAST_INSERT_ID(x) is suspect.
//   - CALL with a user variable is stateful: it may be an OUT parameter, and
//     whoever passes it wants to read it afterwards.
//   - SET TRANSACTION without a scope is meant for the next transaction, which
//     must be on this connection: stateful.
//   - SET GLOBAL and PERSIST are clean while there is only one assignment; a
//     second one may be for the session.
//   - DROP DATABASE is suspect: the session's own may be gone with it.
//   - The implicit commit of a DDL statement is not marked; the server's
//     status flags tell.

var lexical = sqltext.NewRules(sqltext.DashNeedsSpace | sqltext.HashComments | sqltext.Backticks |
	sqltext.VersionedComments | sqltext.AtVariables | sqltext.Assignments)

// likely is how a text is read under the default settings.
var likely = sqltext.Reading{SingleEscapes: true, DoubleEscapes: true}

var language = classify.New(classify.Language{
	Rules: lexical,
	// ANSI_QUOTES makes "…" an identifier, which has no escapes. NO_BACKSLASH_ESCAPES
	// takes the escapes from strings as well. A versioned comment may be meant for
	// another server.
	Readings: []sqltext.Reading{
		likely, {}, {SingleEscapes: true},
		{SkipVersioned: true}, {SkipVersioned: true, SingleEscapes: true}, {SkipVersioned: true, SingleEscapes: true, DoubleEscapes: true},
	},
	Unknown: dialects.Suspect,
	Heads: []classify.Head{
		{Kind: headQuery, Words: "select delete with values table do show kill purge"},
		{Kind: headInsert, Words: "insert replace update"},
		{Kind: classify.Evaluated, Words: "execute",
			Effect: dialects.Suspect | dialects.TxControl | dialects.ForgetPrepared | dialects.NamedPrepared},
		{Kind: classify.Skipped, Words: `alter grant revoke truncate rename optimize repair check checksum help
			install uninstall shutdown restart clone cache change reset stop import signal resignal`},
		{Kind: classify.Skipped, Words: "commit rollback savepoint release", Effect: dialects.TxControl},
		{Kind: classify.Skipped, Words: "use", Effect: dialects.Stateful | dialects.ForgetPrepared | dialects.Renames},
		{Kind: classify.Skipped, Words: "lock unlock handler backup", Effect: dialects.Stateful},
		{Kind: classify.Skipped, Words: "prepare deallocate", Effect: dialects.Stateful | dialects.NamedPrepared},
		{Kind: headXA, Words: "xa"},
		{Kind: headAssigning, Words: "load get"},
		{Kind: headAssigning, Words: "call", Effect: dialects.Suspect | dialects.TxControl},
		{Kind: headStart, Words: "start"},
		{Kind: headBegin, Words: "begin"},
		{Kind: headSet, Words: "set"},
		{Kind: headCreate, Words: "create"},
		{Kind: headDrop, Words: "drop"},
		{Kind: headExplain, Words: "explain describe desc analyze"},
		{Kind: headFlush, Words: "flush"},
	},
})

const (
	headQuery     = classify.Own + iota
	headInsert    // its Result tells LAST_INSERT_ID
	headAssigning // it may assign a user variable wherever one stands: LOAD DATA … (a, @b)
	headStart
	headBegin
	headSet
	headCreate
	headDrop
	headExplain
	headFlush
	headXA
)

// Classify returns what a text, one statement or several, leaves behind. It
// runs on every statement: one pass, no allocation.
func Classify(query string) dialects.Effect {
	var c classifier
	c.Begin(language, query)
	for c.Next() {
		c.unknown, c.insert, c.variables = dialects.Suspect, false, dialects.Clean
		c.Add(c.statement())
	}
	return c.Effect()
}

type classifier struct {
	classify.Walk

	// unknown is the effect of calling an unknown function here.
	unknown dialects.Effect

	// variables is the effect of a user variable wherever it stands.
	variables dialects.Effect

	// insert is set in statements whose Result tells LAST_INSERT_ID.
	insert bool
}

// statement classifies one statement from its first token on, and leaves the
// lexer at its end.
func (c *classifier) statement() dialects.Effect {
	lx := &c.Lx
	if c.TooDeep() {
		return c.Skip(c.Unknown())
	}
	lx.SkipOpen(lx.Token())
	head := c.Head()
	switch head.Kind {
	case classify.Skipped:
		return c.Skip(head.Effect)
	case headQuery:
		if lx.IsWord("with") {
			lx.BeginWith()
		}
	case headInsert:
		c.insert = true
	case headAssigning:
		c.variables = dialects.Stateful
	case headStart:
		return c.start()
	case headBegin:
		return c.begin()
	case headSet:
		return c.set()
	case headCreate:
		return c.create()
	case headDrop:
		return c.drop()
	case headExplain:
		return c.explain()
	case headFlush:
		return c.flush()
	case headXA:
		return c.xa()
	}
	return c.query(queryWords) | head.Effect
}

const (
	wordWith uint8 = iota + 1
	wordSelect
)

var queryWords = sqltext.NewNames(sqltext.Group{Code: wordWith, Names: "with"})

// createTableWords are those of CREATE TABLE, where functions are evaluated
// only in a query.
var createTableWords = sqltext.NewNames(
	sqltext.Group{Code: wordWith, Names: "with"},
	sqltext.Group{Code: wordSelect, Names: "select values"},
)

// query classifies what remains of a statement that evaluates expressions.
func (c *classifier) query(words *sqltext.Names) dialects.Effect {
	lx := &c.Lx
	effect := dialects.Clean
	for !lx.Ended() {
		switch lx.Skim(words) {
		case sqltext.Call:
			effect |= c.call()
		case sqltext.Assign:
			effect |= dialects.Stateful
		case sqltext.At:
			effect |= c.variable()
		case sqltext.Word:
			switch {
			case !lx.Keyword():
			case lx.IsWord("with"):
				if lx.Before() == sqltext.Open {
					lx.BeginWith()
				}
			default:
				c.unknown = dialects.Suspect
			}
		}
	}
	return effect
}

// variable classifies the user variable whose @ was just read. One after INTO
// is assigned.
func (c *classifier) variable() dialects.Effect {
	if sqltext.Equal(c.Lx.PreviousWord(), "into") {
		return dialects.Stateful
	}
	return c.variables
}

// call classifies the call whose opening parenthesis was just read.
func (c *classifier) call() dialects.Effect {
	lx := &c.Lx
	switch functions.Lookup(lx.Name()) {
	case funcKeyword:
		if lx.Keyword() {
			return dialects.Clean
		}
	case funcHarmless:
		if !lx.Qualified() && !lx.GluedToNumber() {
			return dialects.Clean
		}
	case funcStateful:
		return dialects.Stateful
	case funcLastInsertID:
		if ahead := *lx; c.insert || ahead.Next() == sqltext.Close {
			return dialects.Clean
		}
		return dialects.Suspect
	}
	switch {
	case lx.Before() == sqltext.Close:
		return dialects.Clean // JSON_TABLE(…) t(a, b)
	case lx.GivesName(notFunction):
		return dialects.Clean
	}
	return c.unknown
}

// notFunction are the words after which name( is not a call.
var notFunction = sqltext.NewNames(sqltext.Group{Code: 1,
	Names: "into insert replace ignore delayed low_priority high_priority as table with recursive references"})
