// Package generic classifies statements of a database that no dialect of ours
// knows, by standard SQL and what is common beyond it.
package generic

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// Under this classifier a connection that is not clean is thrown away: nobody
// knows how to clean it. So plain queries must come out clean. Functions are
// taken for harmless but for those known to change a session in any database;
// a statement that begins with an unknown word is suspect.

var lexical = sqltext.NewRules(sqltext.DollarQuotes | sqltext.EscapeStrings | sqltext.DoubtfulNesting |
	sqltext.ReturnEndsComment | sqltext.Backticks | sqltext.DoubtfulBrackets | sqltext.HashNames |
	sqltext.AlternativeQuotes | sqltext.DoubtfulUnicode)

// Classify returns what a text, one statement or several, leaves behind. It
// runs on every statement: one pass, no allocation.
func Classify(query string) dialects.Effect {
	effect, doubt := classifyReading(query, sqltext.Reading{}, true)
	if doubt != 0 {
		// Some databases have backslash escapes in one kind of quotes or both.
		for _, reading := range [...]sqltext.Reading{{SingleEscapes: true}, {SingleEscapes: true, DoubleEscapes: true}} {
			other, _ := classifyReading(query, reading, false)
			effect |= other
		}
	}
	return effect
}

// classifyReading classifies one reading of the text. Of a reading that is not
// the likely one, a statement that does not close its quotes or has a backslash
// outside them is a syntax error: it changes nothing, and nothing follows it.
func classifyReading(query string, reading sqltext.Reading, likely bool) (dialects.Effect, sqltext.Doubt) {
	var c classifier
	c.lx.Init(query, lexical, reading)
	total := dialects.Clean
	for c.lx.BeginStatement() {
		effect := c.statement(c.lx.Next())
		if c.lx.Misread() && !likely {
			return total, c.lx.Doubt
		}
		total |= effect
	}
	if c.lx.Broken() {
		total |= dialects.Suspect
	}
	return total, c.lx.Doubt
}

type classifier struct{ lx sqltext.Lexer }

// The statements, by their first word.
const (
	headQuery uint8 = iota + 1
	headInert
	headGrant
	headTx
	headSet
	headState
	headName
	headPrepared
	headCall
	headCreate
	headAlter
	headExplain
)

var heads = sqltext.NewNames(
	sqltext.Group{Code: headQuery, Names: "select insert update delete merge replace upsert values with table"},
	sqltext.Group{Code: headInert, Names: `drop truncate comment rename show describe desc
		analyze vacuum reindex notify copy`},
	sqltext.Group{Code: headGrant, Names: "grant revoke"},
	sqltext.Group{Code: headTx, Names: "start commit rollback savepoint release abort end"},
	sqltext.Group{Code: headSet, Names: "set reset"},
	sqltext.Group{Code: headState, Names: `declare listen unlisten lock unlock pragma load handler discard open
		dbms_session dbms_application_info dbms_lock`},
	sqltext.Group{Code: headName, Names: "use attach detach connect disconnect"},
	sqltext.Group{Code: headPrepared, Names: "prepare deallocate"},
	sqltext.Group{Code: headCall, Names: "call exec execute do begin"},
	sqltext.Group{Code: headCreate, Names: "create"},
	sqltext.Group{Code: headAlter, Names: "alter"},
	sqltext.Group{Code: headExplain, Names: "explain"},
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
		return c.query(lx.IsWord("update") || lx.IsWord("insert") || lx.IsWord("replace"))
	case headInert:
		return c.query(true)
	case headGrant:
		lx.SkipStatement()
		return dialects.Clean
	case headTx:
		return c.query(false) | dialects.TxControl
	case headSet:
		return c.set()
	case headState:
		return c.query(true) | dialects.Stateful
	case headName:
		return c.query(true) | dialects.Stateful | dialects.ForgetPrepared
	case headPrepared:
		if lx.Next(); lx.IsWord("transaction") {
			return c.query(true) | dialects.TxControl
		}
		return c.query(true) | dialects.Stateful | dialects.NamedPrepared
	case headCall:
		return c.call()
	case headCreate:
		return c.create()
	case headAlter:
		if lx.Next(); lx.IsWord("session") {
			return c.query(true) | dialects.Stateful | dialects.ForgetPrepared
		}
		return c.query(true)
	case headExplain:
		return c.explain()
	default:
		return c.query(true) | dialects.Suspect
	}
}

