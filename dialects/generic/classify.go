package generic

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/classify"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// The generic classifier knows standard SQL and common extensions. A connection that is not clean
// is closed, because nobody knows how to clean it. So plain queries have to be clean. A function
// counts as harmless, unless it is known to change the session in some database. A statement that
// begins with an unknown word is suspect.

var lexical = sqltext.NewRules(sqltext.DollarQuotes | sqltext.EscapeStrings | sqltext.DoubtfulNesting |
	sqltext.ReturnEndsComment | sqltext.Backticks | sqltext.DoubtfulBrackets | sqltext.HashNames |
	sqltext.AlternativeQuotes | sqltext.DoubtfulUnicode)

var language = classify.New(classify.Language{
	Rules: lexical,
	// Some databases have backslash escapes in one kind of quotes or both.
	Readings: []sqltext.Reading{{}, {SingleEscapes: true}, {SingleEscapes: true, DoubleEscapes: true}},
	Unknown:  dialects.Suspect,
	Reads:    &reads,
	Heads: []classify.Head{
		{Kind: headQuery, Words: "select delete merge upsert values with table"},
		{Kind: headQuery, Words: "start commit rollback savepoint release abort end", Effect: dialects.TxControl},
		{Kind: classify.Evaluated, Words: `insert update replace drop truncate comment rename show describe desc
			analyze vacuum reindex notify copy`},
		{Kind: classify.Evaluated, Words: `declare listen unlisten lock unlock pragma load handler discard open
			dbms_session dbms_application_info dbms_lock`, Effect: dialects.Stateful},
		{Kind: classify.Evaluated, Words: "use attach detach connect disconnect", Effect: dialects.Stateful | dialects.ForgetPrepared},
		{Kind: classify.Evaluated, Words: "call exec do", Effect: dialects.Suspect | dialects.TxControl},
		{Kind: classify.Evaluated, Words: "execute", Effect: dialects.Suspect | dialects.TxControl | dialects.NamedPrepared},
		{Kind: classify.Skipped, Words: "grant revoke"},
		{Kind: headBegin, Words: "begin"},
		{Kind: headSet, Words: "set reset"},
		{Kind: classify.Evaluated, Words: "prepare deallocate", Effect: dialects.Stateful | dialects.NamedPrepared, Then: []classify.Head{
			{Kind: classify.Evaluated, Words: "transaction", Effect: dialects.TxControl},
		}},
		{Kind: headCreate, Words: "create"},
		{Kind: classify.Evaluated, Words: "alter", Then: []classify.Head{
			{Kind: classify.Evaluated, Words: "session", Effect: dialects.Stateful | dialects.ForgetPrepared},
		}},
		{Kind: headExplain, Words: "explain"},
	},
})

const (
	headQuery = classify.Own + iota // a SET in the query is another statement
	headBegin
	headSet
	headCreate
	headExplain
)

// Classify returns what a text, one statement or several, leaves behind. It
// runs on every statement: one pass, no allocation.
func Classify(query string) dialects.Effect {
	var c classifier
	c.Begin(language, query)
	for c.Next() {
		c.Add(c.statement())
	}
	return c.Effect()
}

type classifier struct {
	classify.Walk
	maySet bool // a SET may be a part of this statement
}

// statement classifies one statement from its first token on, and leaves the
// lexer at its end.
func (c *classifier) statement() dialects.Effect {
	head := c.Statement()
	c.maySet = head.Kind != headQuery
	switch head.Kind {
	case classify.Skipped:
		return head.Effect
	case headBegin:
		return c.begin()
	case headSet:
		return c.set()
	case headCreate:
		return c.create()
	case headExplain:
		return c.explain()
	}
	return c.query() | head.Effect
}

// begin classifies BEGIN, which opens a transaction or a block of statements.
func (c *classifier) begin() dialects.Effect {
	lx := &c.Lx
	lx.Next()
	if lx.Ended() || lx.WordIn(beginModes) != 0 {
		c.maySet = false
		return c.query() | dialects.TxControl
	}
	effect := dialects.Suspect | dialects.TxControl
	if lx.IsWord("begin") {
		return effect | c.query()
	}
	return effect | c.statement()
}

var beginModes = sqltext.Words("transaction tran work isolation read deferred immediate exclusive concurrent distributed")

// set classifies SET and RESET from the word after it on. SET TRANSACTION,
// SET CONSTRAINTS and SET LOCAL are about the current transaction. The text does not show whether a
// transaction is open.
func (c *classifier) set() dialects.Effect {
	lx := &c.Lx
	lx.Next()
	effect := dialects.Stateful
	switch {
	case lx.IsWord("transaction"), lx.IsWord("constraints"), lx.IsWord("constraint"), lx.IsWord("local"):
		if ahead := *lx; ahead.Next() == sqltext.Word {
			effect = dialects.Suspect
		}
	}
	return effect | dialects.Effect(lx.SkipStatementNoting(setWords))
}

