// Package sqlite says what statements of SQLite leave behind, by their text. It
// knows no driver: every dialect that may meet SQLite uses it.
package sqlite

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/classify"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// The classifier answers for SQLite. Decisions that are not obvious:
//
//   - A function is clean whatever its name: the application's own functions do not know the
//     connection on which they run. load_extension and the functions that register something on the
//     connection are the exceptions.
//   - A PRAGMA is clean if it only reads: without a value, or with an argument that names the
//     subject of the report. Any other PRAGMA is stateful, also under EXPLAIN: some take effect
//     while the statement is compiled.
//   - PRAGMA optimize, incremental_vacuum and wal_checkpoint work on the file,
//     not on the connection, and so do user_version and application_id.
//   - VACUUM writes the whole file anew, by settings that were waiting for it (auto_vacuum).
//     ForgetPrepared tells it from other statements. VACUUM INTO writes another file.
//   - Every statement that may change the file has Writes: also a write into a temporary table,
//     which is not distinguished, a PRAGMA that sets anything, and a text that is not understood.
//     WITH may also precede a SELECT, so the verb counts. BEGIN and COMMIT, which may take locks
//     too, have TxControl.

var lexical = sqltext.NewRules(sqltext.Backticks | sqltext.Brackets | sqltext.TclVariables)

// unknown is the effect of a text that is not understood.
const unknown = dialects.Suspect | dialects.Writes

var language = classify.New(classify.Language{
	Rules:    lexical,
	Readings: []sqltext.Reading{{}},
	Unknown:  unknown,
	Reads:    &reads,
	Heads: []classify.Head{
		{Kind: classify.Evaluated, Words: "insert replace update delete", Effect: dialects.Writes},
		{Kind: classify.Skipped, Words: "drop alter analyze reindex", Effect: dialects.Writes},
		{Kind: classify.Skipped, Words: "begin commit end rollback savepoint release", Effect: dialects.TxControl},
		{Kind: classify.Skipped, Words: "attach detach", Effect: dialects.Stateful | dialects.ForgetPrepared},
		{Kind: classify.Evaluated, Words: "select values"},
		{Kind: headWith, Words: "with"},
		{Kind: headCreate, Words: "create"},
		{Kind: headPragma, Words: "pragma"},
		{Kind: headVacuum, Words: "vacuum"},
		{Kind: headExplain, Words: "explain"},
	},
})

