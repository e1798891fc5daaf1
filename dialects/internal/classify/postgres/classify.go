// Package postgres says what statements of PostgreSQL leave behind, by their text, and which text
// cleans that. It knows no driver: every dialect that may meet PostgreSQL uses it.
package postgres

import (
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/classify"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// The classifier answers for PostgreSQL's own meaning of a text. Decisions
// that are not obvious:
//
//   - What ends with the transaction is clean: SET LOCAL, SET TRANSACTION,
//     SET CONSTRAINTS, LOCK, NOTIFY, pg_advisory_xact_lock, large object
//     descriptors, cursors without hold, set_config with a literal true, and
//     temporary tables made ON COMMIT DROP. But a statement that is prepared meanwhile may use
//     other tables than after the transaction.
//   - nextval, setval, currval and lastval are clean. Any INSERT with a serial column sets the
//     result of currval, without a word in its text. A mark on explicit calls would cost a cleaning
//     each and close no gap.
//   - A function that is not known to be harmless is suspect. A known name counts when it is
//     unqualified or in pg_catalog. The classifier does not see that somebody overloads such a name
//     in another schema with a function that keeps state.
//   - EXECUTE is suspect, not stateful: the PREPARE has made the session state.
//   - State that no cleaning undoes is unresettable: a seed (nobody knows its old value), a
//     connection of dblink, a library that LOAD has loaded, a backup, a replication origin, and a
//     replication slot, which may be temporary. A seed stays when the transaction is rolled back. A
//     text that may do so under a hidden name counts as unresettable: set_config with a name that
//     is no plain literal, U&"…" that is called or set, and DO with EXECUTE in it or in another
//     language than PL/pgSQL.
//   - UPDATE pg_settings is a SET, because of a rule of that view.
//
// The classifier does not see what the text does not show: a trigger, a rule or a view of the
// program's own (over pg_settings, too), an operator or a cast made of a function that keeps state,
// the default of a column, and a function called in the notation of an attribute, SELECT t.f FROM
// t, which looks like a column.

var lexical = sqltext.NewRules(sqltext.DollarQuotes | sqltext.EscapeStrings |
	sqltext.NestedComments | sqltext.ReturnEndsComment | sqltext.UnicodeNames)

var language = classify.New(classify.Language{
	Rules: lexical,
	// With standard_conforming_strings off, '…' has backslash escapes.
	Readings:    []sqltext.Reading{{}, {SingleEscapes: true}},
	WholeText:   true,
	QuotesNames: true,
	Unknown:     dialects.Suspect,
	Reads:       &reads,
	Heads: []classify.Head{
		{Kind: headQuery, Words: "select insert update delete merge values with table copy"},
		{Kind: classify.Evaluated, Words: "execute", Effect: dialects.Suspect | dialects.NamedPrepared},
		{Kind: classify.Evaluated, Words: "call", Effect: dialects.Suspect | dialects.TxControl},
		{Kind: classify.Skipped, Words: `drop grant revoke comment truncate vacuum analyze analyse reindex
			cluster refresh notify lock fetch move close show checkpoint security reassign import`},
		{Kind: classify.Skipped, Words: "begin start commit end abort rollback savepoint release", Effect: dialects.TxControl},
		{Kind: classify.Skipped, Words: "deallocate", Effect: dialects.Stateful | dialects.NamedPrepared | dialects.ForgetPrepared},
		{Kind: classify.Skipped, Words: "listen unlisten", Effect: dialects.Stateful},
		{Kind: classify.Skipped, Words: "load", Effect: dialects.Stateful | dialects.Unresettable},
		{Kind: headSet, Words: "set"},
		{Kind: headReset, Words: "reset", Effect: dialects.Stateful},
		{Kind: headCreate, Words: "create"},
		{Kind: classify.Skipped, Words: "alter", Then: []classify.Head{
			{Kind: classify.Evaluated, Words: "table domain"},
		}},
		{Kind: headExplain, Words: "explain"},
		{Kind: headDeclare, Words: "declare"},
		{Kind: headPrepare, Words: "prepare", Effect: dialects.Stateful | dialects.NamedPrepared, Then: []classify.Head{
			{Kind: classify.Skipped, Words: "transaction", Effect: dialects.TxControl},
		}},
		{Kind: classify.Skipped, Words: "discard", Effect: dialects.Stateful, Then: []classify.Head{
			{Kind: classify.Skipped, Words: "temp temporary", Effect: dialects.Stateful | dialects.ForgetPrepared},
			{Kind: classify.Skipped, Words: "all",
				Effect: dialects.Stateful | dialects.NamedPrepared | dialects.ForgetPrepared | dialects.Rereads},
		}},
		{Kind: headDo, Words: "do", Effect: dialects.Suspect | dialects.TxControl},
	},
})

const (
	headQuery = classify.Own + iota
	headSet
	headReset
	headCreate
	headExplain
	headDeclare
	headPrepare
	headDo
)

// Classify returns what a text, one statement or several, leaves behind. It
// runs on every statement: one pass, no allocation.
func Classify(query string) dialects.Effect {
	var c classifier
	c.Begin(language, query)
	for c.Next() {
		c.unknown, c.words, c.looseAt = dialects.Suspect, queryWords, 0
		c.Add(c.statement())
	}
	return c.Effect()
}

type classifier struct {
	classify.Walk

	// unknown is the effect of a call of an unknown function here.
	unknown dialects.Effect

	// words are the words that matter in this statement.
	words *sqltext.Names

	// dropped: the CREATE TABLE has ON COMMIT DROP.
	dropped bool

	// looseAt is the place of a closing parenthesis. The name after it may be a function, not an
	// alias with a list of columns: SELECT DISTINCT ON (a) f(b). 0: no such place.
	looseAt int32
}

// statement classifies one statement from its first token on, and leaves the
// lexer at its end.
func (c *classifier) statement() dialects.Effect {
	head := c.Statement()
	switch head.Kind {
	case classify.Skipped:
		return head.Effect
	case headQuery:
		switch {
		case c.Lx.IsWord("with"):
			c.Lx.BeginWith()
		case c.Lx.IsWord("update"):
			return c.update() | c.query()
		}
	case headSet:
		return c.set()
	case headReset:
		c.Lx.Next()
		return c.Skip(c.forget() | head.Effect)
	case headCreate:
		return c.create()
	case headExplain:
		return c.explain()
	case headDeclare:
		return c.declare()
	case headPrepare:
		// The effect of its query counts at the EXECUTE. The EXECUTE does not show effects that no
		// cleaning undoes, so these count here.
		return c.query()&dialects.Unresettable | head.Effect
	case headDo:
		return c.do() | head.Effect
	}
	return c.query() | head.Effect
}

// query classifies what remains of a statement that evaluates expressions.
func (c *classifier) query() dialects.Effect {
	lx := &c.Lx
	effect := dialects.Clean
	for !lx.Ended() {
		switch lx.Skim(c.words) {
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

var queryGroups = []sqltext.Group{
	{Code: wordInto, Names: "into"},
	{Code: wordWith, Names: "with"},
	{Code: wordExecute, Names: "execute"},
	{Code: wordUpdate, Names: "update"},
	{Code: wordUescape, Names: "uescape"},
}

var queryWords = sqltext.NewNames(queryGroups...)

// tableWords are those of CREATE TABLE, where functions are evaluated only in
// a query.
var tableWords = sqltext.NewNames(append(queryGroups,
	sqltext.Group{Code: wordSelect, Names: "select values"},
	sqltext.Group{Code: wordOn, Names: "on"})...)

// word classifies a word that was met inside a query.
func (c *classifier) word() dialects.Effect {
	lx := &c.Lx
	word := tableWords.Lookup(lx.Text())
	if !lx.Keyword() && word != wordOn {
		return dialects.Clean
	}
	switch word {
	case wordOn: // only the keyword ON can have COMMIT DROP after it
		ahead := *lx
		if ahead.Next(); ahead.IsWord("commit") {
			ahead.Next()
			c.dropped = c.dropped || ahead.IsWord("drop")
		}
	case wordSelect:
		c.unknown = dialects.Suspect
	case wordWith:
		if lx.Before() == sqltext.Open {
			lx.BeginWith()
		}
	case wordExecute:
		// CREATE TABLE … AS EXECUTE. A column with the name execute costs a cleaning, too.
		return dialects.Suspect | dialects.NamedPrepared
	case wordUpdate:
		return c.update()
	case wordUescape:
		return c.uescape()
	case wordInto:
		return c.into()
	}
	return dialects.Clean
}

// into classifies the INTO of a query: SELECT … INTO makes a table.
func (c *classifier) into() dialects.Effect {
	if c.Lx.AfterWord("insert") || c.Lx.AfterWord("merge") {
		return dialects.Clean
	}
	ahead := c.Lx
	if ahead.Next(); ahead.IsWord("table") {
		ahead.Next()
	}
	if ahead.IsName() && (temporary.Lookup(ahead.Text()) != 0 || mayBeTempSchema(&ahead)) {
		return createsTemp
	}
	return dialects.Clean
}

// temporary are the words that begin the name of a temporary table.
var temporary = sqltext.Words("temp temporary local global")

func mayBeTempSchema(lx *sqltext.Lexer) bool {
	return sqltext.HasPrefix(lx.Name(), "pg_temp") || lx.Disguised()
}

// hidden is the effect of a call of a function whose name cannot be read.
const hidden = dialects.Suspect | dialects.Unresettable

// uescape looks whether the name before UESCAPE is called: U&"f" UESCAPE '!' (1).
func (c *classifier) uescape() dialects.Effect {
	ahead := c.Lx
	if sqltext.HasPrefix(ahead.BeforeText(), `u&"`) && ahead.Next() == sqltext.String && ahead.Next() == sqltext.Open {
		return hidden
	}
	return dialects.Clean
}

// call classifies the call whose opening parenthesis was just read.
func (c *classifier) call() dialects.Effect {
	lx := &c.Lx
	known := functions.Lookup(lx.Name())
	if lx.KeepsCapitals() {
		known = 0 // "Lower" is not lower
	}
	switch {
	case c.harmless(known):
		return dialects.Clean
	case known == funcStateful:
		return dialects.Stateful
	case known == funcUnresettable:
		return dialects.Stateful | dialects.Unresettable
	case known == funcSetConfig:
		return c.setConfig()
	case sqltext.HasPrefix(lx.Name(), "dblink"):
		return dialects.Stateful
	case lx.Before() == sqltext.Cast, lx.GivesName(notFunction), c.afterOperand(), lx.OpensQuery():
		return dialects.Clean
	case lx.Disguised():
		return hidden
	}
	return c.unknown
}

// harmless reports whether the name before a parenthesis is a keyword, or a function
// that keeps nothing in the session.
func (c *classifier) harmless(known uint8) bool {
	lx := &c.Lx
	switch known {
	case funcKeyword:
		return lx.Keyword()
	case funcSyntax:
		return lx.Keyword() || c.builtIn()
	case funcNoArguments:
		ahead := *lx
		return ahead.Next() == sqltext.Close && c.harmless(funcHarmless)
	case funcHarmless:
		return (!lx.Qualified() || c.builtIn()) && !lx.GluedToNumber()
	case funcLoose:
		if lx.Keyword() {
			if !sqltext.Equal(lx.Name(), "on") || lx.AfterWord("distinct") {
				c.loosen()
			}
			return true
		}
	case funcClause:
		return lx.Keyword() && c.isClause()
	}
	return false
}

// builtIn reports whether the name before a parenthesis is one of the server's own schema.
func (c *classifier) builtIn() bool {
	return c.Lx.Qualified() && sqltext.Equal(c.Lx.Qualifier(), "pg_catalog")
}

// notFunction are the words after which name( is not a call.
var notFunction = sqltext.Words("into as table copy references with recursive tablesample")

// setConfig classifies set_config, whose arguments follow. With a literal true as its third
// argument the setting ends with the transaction. A name that is no plain literal may be the name
// of the seed, which no cleaning undoes.
func (c *classifier) setConfig() dialects.Effect {
	lx := c.Lx // a copy, which looks ahead
	depth := lx.Depth()
	var effect dialects.Effect
	local := dialects.Clean
	switch literal, name := nextLiteral(&lx); {
	case !literal:
		effect = dialects.Stateful | dialects.Unresettable | dialects.ForgetPrepared | dialects.Rereads
	case sqltext.Equal(name, "'seed'"):
		effect = dialects.Stateful | dialects.Unresettable
	default:
		effect = changes(name[1 : len(name)-1])
		if sqltext.Equal(name, "'search_path'") {
			local = localPath(lx)
		}
	}
	if c.Lx.Qualified() && !c.builtIn() || !lastIsTrue(&lx, depth) {
		return effect | dialects.Stateful
	}
	return effect | local
}

// localPath is the effect of the search path that follows and that ends with the transaction. A
// path that may begin with the temporary schema is Suspect, and so is an expression. A parameter
// ($1) counts as the schema of a tenant: a cleaning after each of the tenant's transactions would
// cost too much.
func localPath(lx sqltext.Lexer) dialects.Effect {
	lx.Next()
	value := lx
	if literal, text := nextLiteral(&value); literal && !mayNameTemp(text) {
		return dialects.Clean
	}
	if lx.Next() == sqltext.Operator && lx.Text() == "$" && lx.Next() == sqltext.Number && lx.Next() == sqltext.Comma {
		return dialects.Clean
	}
	return dialects.Suspect
}

// nextLiteral reads an argument, and reports whether the whole argument is one plain literal.
func nextLiteral(lx *sqltext.Lexer) (literal bool, text string) {
	if lx.Next() != sqltext.String || lx.Text()[0] != '\'' || strings.Contains(lx.Text(), `\`) {
		return false, ""
	}
	ahead := *lx
	return ahead.Next() == sqltext.Comma, lx.Text()
}

// lastIsTrue reads the rest of three arguments in parentheses, which stand at depth, and
// reports whether the last one is the word true.
func lastIsTrue(lx *sqltext.Lexer, depth int) bool {
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
	return lx.Depth() < depth && commas == 2 && last == sqltext.Word && lx.Before() == sqltext.Comma &&
		sqltext.Equal(lx.Name(), "true")
}