// call classifies what runs code that is not in the text, and BEGIN, which
// opens a transaction or a block of such code.
func (c *classifier) call() dialects.Effect {
	lx := &c.lx
	switch {
	case lx.IsWord("begin"):
		tok := lx.Next()
		if lx.Ended() || lx.WordIn(beginModes) != 0 {
			return c.query(false) | dialects.TxControl
		}
		effect := dialects.Suspect | dialects.TxControl
		if lx.IsWord("begin") {
			return effect | c.query(true)
		}
		return effect | c.statement(tok)
	case lx.IsWord("execute"):
		return c.query(true) | dialects.Suspect | dialects.TxControl | dialects.NamedPrepared
	}
	return c.query(true) | dialects.Suspect | dialects.TxControl
}

var beginModes = sqltext.NewNames(sqltext.Group{Code: 1,
	Names: "transaction tran work isolation read deferred immediate exclusive concurrent distributed"})

// set classifies SET and RESET from the word after it on. SET TRANSACTION,
// SET CONSTRAINTS and SET LOCAL are about the current transaction; whether
// they are in one the text does not show.
func (c *classifier) set() dialects.Effect {
	lx := &c.lx
	lx.Next()
	effect := dialects.Stateful
	switch {
	case lx.IsWord("transaction"), lx.IsWord("constraints"), lx.IsWord("constraint"), lx.IsWord("local"):
		if ahead := *lx; ahead.Next() == sqltext.Word {
			effect = dialects.Suspect
		}
	}
	names := lx.SkipStatementNoting(setWords)
	if names&setForget != 0 {
		effect |= dialects.ForgetPrepared
	}
	if names&setTx != 0 {
		effect |= dialects.TxControl
	}
	return effect
}

const (
	setForget uint8 = 1 << iota
	setTx
)

var setWords = sqltext.NewNames(
	sqltext.Group{Code: setForget, Names: `schema path catalog role authorization search_path current_schema sql_mode
		quoted_identifier ansi_nulls names collation database all`},
	sqltext.Group{Code: setTx, Names: "autocommit implicit_transactions xact_abort"},
)

const (
	wordInto uint8 = iota + 1
	wordSet
	wordUpdate
	wordBatch
	wordUse
	wordTx
	wordState
)

// queryWords are those that tell something inside a statement. SQL Server
// separates statements by nothing: a word that only begins a statement may
// hide a second one.
var queryWords = sqltext.NewNames(
	sqltext.Group{Code: wordInto, Names: "into"},
	sqltext.Group{Code: wordSet, Names: "set"},
	sqltext.Group{Code: wordUpdate, Names: "update"},
	sqltext.Group{Code: wordBatch, Names: "exec execute"},
	sqltext.Group{Code: wordUse, Names: "use"},
	sqltext.Group{Code: wordTx, Names: "begin commit rollback"},
	sqltext.Group{Code: wordState, Names: `dbms_session dbms_application_info dbms_lock`},
)

// statefulFunctions are known to change the session in one database or another.
var statefulFunctions = sqltext.NewNames(sqltext.Group{Code: 1, Names: `
	set_config setseed get_lock release_lock release_all_locks load_extension
	pg_advisory_lock pg_advisory_lock_shared pg_try_advisory_lock pg_try_advisory_lock_shared
	pg_advisory_unlock pg_advisory_unlock_shared pg_advisory_unlock_all
	dblink_connect dblink_connect_u dblink_disconnect dblink_open dblink_close dblink_send_query
	rdb$set_context set_context sp_set_session_context sp_getapplock sp_executesql`})