// setWords are the words that matter anywhere in a SET, by their effects.
var setWords = sqltext.NewNames(
	sqltext.Group{Code: uint8(dialects.ForgetPrepared), Names: `schema path catalog role authorization search_path
		current_schema sql_mode quoted_identifier ansi_nulls names collation database all`},
	sqltext.Group{Code: uint8(dialects.TxControl), Names: "autocommit implicit_transactions xact_abort"},
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

// queryWords are the words that matter inside a statement. SQL Server needs no separator between
// statements: a word that only begins a statement may begin a second statement there.
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
var statefulFunctions = sqltext.Words(`
	set_config setseed get_lock release_lock release_all_locks load_extension
	pg_advisory_lock pg_advisory_lock_shared pg_try_advisory_lock pg_try_advisory_lock_shared
	pg_advisory_unlock pg_advisory_unlock_shared pg_advisory_unlock_all
	dblink_connect dblink_connect_u dblink_disconnect dblink_open dblink_close dblink_send_query
	rdb$set_context set_context sp_set_session_context sp_getapplock sp_executesql`)

// query classifies what remains of a statement.
func (c *classifier) query() dialects.Effect {
	lx := &c.Lx
	effect := dialects.Clean
	for !lx.Ended() {
		switch lx.Skim(queryWords) {
		case sqltext.Call:
			if statefulFunctions.Lookup(lx.Name()) != 0 {
				effect |= dialects.Stateful
			}
		case sqltext.Word:
			effect |= c.word(queryWords.Lookup(lx.Text()))
		}
	}
	return effect
}

// word classifies a word that was met inside a statement.
func (c *classifier) word(word uint8) dialects.Effect {
	switch {
	case word == wordState:
		return dialects.Stateful
	case !c.Lx.Keyword():
	case word == wordUpdate:
		c.maySet = true
	case word == wordBatch, word == wordSet && !c.maySet:
		return dialects.Suspect
	case word == wordUse && c.useDatabase():
		return dialects.Suspect | dialects.ForgetPrepared
	case word == wordTx && c.transaction():
		return dialects.TxControl
	case word == wordInto && c.intoTemporary():
		return dialects.Stateful
	}
	return dialects.Clean
}

// intoTemporary reports whether the INTO just read makes a temporary table or
// sets a variable.
func (c *classifier) intoTemporary() bool {
	if c.Lx.AfterWord("insert") || c.Lx.AfterWord("merge") || c.Lx.AfterWord("replace") {
		return false
	}
	ahead := c.Lx
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
	begin := c.Lx.IsWord("begin")
	ahead := c.Lx
	ahead.Next()
	return ahead.WordIn(transactionWords) != 0 || !begin && ahead.Ended()
}

var transactionWords = sqltext.Words("tran transaction work")

// useDatabase reports whether the USE just read is no hint: USE INDEX (i), and
// DB2's USE AND KEEP LOCKS.
func (c *classifier) useDatabase() bool {
	ahead := c.Lx
	ahead.Next()
	return ahead.IsName() && useHints.Lookup(ahead.Text()) == 0
}

var useHints = sqltext.Words("index key and")

func isHashName(name string) bool { return name != "" && name[0] == '#' }

// createModifiers are the words between CREATE and what is created.
var createModifiers = sqltext.NewNames(
	sqltext.Group{Code: sqltext.Modifier, Names: "or replace unique recursive unlogged column row multiset set cached memory private"},
	sqltext.Group{Code: sqltext.Temporary, Names: "temp temporary local global volatile"},
)

// create classifies CREATE from the word after it on.
func (c *classifier) create() dialects.Effect {
	lx := &c.Lx
	effect := dialects.Clean
	if lx.SkipWords(createModifiers)&sqltext.Temporary != 0 {
		effect = dialects.Stateful
	}
	if lx.Token() != sqltext.Word {
		return c.query() | dialects.Suspect
	}
	ahead := *lx
	for tok := ahead.Next(); ahead.IsName() || tok == sqltext.Dot; tok = ahead.Next() {
		if tok != sqltext.Dot && (isHashName(ahead.Name()) || sqltext.Equal(ahead.Name(), "temp") ||
			sqltext.HasPrefix(ahead.Name(), "pg_temp")) {
			effect = dialects.Stateful
		}
	}
	return effect | c.query()
}

var explainOptions = sqltext.Words("analyze analyse verbose query plan for extended distsql debug")

// explain classifies the statement that EXPLAIN explains: some forms of EXPLAIN execute it.
func (c *classifier) explain() dialects.Effect {
	lx := &c.Lx
	lx.SkipWords(explainOptions)
	if lx.Token() == sqltext.Open || lx.IsWord("explain") {
		return c.query()
	}
	return c.statement()
}
