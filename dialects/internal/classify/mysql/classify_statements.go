package mysql

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// setWords are the words that matter anywhere in a SET, by their effects.
var setWords = sqltext.NewNames(
	sqltext.Group{Code: uint8(dialects.ForgetPrepared), Names: "role"},
	sqltext.Group{Code: uint8(dialects.ForgetPrepared | dialects.Renames), Names: `sql_mode names character charset
		character_set_client character_set_connection character_set_results character_set_database
		character_set_server collation_connection collation_database collation_server`},
	sqltext.Group{Code: uint8(dialects.TxControl), Names: "autocommit"},
	// SET SESSION AUTHORIZATION (MariaDB 12), SET RESOURCE GROUP; the texts of the last
	// borrower, which SHOW PROFILES and optimizer_trace show.
	sqltext.Group{Code: uint8(dialects.Unresettable), Names: "authorization resource profiling optimizer_trace"},
)

var setGlobals = sqltext.Words("global persist persist_only")

var forWord = sqltext.Words("for")

// set classifies SET from the word after it on.
func (c *classifier) set() dialects.Effect {
	lx := &c.Lx
	tok := lx.Next()
	switch {
	case lx.IsWord("password"):
		return c.setOne(false)
	case lx.IsWord("default"):
		if lx.Next(); lx.IsWord("role") {
			return c.setOne(false)
		}
	case lx.IsWord("statement"):
		return c.setStatement()
	case lx.WordIn(setGlobals) != 0:
		ahead := *lx
		if ahead.Next(); ahead.IsName() {
			return c.setOne(ahead.IsWord("transaction"))
		}
	case tok == sqltext.Operator && lx.Text() == "@" && c.namesGlobal():
		return c.setOne(false)
	}
	return dialects.Stateful | c.rereads() | dialects.Effect(lx.SkipStatementNoting(setWords))
}

// harmless are the variables by which the server reads no text: a prepared statement is the same
// whatever their values are. A variable that is missing from the list costs one preparation. The
// integration test TestNoSessionVariableReachesAStatement sets each of them.
var harmless = sqltext.Words(`
	autocommit foreign_key_checks innodb_lock_wait_timeout interactive_timeout lock_wait_timeout max_execution_time
	max_statement_time net_read_timeout net_write_timeout sql_log_bin transaction_isolation transaction_read_only
	tx_isolation tx_read_only unique_checks wait_timeout`)

var setScopes = sqltext.Words("session local global persist persist_only")

// rereads looks at the variables that a SET assigns, from its first assignment on.
func (c *classifier) rereads() dialects.Effect {
	lx := c.Lx // a copy, which looks ahead
	for depth := lx.Depth(); !lx.Ended(); {
		user := lx.Token() == sqltext.At
		for lx.Token() == sqltext.Operator && lx.Text() == "@" {
			lx.Next()
		}
		if lx.WordIn(setScopes) != 0 {
			if lx.Next(); lx.Token() == sqltext.Dot {
				lx.Next()
			}
		}
		if lx.IsWord("transaction") {
			return dialects.Clean
		}
		if !user && (!lx.IsName() || harmless.Lookup(lx.Name()) == 0) {
			return dialects.Rereads
		}
		for !lx.Ended() && (lx.Token() != sqltext.Comma || lx.Depth() > depth) {
			lx.Next()
		}
		if lx.Token() == sqltext.Comma {
			lx.Next()
		}
	}
	return dialects.Clean
}

// namesGlobal reports whether the text is @@global.x; its first sign was just read.
func (c *classifier) namesGlobal() bool {
	ahead := c.Lx
	return ahead.Next() == sqltext.Operator && ahead.Next() == sqltext.Word &&
		setGlobals.Lookup(ahead.Text()) != 0 && ahead.Next() == sqltext.Dot
}

// setOne classifies the rest of a SET of a global variable, a password or a default role:
// the SET is clean if it sets nothing else and the value's expression is clean. SET GLOBAL
// TRANSACTION may have several characteristics.
func (c *classifier) setOne(transaction bool) dialects.Effect {
	ahead := c.Lx
	for !transaction && !ahead.Ended() {
		if ahead.Next() == sqltext.Comma {
			noted := c.Lx
			return c.query() | dialects.Stateful | dialects.ForgetPrepared | dialects.Rereads | dialects.TxControl |
				dialects.Effect(noted.SkipStatementNoting(setWords))&dialects.Unresettable
		}
	}
	return c.query()
}

// setStatement classifies MariaDB's SET STATEMENT x = 1 FOR statement: the
// values last as long as the statement.
func (c *classifier) setStatement() dialects.Effect {
	lx := &c.Lx
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
				if lx.Next(); lx.IsWord("set") {
					return effect | c.Skip(dialects.Stateful)
				}
				return effect | c.statement()
			}
		}
	}
}

var updateModifiers = sqltext.Words("low_priority ignore")

// instruments looks whether an UPDATE changes which measurements the server takes on a connection:
// UPDATE performance_schema.threads. No reset undoes this.
func (c *classifier) instruments() dialects.Effect {
	ahead := c.Lx
	if ahead.IsWord("update") {
		ahead.SkipWords(updateModifiers)
		if ahead.IsName() && sqltext.Equal(ahead.Name(), "performance_schema") {
			return dialects.Stateful | dialects.Unresettable
		}
	}
	return dialects.Clean
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

var bodyWords = sqltext.Words("begin")

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
	switch createWords.Lookup(lx.Text()) {
	case createTable:
		c.unknown, c.words = dialects.Clean, createTableWords
		return effect | c.query()
	case createRoutine:
		// The classifier does not look for the end of a body of several statements: they count as
		// if they were executed.
		if lx.SkipTo(bodyWords) {
			return c.Skip(effect | dialects.Suspect)
		}
		return effect
	default:
		return c.Skip(effect)
	}
}

// begin classifies BEGIN, which opens a transaction or, in MariaDB, a compound
// statement: BEGIN NOT ATOMIC, and plain BEGIN under its Oracle mode. The statements of the
// compound follow one by one.
func (c *classifier) begin() dialects.Effect {
	lx := &c.Lx
	lx.Next()
	if lx.Ended() || lx.IsWord("work") {
		return c.Skip(dialects.TxControl)
	}
	effect := dialects.Suspect | dialects.TxControl
	if lx.IsWord("not") {
		lx.Next()
		lx.Next()
	}
	if lx.IsWord("begin") {
		return effect | c.query()
	}
	return effect | c.statement()
}

var lockWords = sqltext.Words("lock export")

// flush classifies FLUSH: FLUSH TABLES … WITH READ LOCK or FOR EXPORT holds
// locks.
func (c *classifier) flush() dialects.Effect {
	if c.Lx.SkipTo(lockWords) {
		return c.Skip(dialects.Stateful)
	}
	return dialects.Clean
}

// explain classifies what EXPLAIN, DESCRIBE or ANALYZE is about: a statement,
// which ANALYZE executes, or a table.
func (c *classifier) explain() dialects.Effect {
	lx := &c.Lx
	effect := dialects.Clean
	for {
		tok := lx.Next()
		switch {
		case lx.Ended():
			return effect
		case tok == sqltext.At:
			effect |= dialects.Stateful // EXPLAIN … INTO @x
		case tok == sqltext.Word:
			switch language.Head(lx).Kind {
			case headQuery, headInsert:
				return effect | c.statement()
			}
		case tok == sqltext.Open:
			return effect | c.statement()
		}
	}
}
