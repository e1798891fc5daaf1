// Package sqlite says what statements of SQLite leave behind, by their text. It
// knows no driver: every dialect that may meet SQLite uses it.
package sqlite

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// Decisions that are not obvious:
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

// unknown is the effect of a text that is not understood.
const unknown = dialects.Suspect | dialects.Writes

var language = sqltext.New(sqltext.Language{
	Features: sqltext.Backticks | sqltext.Brackets | sqltext.TclVariables,
	Readings: []sqltext.Reading{{}},
	Unknown:  unknown,
	Temp:     dialects.Stateful,
	Create:   unknown,
	IsTemp:   func(schema string) bool { return sqltext.Equal(schema, "temp") },
	Watch:    watch, Routine: trigger,
	Heads: []sqltext.Head{
		{Words: "insert replace update delete", How: (*sqltext.Statement).Scan, Effect: dialects.Writes},
		{Words: "drop alter analyze reindex", Effect: dialects.Writes},
		{Words: "begin commit end rollback savepoint release", Effect: dialects.TxControl},
		{Words: "attach detach", Effect: dialects.Stateful | dialects.ForgetPrepared},
		{Words: "select values", How: (*sqltext.Statement).Scan},
		{Words: "with", How: (*sqltext.Statement).Scan, Kind: with},
		{Words: "create", How: (*sqltext.Statement).Create, Effect: dialects.Writes},
		{Words: "pragma", How: pragma},
		{Words: "vacuum", How: vacuum, Effect: dialects.Writes},
		{Words: "explain", How: explain},
	},
	Words: []sqltext.Words{
		{Code: sqltext.Watched, Names: "insert replace update delete pragma_optimize"},
		{Code: sqltext.Modifier, Names: "unique virtual"},
		{Code: sqltext.Temporary, Names: "temp temporary"},
		{Code: sqltext.Table, Names: "table view index"},
		{Code: sqltext.Routine, Names: "trigger"},
		{Code: sqltext.Option, Names: "query plan"},
		{Code: sqltext.Changing, Names: "load_extension fts3_tokenizer"},
		{Code: sqltext.First, Names: "select values with pragma explain"},
		{Code: sqltext.Acts, Names: "last_insert_rowid changes total_changes data_version"},
		{Code: sqltext.AsksCalled, Names: "last_insert_rowid changes total_changes"},
	},
})

// with is the Kind of a statement whose verb stands in it.
const with = 1

// Classify returns what a text, one statement or several, leaves behind.
func Classify(query string) dialects.Effect { return language.Effect(query) }

// Texts answers for the texts of SQLite. A dialect embeds it.
type Texts struct{}

func (Texts) Effect(query string) dialects.Effect { return language.Effect(query) }
func (Texts) Outline(query string) string         { return language.Outline(query) }
func (Texts) OnlyReads(query string) bool         { return language.OnlyReads(query) }
func (Texts) AsksBack(query string) bool          { return language.AsksBack(query) }
func (Texts) TakesLocks(string) bool              { return false }

// watch looks at a word by which a query may write: a verb is no column, and not the function replace(a, b, c).
// One of the PRAGMAs that can be read as a table works on the file. Its name in quotes is not seen.
func watch(s *sqltext.Statement, i int) dialects.Effect {
	if s.Is(i, "pragma_optimize") || s.Kind == with && s.Plain(i) && !s.Mark(i+1, '(') {
		return dialects.Writes
	}
	return dialects.Clean
}

// trigger goes past the body BEGIN … END.
func trigger(s *sqltext.Statement, i int) dialects.Effect {
	if i = s.Find(i, "begin"); i < 0 {
		return dialects.Clean
	}
	return s.SkipBody(i)
}

func vacuum(s *sqltext.Statement, i int) dialects.Effect {
	if s.Find(i, "into") < 0 {
		return dialects.ForgetPrepared
	}
	return dialects.Clean
}

// explain: some PRAGMAs take effect under EXPLAIN, too.
func explain(s *sqltext.Statement, i int) dialects.Effect {
	return s.Explain(i) &^ dialects.Writes
}

const (
	argument = 1 << iota // reads; the argument says what
	header               // a number in the file's header
	file                 // works on the file, whatever the argument
)

var pragmas = sqltext.NewNames(
	sqltext.Group[uint32]{Code: argument, Names: `table_info table_xinfo table_list index_info index_xinfo index_list
		foreign_key_list foreign_key_check integrity_check quick_check collation_list function_list database_list
		compile_options module_list pragma_list`},
	sqltext.Group[uint32]{Code: header, Names: "user_version application_id"},
	sqltext.Group[uint32]{Code: file, Names: "optimize incremental_vacuum wal_checkpoint"},
)

// pragma looks at PRAGMA [schema.]name, and whether a value follows.
func pragma(s *sqltext.Statement, i int) dialects.Effect {
	for i++; s.Mark(i+1, '.'); i += 2 {
	}
	if !s.At(i).IsName() {
		return unknown
	}
	kind := pragmas.Lookup(s.Name(i))
	switch {
	case kind == file:
		return dialects.Writes
	case kind == argument, s.Mark(i+1, sqltext.End):
		return dialects.Clean
	case kind == header:
		return dialects.Writes
	}
	return dialects.Stateful | dialects.Writes
}
