// Package postgres says what statements of PostgreSQL leave behind, by their text, and
// what takes that away. It knows no driver: every dialect that may meet PostgreSQL uses
// it.
package postgres

import (
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// The classifier answers for PostgreSQL's own meaning of a text. Decisions
// that are not obvious:
//
//   - What ends with the transaction is clean: SET LOCAL, SET TRANSACTION,
//     SET CONSTRAINTS, LOCK, NOTIFY, pg_advisory_xact_lock, large object
//     descriptors, cursors without hold, set_config with a literal true, and
//     temporary tables made ON COMMIT DROP. But what is prepared meanwhile may be
//     of other tables than it is afterwards.
//   - nextval, setval, currval and lastval are clean. Any INSERT with a serial
//     column sets what currval returns, without a word in its text; marking
//     the explicit calls would cost a cleaning each and close nothing.
//   - A function that is not known to be harmless is suspect. A known name
//     counts when it is unqualified or in pg_catalog. That somebody overloads
//     such a name in another schema with a function that keeps state is not
//     seen.
//   - EXECUTE is suspect, not stateful: the session state is the PREPARE's.
//   - What no cleaning undoes is unresettable: a seed (there is no telling what it
//     was), a connection of dblink's, a library that LOAD has loaded, a backup,
//     a replication origin, and a replication slot, which may be a temporary
//     one. A seed stays when the transaction is rolled back. What may be one of
//     these and hides its name is taken for it: set_config with a name that is no
//     plain literal, U&"…" that is called or set, and DO with EXECUTE in it or in
//     another language than PL/pgSQL.
//   - UPDATE pg_settings is SET by way of a rule of that view.
//
// What the text does not show is not seen: a trigger, a rule or a view of the
// program's own (over pg_settings, too), an operator or a cast made of a
// function that keeps state, the default of a column, and a function called in
// the notation of an attribute, SELECT t.f FROM t, which looks like a column.

var lexical = sqltext.NewRules(sqltext.DollarQuotes | sqltext.EscapeStrings |
	sqltext.NestedComments | sqltext.ReturnEndsComment | sqltext.UnicodeNames)

// Classify returns what a text, one statement or several, leaves behind. It
// runs on every statement: one pass, no allocation.
func Classify(query string) dialects.Effect {
	effect, doubt := classifyReading(query, sqltext.Reading{}, true)
	if doubt != 0 {
		// With standard_conforming_strings off the strings end elsewhere.
		other, _ := classifyReading(query, sqltext.Reading{SingleEscapes: true}, false)
		effect |= other
	}
	return effect
}

// classifyReading classifies one reading of the text. A reading that is not
// the likely one and ends inside quotes, or has a backslash outside them, is a
// syntax error and changes nothing.
func classifyReading(query string, reading sqltext.Reading, likely bool) (dialects.Effect, sqltext.Doubt) {
	var c classifier
	c.lx.Init(query, lexical, reading)
	total := dialects.Clean
	for c.lx.BeginStatement() {
		c.unknown, c.loose = dialects.Suspect, false
		total |= c.statement(c.lx.Next())
	}
	switch {
	case c.lx.Misread() && !likely:
		return dialects.Clean, 0
	case c.lx.Broken():
		total |= dialects.Suspect
	}
	return total, c.lx.Doubt
}

type classifier struct {
	lx sqltext.Lexer

	// unknown is the effect of calling an unknown function here.
	unknown dialects.Effect

	// loose is set once a name after a closing parenthesis may be a function,
	// not an alias with a list of columns: SELECT DISTINCT ON (a) f(b).
	loose bool
}

// The statements, by their first word.
const (
	headQuery uint8 = iota + 1
	headInert
	headTx
	headSet
	headReset
	headCreate
	headAlter
	headExplain
	headDeclare
	headPrepare
	headExecute
	headDeallocate
	headDiscard
	headState
	headLoad
	headCall
	headDo
)

var heads = sqltext.NewNames(
	sqltext.Group{Code: headQuery, Names: "select insert update delete merge values with table copy"},
	sqltext.Group{Code: headInert, Names: `drop grant revoke comment truncate vacuum analyze analyse reindex
		cluster refresh notify lock fetch move close show checkpoint security reassign import`},
	sqltext.Group{Code: headTx, Names: "begin start commit end abort rollback savepoint release"},
	sqltext.Group{Code: headSet, Names: "set"},
	sqltext.Group{Code: headReset, Names: "reset"},
	sqltext.Group{Code: headCreate, Names: "create"},
	sqltext.Group{Code: headAlter, Names: "alter"},
	sqltext.Group{Code: headExplain, Names: "explain"},
	sqltext.Group{Code: headDeclare, Names: "declare"},
	sqltext.Group{Code: headPrepare, Names: "prepare"},
	sqltext.Group{Code: headExecute, Names: "execute"},
	sqltext.Group{Code: headDeallocate, Names: "deallocate"},
	sqltext.Group{Code: headDiscard, Names: "discard"},
	sqltext.Group{Code: headState, Names: "listen unlisten"},
	sqltext.Group{Code: headLoad, Names: "load"},
	sqltext.Group{Code: headCall, Names: "call"},
	sqltext.Group{Code: headDo, Names: "do"},
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
		effect := dialects.Clean
		switch {
		case lx.IsWord("with"):
			lx.BeginWith()
		case lx.IsWord("update"):
			effect = c.update()
		}
		return effect | c.query()
	case headInert:
		return c.skip(dialects.Clean)
	case headTx:
		return c.skip(dialects.TxControl)
	case headSet:
		return c.set()
	case headReset:
		lx.Next()
		return c.skip(dialects.Stateful | c.forget())
	case headCreate:
		return c.create()
	case headAlter:
		if lx.Next(); lx.IsWord("table") {
			return c.query()
		}
		return c.skip(dialects.Clean)
	case headExplain:
		return c.explain()
	case headDeclare:
		return c.declare()
	case headPrepare:
		if lx.Next(); lx.IsWord("transaction") {
			return c.skip(dialects.TxControl)
		}
		return c.query()&dialects.Unresettable | dialects.Stateful | dialects.NamedPrepared
	case headExecute:
		return c.query() | dialects.Suspect | dialects.NamedPrepared
	case headDeallocate:
		return c.skip(dialects.Stateful | dialects.NamedPrepared | dialects.ForgetPrepared)
	case headDiscard:
		if lx.Next(); lx.IsWord("all") {
			return c.skip(dialects.Stateful | dialects.NamedPrepared | dialects.ForgetPrepared)
		}
		if lx.IsWord("temp") || lx.IsWord("temporary") {
			return c.skip(dialects.Stateful | dialects.ForgetPrepared)
		}
		return c.skip(dialects.Stateful)
	case headState:
		return c.skip(dialects.Stateful)
	case headLoad:
		return c.skip(dialects.Stateful | dialects.Unresettable)
	case headCall:
		return c.query() | dialects.Suspect | dialects.TxControl
	case headDo:
		return c.do() | dialects.Suspect | dialects.TxControl
	default:
		return c.query() | dialects.Suspect
	}
}