const (
	headWith = classify.Own + iota
	headCreate
	headPragma
	headVacuum
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

type classifier struct{ classify.Walk }

// statement classifies one statement from its first token on, and leaves the
// lexer at its end.
func (c *classifier) statement() dialects.Effect {
	lx := &c.Lx
	if language.Head(lx).Kind != headExplain {
		return c.executed()
	}
	if lx.Next(); lx.IsWord("query") {
		lx.Next() // PLAN
		lx.Next()
	}
	return c.executed() &^ dialects.Writes // some PRAGMAs take effect under EXPLAIN, too
}

// executed classifies what is left of a statement without EXPLAIN before it.
func (c *classifier) executed() dialects.Effect {
	head := language.Head(&c.Lx)
	switch head.Kind {
	case classify.Skipped:
		return c.Skip(head.Effect)
	case headWith:
		return c.query(withWords)
	case headCreate:
		return c.create() | dialects.Writes
	case headPragma:
		return c.pragma()
	case headVacuum:
		if c.Lx.SkipTo(intoWords) {
			return c.Skip(dialects.Writes)
		}
		return dialects.Writes | dialects.ForgetPrepared
	case headExplain:
		return c.query(readWords) | unknown
	}
	return c.query(readWords) | head.Effect
}

var intoWords = sqltext.Words("into")

// readWords are the words by which a query writes: one of the PRAGMAs that can be read as a table
// works on the file. The classifier does not see its name in quotes.
var readWords = sqltext.Words("pragma_optimize")

// withWords are the words by which a statement that begins with WITH writes.
var withWords = sqltext.Words("insert replace update delete pragma_optimize")

var statefulFunctions = sqltext.Words("load_extension fts3_tokenizer")

// query classifies what remains of a statement that evaluates expressions. It
// writes if one of the words is in it.
func (c *classifier) query(words *sqltext.Names) dialects.Effect {
	effect := dialects.Clean
	for !c.Lx.Ended() {
		switch c.Lx.Skim(words) {
		case sqltext.Call:
			if statefulFunctions.Lookup(c.Lx.Name()) != 0 {
				effect |= dialects.Stateful
			}
		case sqltext.Word:
			// A verb is no column, and not the function replace(a, b, c).
			ahead := c.Lx
			if readWords.Lookup(c.Lx.Text()) != 0 || c.Lx.Keyword() && ahead.Next() != sqltext.Open {
				effect |= dialects.Writes
			}
		}
	}
	return effect
}

// createModifiers are the words between CREATE and what is created.
var createModifiers = sqltext.NewNames(
	sqltext.Group{Code: sqltext.Modifier, Names: "unique virtual"},
	sqltext.Group{Code: sqltext.Temporary, Names: "temp temporary"},
)

const (
	createTrigger uint8 = iota + 1
	createTable
)

var createWords = sqltext.NewNames(
	sqltext.Group{Code: createTrigger, Names: "trigger"},
	sqltext.Group{Code: createTable, Names: "table view index"},
)

// create classifies CREATE from the word after it on.
func (c *classifier) create() dialects.Effect {
	lx := &c.Lx
	effect := dialects.Clean
	if lx.SkipWords(createModifiers)&sqltext.Temporary != 0 {
		effect = dialects.Stateful
	}
	if lx.Token() != sqltext.Word {
		return c.query(readWords) | dialects.Suspect
	}
	kind := createWords.Lookup(lx.Text())
	if kind == 0 {
		return c.query(readWords) | dialects.Suspect | effect
	}
	if c.namesTempSchema() {
		effect = dialects.Stateful
	}
	if kind == createTrigger {
		return effect | c.trigger()
	}
	return effect | c.query(readWords)
}

// namesTempSchema reports whether the object about to be created is put into
// the temporary schema: CREATE TABLE IF NOT EXISTS temp.t.
func (c *classifier) namesTempSchema() bool {
	ahead := c.Lx
	for range 4 {
		tok := ahead.Next()
		if tok == sqltext.String { // SQLite takes 'temp'.t too
			return ahead.Text() != "" && sqltext.Equal(ahead.Text(), "'temp'")
		}
		if !ahead.IsName() {
			return false
		}
		if sqltext.Equal(ahead.Name(), "temp") {
			schema := ahead
			return schema.Next() == sqltext.Dot
		}
	}
	return false
}

var bodyWords = sqltext.Words("begin")

// trigger skips CREATE TRIGGER, with its body BEGIN … END.
func (c *classifier) trigger() dialects.Effect {
	if c.Lx.SkipTo(bodyWords) && !c.Lx.SkipBody() {
		return dialects.Suspect
	}
	return c.Skip(dialects.Clean)
}

const (
	pragmaArgument uint8 = iota + 1 // reads; the argument says what
	pragmaHeader                    // a number in the file's header
	pragmaFile                      // works on the file, whatever the argument
)

var pragmas = sqltext.NewNames(
	sqltext.Group{Code: pragmaArgument, Names: `table_info table_xinfo table_list index_info index_xinfo index_list
		foreign_key_list foreign_key_check integrity_check quick_check collation_list function_list database_list
		compile_options module_list pragma_list`},
	sqltext.Group{Code: pragmaHeader, Names: "user_version application_id"},
	sqltext.Group{Code: pragmaFile, Names: "optimize incremental_vacuum wal_checkpoint"},
)

// pragma classifies PRAGMA from the word after it on.
func (c *classifier) pragma() dialects.Effect {
	lx := &c.Lx
	lx.Next()
	for ahead := *lx; ahead.Next() == sqltext.Dot; ahead = *lx {
		lx.Next()
		lx.Next()
	}
	if !lx.IsName() {
		return c.Skip(unknown)
	}
	kind := pragmas.Lookup(lx.Name())
	lx.Next()
	switch {
	case kind == pragmaArgument:
		return c.Skip(dialects.Clean)
	case kind == pragmaFile:
		return c.Skip(dialects.Writes)
	case lx.Ended():
		return dialects.Clean
	case kind == pragmaHeader:
		return c.Skip(dialects.Writes)
	}
	return c.Skip(dialects.Stateful | dialects.Writes)
}
