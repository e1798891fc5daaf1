// Package mysql says what statements of MySQL and MariaDB leave behind, by their
// text. It knows no driver: every dialect that may meet them uses it.
package mysql

import (
	"github.com/pooldriver/pooldriver/dialects"
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

// Classify returns what a text, one statement or several, leaves behind. It
// runs on every statement: one pass, no allocation.
func Classify(query string) dialects.Effect {
	effect, doubt := classifyReading(query, likely)
	if doubt == 0 {
		return effect
	}
	// ANSI_QUOTES makes "…" an identifier, which has no escapes,
	// NO_BACKSLASH_ESCAPES takes them from strings as well, and a versioned
	// comment may be meant for another server.
	for _, skip := range [...]bool{false, true} {
		for _, escapes := range [...]sqltext.Reading{{}, {SingleEscapes: true}, likely} {
			escapes.SkipVersioned = skip
			if escapes == likely {
				continue
			}
			other, _ := classifyReading(query, escapes)
			effect |= other
		}
	}
	return effect
}

// classifyReading classifies one reading of the text. Of a reading that is not
// the likely one, a statement that does not close its quotes or has a backslash
// outside them is a syntax error: it changes nothing, and nothing follows it.
func classifyReading(query string, reading sqltext.Reading) (dialects.Effect, sqltext.Doubt) {
	var c classifier
	c.lx.Init(query, lexical, reading)
	total := dialects.Clean
	for c.lx.BeginStatement() {
		c.unknown, c.insert, c.variables = dialects.Suspect, false, dialects.Clean
		effect := c.statement(c.lx.Next())
		if c.lx.Misread() && reading != likely {
			return total, c.lx.Doubt
		}
		total |= effect
	}
	if c.lx.Broken() {
		total |= dialects.Suspect
	}
	return total, c.lx.Doubt
}

type classifier struct {
	lx sqltext.Lexer

	// unknown is the effect of calling an unknown function here.
	unknown dialects.Effect

	// variables is the effect of a user variable wherever it stands.
	variables dialects.Effect

	// insert is set in statements whose Result tells LAST_INSERT_ID.
	insert bool
}

// The statements, by their first word.
const (
	headQuery uint8 = iota + 1
	headInsert
	headInert
	headTx
	headBegin
	headSet
	headUse
	headCreate
	headDrop
	headExplain
	headFlush
	headLoad
	headState
	headPrepare
	headExecute
	headDeallocate
	headXA
	headCall
	headGet
)

var heads = sqltext.NewNames(
	sqltext.Group{Code: headQuery, Names: "select delete with values table do show kill purge"},
	sqltext.Group{Code: headInsert, Names: "insert replace update"},
	sqltext.Group{Code: headInert, Names: `alter grant revoke truncate rename optimize repair check checksum help
		install uninstall shutdown restart clone cache change reset stop import signal resignal`},
	sqltext.Group{Code: headTx, Names: "start commit rollback savepoint release"},
	sqltext.Group{Code: headBegin, Names: "begin"},
	sqltext.Group{Code: headSet, Names: "set"},
	sqltext.Group{Code: headUse, Names: "use"},
	sqltext.Group{Code: headCreate, Names: "create"},
	sqltext.Group{Code: headDrop, Names: "drop"},
	sqltext.Group{Code: headExplain, Names: "explain describe desc analyze"},
	sqltext.Group{Code: headFlush, Names: "flush"},
	sqltext.Group{Code: headLoad, Names: "load"},
	sqltext.Group{Code: headState, Names: "lock unlock handler backup"},
	sqltext.Group{Code: headPrepare, Names: "prepare"},
	sqltext.Group{Code: headExecute, Names: "execute"},
	sqltext.Group{Code: headDeallocate, Names: "deallocate"},
	sqltext.Group{Code: headXA, Names: "xa"},
	sqltext.Group{Code: headCall, Names: "call"},
	sqltext.Group{Code: headGet, Names: "get"},
)

// statement classifies one statement from its first token on, and leaves the
// lexer at its end.
func (c *classifier) statement(tok sqltext.Token) dialects.Effect {
	lx := &c.lx
	lx.SkipOpen(tok)
	if lx.Ended() {
		return dialects.Clean
	}
	switch lx.WordIn(heads) {
	case headQuery:
		if lx.IsWord("with") {
			lx.BeginWith()
		}
		return c.query(queryWords)
	case headInsert:
		c.insert = true
		return c.query(queryWords)
	case headInert:
		return c.skip(dialects.Clean)
	case headTx:
		return c.start()
	case headBegin:
		return c.begin()
	case headSet:
		return c.set()
	case headUse:
		return c.skip(dialects.Stateful | dialects.ForgetPrepared)
	case headCreate:
		return c.create()
	case headDrop:
		return c.drop()
	case headExplain:
		return c.explain()
	case headFlush:
		return c.flush()
	case headLoad:
		// LOAD DATA … (a, @b) assigns @b from every row.
		c.variables = dialects.Stateful
		return c.query(queryWords)
	case headState:
		return c.skip(dialects.Stateful)
	case headPrepare:
		return c.skip(dialects.Stateful | dialects.NamedPrepared)
	case headExecute:
		return c.query(queryWords) | dialects.Suspect | dialects.TxControl | dialects.ForgetPrepared | dialects.NamedPrepared
	case headDeallocate:
		return c.skip(dialects.Stateful | dialects.NamedPrepared)
	case headXA:
		return c.skip(dialects.Stateful | dialects.TxControl)
	case headCall:
		c.variables = dialects.Stateful
		return c.query(queryWords) | dialects.Suspect | dialects.TxControl
	case headGet:
		c.variables = dialects.Stateful
		return c.query(queryWords)
	default:
		return c.query(queryWords) | dialects.Suspect
	}
}

// skip goes to the end of a statement whose remaining text executes nothing.
func (c *classifier) skip(effect dialects.Effect) dialects.Effect {
	c.lx.SkipStatement()
	return effect
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
	lx := &c.lx
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
	if sqltext.Equal(c.lx.PreviousWord(), "into") {
		return dialects.Stateful
	}
	return c.variables
}

// call classifies the call whose opening parenthesis was just read.
func (c *classifier) call() dialects.Effect {
	lx := &c.lx
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