// skip goes to the end of a statement whose remaining text executes nothing.
func (c *classifier) skip(effect dialects.Effect) dialects.Effect {
	c.lx.SkipStatement()
	return effect
}

// query classifies what remains of a statement that evaluates expressions.
func (c *classifier) query() dialects.Effect {
	lx := &c.lx
	effect := dialects.Clean
	for !lx.Ended() {
		switch lx.Skim(queryWords) {
		case sqltext.Call:
			effect |= c.call()
		case sqltext.Word:
			effect |= c.word()
		}
	}
	return effect
}

const (
	wordInto uint8 = iota + 1
	wordWith
	wordSelect
	wordExecute
	wordUpdate
	wordOn
	wordUescape
)

var queryWords = sqltext.NewNames(
	sqltext.Group{Code: wordInto, Names: "into"},
	sqltext.Group{Code: wordWith, Names: "with"},
	sqltext.Group{Code: wordExecute, Names: "execute"},
	sqltext.Group{Code: wordUpdate, Names: "update"},
	sqltext.Group{Code: wordUescape, Names: "uescape"},
)

// tableWords are those of CREATE TABLE, where functions are evaluated only in
// a query.
var tableWords = sqltext.NewNames(
	sqltext.Group{Code: wordInto, Names: "into"},
	sqltext.Group{Code: wordWith, Names: "with"},
	sqltext.Group{Code: wordSelect, Names: "select values"},
	sqltext.Group{Code: wordExecute, Names: "execute"},
	sqltext.Group{Code: wordUpdate, Names: "update"},
	sqltext.Group{Code: wordUescape, Names: "uescape"},
	sqltext.Group{Code: wordOn, Names: "on"},
)

// word classifies a word that was met inside a query.
func (c *classifier) word() dialects.Effect {
	lx := &c.lx
	if !lx.Keyword() {
		return dialects.Clean
	}
	switch tableWords.Lookup(lx.Text()) {
	case wordSelect:
		c.unknown = dialects.Suspect
	case wordWith:
		if lx.Before() == sqltext.Open {
			lx.BeginWith()
		}
	case wordExecute:
		// CREATE TABLE … AS EXECUTE. As a column's name it costs a cleaning.
		return dialects.Suspect | dialects.NamedPrepared
	case wordUpdate:
		return c.update()
	case wordUescape:
		return c.uescape()
	case wordInto:
		if lx.AfterWord("insert") || lx.AfterWord("merge") {
			return dialects.Clean
		}
		ahead := *lx
		if ahead.Next(); ahead.IsWord("table") {
			ahead.Next()
		}
		if ahead.IsName() &&
			(temporary.Lookup(ahead.Text()) != 0 || mayBeTempSchema(&ahead)) {
			return createsTemp
		}
	}
	return dialects.Clean
}

