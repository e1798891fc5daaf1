package mysql

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

const (
	setForget uint8 = 1 << iota
	setAutocommit
	setUnresettable
)

// setWords are the words that matter anywhere in a SET.
var setWords = sqltext.NewNames(
	sqltext.Group{Code: setForget, Names: `sql_mode names character charset role resource
		character_set_client character_set_connection character_set_results character_set_database
		character_set_server collation_connection collation_database collation_server`},
	sqltext.Group{Code: setAutocommit, Names: "autocommit"},
	sqltext.Group{Code: setUnresettable, Names: "authorization"}, // SET SESSION AUTHORIZATION: MariaDB 12
)

var setGlobals = sqltext.NewNames(sqltext.Group{Code: 1, Names: "global persist persist_only"})

var forWord = sqltext.NewNames(sqltext.Group{Code: 1, Names: "for"})

// set classifies SET from the word after it on.
func (c *classifier) set() dialects.Effect {
	lx := &c.lx
	tok := lx.Next()
	switch {
	case lx.IsWord("password"):
		return c.skip(dialects.Clean)
	case lx.IsWord("default"):
		if lx.Next(); lx.IsWord("role") {
			return c.skip(dialects.Clean)
		}
	case lx.IsWord("statement"):
		return c.setStatement()
	case lx.WordIn(setGlobals) != 0:
		ahead := *lx
		if ahead.Next(); ahead.IsName() {
			return c.setOne(ahead.IsWord("transaction"))
		}
	case tok == sqltext.Operator && lx.Text() == "@":
		// @@global.x: two signs, the first of them already read.
		ahead := *lx
		if ahead.Next() == sqltext.Operator && ahead.Next() == sqltext.Word && setGlobals.Lookup(ahead.Text()) != 0 &&
			ahead.Next() == sqltext.Dot {
			return c.setOne(false)
		}
	}
	effect := dialects.Stateful
	names := lx.SkipStatementNoting(setWords)
	if names&setForget != 0 {
		effect |= dialects.ForgetPrepared
	}
	if names&setAutocommit != 0 {
		effect |= dialects.TxControl
	}
	if names&setUnresettable != 0 {
		effect |= dialects.Unresettable
	}
	return effect
}

// setOne classifies the rest of a SET of a global variable: it is clean if
// nothing else is set and the value's expression is. The characteristics of
// SET GLOBAL TRANSACTION may be several.
func (c *classifier) setOne(transaction bool) dialects.Effect {
	ahead := c.lx
	for !transaction && !ahead.Ended() {
		if ahead.Next() == sqltext.Comma {
			return c.query(queryWords) | dialects.Stateful | dialects.ForgetPrepared | dialects.TxControl
		}
	}
	return c.query(queryWords)
}

// setStatement classifies MariaDB's SET STATEMENT x = 1 FOR statement: the
// values last as long as the statement.
func (c *classifier) setStatement() dialects.Effect {
	lx := &c.lx
	effect := dialects.Clean
	for {
		switch lx.Skim(forWord) {
		case sqltext.Call:
			effect |= c.call()
		case sqltext.Assign:
			effect |= dialects.Stateful
		case sqltext.Semicolon, sqltext.EOF:
			return effect | dialects.Stateful
		case sqltext.Word:
			if lx.Keyword() {
				tok := lx.Next()
				if lx.IsWord("set") {
					return effect | dialects.Stateful | c.skip(dialects.Clean)
				}
				return effect | c.statement(tok)
			}
		}
	}
}

// createModifiers are the words between CREATE and what is created.
var createModifiers = sqltext.NewNames(
	sqltext.Group{Code: sqltext.Modifier, Names: "or replace unique fulltext spatial aggregate online offline"},
	sqltext.Group{Code: sqltext.Temporary, Names: "temporary"},
)

const (
	createTable uint8 = iota + 1
	createRoutine
)