// query classifies what remains of a statement. maySet says that a SET in it
// is part of it.
func (c *classifier) query(maySet bool) dialects.Effect {
	lx := &c.lx
	effect := dialects.Clean
	for !lx.Ended() {
		switch lx.Skim(queryWords) {
		case sqltext.Call:
			if statefulFunctions.Lookup(lx.Name()) != 0 {
				effect |= dialects.Stateful
			}
		case sqltext.Word:
			switch word := queryWords.Lookup(lx.Text()); {
			case word == wordState:
				effect |= dialects.Stateful
			case !lx.Keyword():
			case word == wordUpdate:
				maySet = true
			case word == wordBatch:
				effect |= dialects.Suspect
			case word == wordSet && !maySet:
				effect |= dialects.Suspect
			case word == wordUse && c.useDatabase():
				effect |= dialects.Suspect | dialects.ForgetPrepared
			case word == wordTx && c.transaction():
				effect |= dialects.TxControl
			case word == wordInto && c.intoTemporary():
				effect |= dialects.Stateful
			}
		}
	}
	return effect
}

// intoTemporary reports whether the INTO just read makes a temporary table or
// sets a variable.
func (c *classifier) intoTemporary() bool {
	if c.lx.AfterWord("insert") || c.lx.AfterWord("merge") || c.lx.AfterWord("replace") {
		return false
	}
	ahead := c.lx
	tok := ahead.Next()
	text := ahead.Text()
	switch tok {
	case sqltext.Word:
		return createModifiers.Lookup(text) == sqltext.Temporary
	case sqltext.Operator:
		return text == "@"
	}
	return tok == sqltext.Quoted && isHashName(ahead.Name())
}

// transaction reports whether the BEGIN, COMMIT or ROLLBACK just read is a
// statement and not a name: ON COMMIT DROP, SELECT commit FROM builds.
func (c *classifier) transaction() bool {
	begin := c.lx.IsWord("begin")
	ahead := c.lx
	ahead.Next()
	return ahead.WordIn(transactionWords) != 0 || !begin && ahead.Ended()
}

var transactionWords = sqltext.NewNames(sqltext.Group{Code: 1, Names: "tran transaction work"})

// useDatabase reports whether the USE just read is no hint: USE INDEX (i), and
// DB2's USE AND KEEP LOCKS.
func (c *classifier) useDatabase() bool {
	ahead := c.lx
	ahead.Next()
	return ahead.IsName() && useHints.Lookup(ahead.Text()) == 0
}

var useHints = sqltext.NewNames(sqltext.Group{Code: 1, Names: "index key and"})

func isHashName(name string) bool { return name != "" && name[0] == '#' }

// createModifiers are the words between CREATE and what is created.
var createModifiers = sqltext.NewNames(
	sqltext.Group{Code: sqltext.Modifier, Names: "or replace unique recursive unlogged column row multiset set cached memory private"},
	sqltext.Group{Code: sqltext.Temporary, Names: "temp temporary local global volatile"},
)

// create classifies CREATE from the word after it on.
func (c *classifier) create() dialects.Effect {
	lx := &c.lx
	effect := dialects.Clean
	if lx.SkipWords(createModifiers)&sqltext.Temporary != 0 {
		effect = dialects.Stateful
	}
	if lx.Token() != sqltext.Word {
		return c.query(true) | dialects.Suspect
	}
	ahead := *lx
	for tok := ahead.Next(); ahead.IsName() || tok == sqltext.Dot; tok = ahead.Next() {
		if tok != sqltext.Dot && (isHashName(ahead.Name()) || sqltext.Equal(ahead.Name(), "temp") ||
			sqltext.HasPrefix(ahead.Name(), "pg_temp")) {
			effect = dialects.Stateful
		}
	}
	return effect | c.query(true)
}

var explainOptions = sqltext.NewNames(sqltext.Group{Code: 1,
	Names: "analyze analyse verbose query plan for extended distsql debug"})

// explain classifies what EXPLAIN explains: some of its forms execute it.
func (c *classifier) explain() dialects.Effect {
	lx := &c.lx
	lx.SkipWords(explainOptions)
	if lx.Token() == sqltext.Open || lx.IsWord("explain") {
		return c.query(true)
	}
	return c.statement(lx.Token())
}
