// Package mysql says what statements of MySQL and MariaDB leave behind, by their
// text. It knows no driver: every dialect that may meet them uses it.
package mysql

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// The language answers for MySQL and MariaDB at once. If they differ, the worse answer holds.
// Decisions that are not obvious:
//
//   - Some values are set by any INSERT or SELECT, without a word in its text. A text that sets
//     them by name is clean too: LAST_INSERT_ID(x) in an INSERT, REPLACE or UPDATE (its value is in
//     the statement's Result), SQL_CALC_FOUND_ROWS, NEXTVAL and SETVAL of a sequence. Elsewhere
//     LAST_INSERT_ID(x) is suspect.
//   - CALL with a user variable is stateful: the variable may be an OUT parameter, which the
//     program wants to read afterwards.
//   - SET TRANSACTION without a scope is meant for the next transaction, which
//     must be on this connection: stateful.
//   - SET GLOBAL and PERSIST are clean if they have only one assignment; a second assignment may
//     be for the session.
//   - DROP DATABASE is suspect: it may drop the session's own database.
//   - The implicit commit of a DDL statement is not marked: the server's status flags show it.

var language = sqltext.New(sqltext.Language{
	Features: sqltext.DashNeedsSpace | sqltext.HashComments | sqltext.Backticks | sqltext.VersionedComments |
		sqltext.UserVariables | sqltext.OpenQueries | sqltext.DoubtfulDollars | sqltext.DoubtfulSpace,
	// ANSI_QUOTES makes "…" an identifier, which has no escapes. NO_BACKSLASH_ESCAPES takes the escapes from
	// strings as well.
	Readings: []sqltext.Reading{{SingleEscapes: true, DoubleEscapes: true}, {}, {SingleEscapes: true}},
	Unknown:  dialects.Suspect,
	Call:     dialects.Suspect,
	Temp:     dialects.Stateful,
	Words:    words,
	Depends:  lastInsertID, Routine: routine,
	Heads: []sqltext.Head{
		{Words: "select delete with values table do show kill purge", How: (*sqltext.Statement).Scan},
		{Words: "insert replace", How: (*sqltext.Statement).Scan, Kind: inserting},
		{Words: "update", How: update, Kind: inserting},
		{Words: "execute", How: (*sqltext.Statement).Scan,
			Effect: dialects.Suspect | dialects.TxControl | dialects.ForgetPrepared | dialects.NamedPrepared},
		{Words: `alter grant revoke truncate rename optimize repair check checksum help install uninstall shutdown restart
			clone cache change reset stop import signal resignal`},
		{Words: "commit rollback savepoint release", Effect: dialects.TxControl},
		{Words: "use", Effect: dialects.Stateful | dialects.ForgetPrepared | dialects.Renames},
		{Words: "lock unlock handler backup", Effect: dialects.Stateful},
		{Words: "prepare deallocate", Effect: dialects.Stateful | dialects.NamedPrepared},
		{Words: "xa", Effect: dialects.Stateful | dialects.TxControl, Then: []sqltext.Head{{Words: "recover"}}}, // it lists transactions
		{Words: "start", Then: []sqltext.Head{{Words: "transaction", Effect: dialects.TxControl}}},
		{Words: "drop", Then: []sqltext.Head{
			{Words: "temporary", Effect: dialects.Stateful},
			{Words: "prepare", Effect: dialects.Stateful | dialects.NamedPrepared},
			{Words: "database schema", Effect: dialects.Suspect | dialects.ForgetPrepared},
		}},
		{Words: "load get", How: (*sqltext.Statement).ScanAssigning},
		{Words: "call", How: (*sqltext.Statement).ScanAssigning, Effect: dialects.Suspect | dialects.TxControl},
		{Words: "begin", How: begin, Effect: dialects.TxControl},
		{Words: "set", How: set},
		{Words: "create", How: (*sqltext.Statement).Create},
		{Words: "explain describe desc analyze", How: explain},
		{Words: "flush", How: flush},
	},
})

// inserting is the Kind of a statement whose Result tells LAST_INSERT_ID.
const inserting = 1

// Classify returns what a text, one statement or several, leaves behind.
func Classify(query string) dialects.Effect { return language.Effect(query) }

// Texts answers for the texts of MySQL and MariaDB. A dialect embeds it.
type Texts struct{}

func (Texts) Effect(query string) dialects.Effect { return language.Effect(query) }
func (Texts) Outline(query string) string         { return language.Outline(query) }
func (Texts) OnlyReads(query string) bool         { return language.OnlyReads(query) }
func (Texts) AsksBack(query string) bool          { return language.AsksBack(query) }
func (Texts) TakesLocks(query string) bool        { return language.TakesLocks(query) }

func lastInsertID(s *sqltext.Statement, i int) dialects.Effect {
	if s.Kind == inserting || s.Mark(i+2, ')') {
		return dialects.Clean
	}
	return dialects.Suspect
}

// update: UPDATE performance_schema.threads changes which measurements the server takes on a connection. No
// reset undoes this.
func update(s *sqltext.Statement, i int) dialects.Effect {
	table := i + 1
	for s.Is(table, "low_priority") || s.Is(table, "ignore") {
		table++
	}
	if s.At(table).IsName() && sqltext.Equal(s.Name(table), "performance_schema") {
		return s.Scan(i) | dialects.Stateful | dialects.Unresettable
	}
	return s.Scan(i)
}

// routine does not look for the end of a body of several statements. They count as if they were executed.
func routine(s *sqltext.Statement, i int) dialects.Effect {
	if s.Find(i, "begin") < 0 {
		return dialects.Clean
	}
	return dialects.Suspect
}

// begin looks at BEGIN, which opens a transaction or, in MariaDB, a compound statement: BEGIN NOT ATOMIC, and
// plain BEGIN under its Oracle mode. The statements of the compound follow one by one.
func begin(s *sqltext.Statement, i int) dialects.Effect {
	if i++; s.Mark(i, sqltext.End) || s.Is(i, "work") {
		return dialects.Clean
	}
	if s.Is(i, "not") {
		i += 2
	}
	if s.Is(i, "begin") {
		return s.Scan(i) | dialects.Suspect
	}
	return s.Effect(i) | dialects.Suspect
}

// flush: FLUSH TABLES … WITH READ LOCK or FOR EXPORT holds locks.
func flush(s *sqltext.Statement, i int) dialects.Effect {
	for ; !s.Mark(i, sqltext.End); i++ {
		if s.Plain(i) && (s.Is(i, "lock") || s.Is(i, "export")) {
			return dialects.Stateful
		}
	}
	return dialects.Clean
}

// explain looks at what EXPLAIN, DESCRIBE or ANALYZE is about: a statement, which ANALYZE executes, or a table.
func explain(s *sqltext.Statement, i int) (e dialects.Effect) {
	for i++; !s.Mark(i, sqltext.End); i++ {
		switch {
		case s.Mark(i, '@'):
			e |= dialects.Stateful // EXPLAIN … INTO @x
		case s.Mark(i, '('), s.Has(i, sqltext.Option):
			return e | s.Effect(i)
		}
	}
	return e
}