var createWords = sqltext.NewNames(
	sqltext.Group{Code: createTable, Names: "table"},
	sqltext.Group{Code: createRoutine, Names: "function procedure trigger event package definer"},
)

var bodyWords = sqltext.NewNames(sqltext.Group{Code: 1, Names: "begin"})

// create classifies CREATE from the word after it on.
func (c *classifier) create() dialects.Effect {
	lx := &c.lx
	effect := dialects.Clean
	if lx.SkipWords(createModifiers)&sqltext.Temporary != 0 {
		effect = dialects.Stateful
	}
	if lx.Token() != sqltext.Word {
		return c.query(queryWords) | dialects.Suspect
	}
	switch createWords.Lookup(lx.Text()) {
	case createTable:
		c.unknown = dialects.Clean
		return effect | c.query(createTableWords)
	case createRoutine:
		// Where a body of several statements ends is not followed: they
		// count as if they were executed.
		for !lx.Ended() {
			if lx.Skim(bodyWords) == sqltext.Word && lx.Keyword() {
				return effect | dialects.Suspect | c.skip(dialects.Clean)
			}
		}
		return effect
	default:
		return c.skip(effect)
	}
}

// drop classifies DROP from the word after it on.
func (c *classifier) drop() dialects.Effect {
	lx := &c.lx
	lx.Next()
	switch {
	case lx.IsWord("temporary"):
		return c.skip(dialects.Stateful)
	case lx.IsWord("prepare"):
		return c.skip(dialects.Stateful | dialects.NamedPrepared)
	case lx.IsWord("database"), lx.IsWord("schema"):
		return c.skip(dialects.Suspect | dialects.ForgetPrepared)
	}
	return c.skip(dialects.Clean)
}

// start classifies START, of which only TRANSACTION is about transactions,
// and its kin.
func (c *classifier) start() dialects.Effect {
	if c.lx.IsWord("start") {
		if c.lx.Next(); !c.lx.IsWord("transaction") {
			return c.skip(dialects.Clean)
		}
	}
	return c.skip(dialects.TxControl)
}

// begin classifies BEGIN, which opens a transaction or, in MariaDB, a compound
// statement: BEGIN NOT ATOMIC, and plain BEGIN under its Oracle mode. The
// statements of that follow one by one.
func (c *classifier) begin() dialects.Effect {
	lx := &c.lx
	tok := lx.Next()
	if lx.Ended() || lx.IsWord("work") {
		return c.skip(dialects.TxControl)
	}
	effect := dialects.Suspect | dialects.TxControl
	if lx.IsWord("not") {
		lx.Next()
		tok = lx.Next()
	}
	if lx.IsWord("begin") {
		return effect | c.query(queryWords)
	}
	return effect | c.statement(tok)
}

var lockWords = sqltext.NewNames(sqltext.Group{Code: 1, Names: "lock export"})

// flush classifies FLUSH: FLUSH TABLES … WITH READ LOCK or FOR EXPORT holds
// locks.
func (c *classifier) flush() dialects.Effect {
	effect := dialects.Clean
	for !c.lx.Ended() {
		if c.lx.Skim(lockWords) == sqltext.Word && c.lx.Keyword() {
			effect = dialects.Stateful
		}
	}
	return effect
}

// explain classifies what EXPLAIN, DESCRIBE or ANALYZE is about: a statement,
// which ANALYZE executes, or a table.
func (c *classifier) explain() dialects.Effect {
	lx := &c.lx
	effect := dialects.Clean
	for {
		tok := lx.Next()
		switch {
		case lx.Ended():
			return effect
		case tok == sqltext.At:
			effect |= dialects.Stateful // EXPLAIN … INTO @x
		case tok == sqltext.Word:
			switch heads.Lookup(lx.Text()) {
			case headQuery, headInsert:
				return effect | c.statement(tok)
			}
		case tok == sqltext.Open:
			return effect | c.statement(tok)
		}
	}
}