// temporary are the words that begin the name of a temporary table.
var temporary = sqltext.NewNames(sqltext.Group{Code: 1, Names: "temp temporary local global"})

func mayBeTempSchema(lx *sqltext.Lexer) bool {
	return sqltext.HasPrefix(lx.Name(), "pg_temp") || lx.Disguised()
}

// hidden is the effect of calling a function whose name is not to be read.
const hidden = dialects.Suspect | dialects.Unresettable

// uescape looks whether what stands before UESCAPE is called: U&"f" UESCAPE '!' (1).
func (c *classifier) uescape() dialects.Effect {
	ahead := c.lx
	if sqltext.HasPrefix(ahead.BeforeText(), `u&"`) && ahead.Next() == sqltext.String && ahead.Next() == sqltext.Open {
		return hidden
	}
	return dialects.Clean
}

// call classifies the call whose opening parenthesis was just read.
func (c *classifier) call() dialects.Effect {
	lx := &c.lx
	known := functions.Lookup(lx.Name())
	if lx.KeepsCapitals() {
		known = 0 // "Lower" is not lower
	}
	switch known {
	case funcKeyword:
		if lx.Keyword() {
			return dialects.Clean
		}
	case funcHarmless:
		if (!lx.Qualified() || sqltext.Equal(lx.Qualifier(), "pg_catalog")) && !lx.GluedToNumber() {
			return dialects.Clean
		}
	case funcLoose:
		if lx.Keyword() {
			c.loose = c.loose || !sqltext.Equal(lx.Name(), "on") || lx.AfterWord("distinct")
			return dialects.Clean
		}
	case funcStateful:
		return dialects.Stateful
	case funcUnresettable:
		return dialects.Stateful | dialects.Unresettable
	case funcSetConfig:
		return c.setConfig()
	}
	if sqltext.HasPrefix(lx.Name(), "dblink") {
		return dialects.Stateful
	}
	switch {
	case lx.Before() == sqltext.Cast, lx.GivesName(notFunction):
		return dialects.Clean
	case lx.Before() == sqltext.Close && !c.loose:
		return dialects.Clean // FROM unnest(…) t(a, b)
	case lx.Disguised():
		return hidden
	}
	return c.unknown
}

// notFunction are the words after which name( is not a call.
var notFunction = sqltext.NewNames(sqltext.Group{Code: 1,
	Names: "into as table copy references with recursive"})

// maxLookAhead bounds in tokens how far setConfig looks for its third argument,
// so that the time to classify a text stays linear in its length.
const maxLookAhead = 100

// setConfig classifies set_config, whose arguments follow. With a literal true
// as its third argument what it sets ends with the transaction. A name that is no plain
// literal may be that of the seed, which no cleaning undoes.
func (c *classifier) setConfig() dialects.Effect {
	lx := c.lx
	depth := lx.Depth()
	literal := lx.Next() == sqltext.String && lx.Text()[0] == '\'' && !strings.Contains(lx.Text(), `\`)
	names := literal && changesNames(lx.Text())
	seed := literal && sqltext.Equal(lx.Text(), "'seed'")
	if literal {
		ahead := lx
		literal = ahead.Next() == sqltext.Comma
	}
	commas, last := 0, sqltext.Open
	for range maxLookAhead {
		if lx.Ended() || lx.Depth() < depth {
			break
		}
		if last = lx.Token(); last == sqltext.Comma && lx.Depth() == depth {
			commas++
		}
		lx.Next()
	}
	local := lx.Depth() < depth && commas == 2 && last == sqltext.Word && lx.Before() == sqltext.Comma &&
		sqltext.Equal(lx.Name(), "true")
	effect := dialects.Clean
	if !local || c.lx.Qualified() && !sqltext.Equal(c.lx.Qualifier(), "pg_catalog") {
		effect = dialects.Stateful
	}
	if !literal || names {
		effect |= dialects.ForgetPrepared
	}
	if !literal || seed {
		effect |= dialects.Stateful | dialects.Unresettable
	}
	return effect
}

// changesNames reports whether a quoted parameter name is one that decides
// what a statement's names mean.
func changesNames(quoted string) bool {
	return sqltext.Equal(quoted, "'search_path'") || sqltext.Equal(quoted, "'role'") ||
		sqltext.Equal(quoted, "'session_authorization'")
}
