// Package postgres says what statements of PostgreSQL leave behind, by their text, and which text
// cleans that. It knows no driver: every dialect that may meet PostgreSQL uses it.
package postgres

import (
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// The language answers for PostgreSQL's own meaning of a text. Decisions that are not obvious:
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

var language = sqltext.New(sqltext.Language{
	Features: sqltext.DollarQuotes | sqltext.EscapeStrings | sqltext.NestedComments | sqltext.ReturnEndsComment |
		sqltext.UnicodeNames | sqltext.CaseInQuotes | sqltext.OpenQueries,
	// With standard_conforming_strings off, '…' has backslash escapes.
	Readings:    []sqltext.Reading{{}, {SingleEscapes: true}},
	WholeText:   true,
	QuotesNames: true,
	Unknown:     dialects.Suspect,
	Call:        dialects.Suspect,
	Temp:        temp,
	Catalog:     "pg_catalog",
	IsTemp:      isTemp,
	Words:       words,
	Phrases: `group by, order by, partition by, primary key, foreign key, grouping sets, group by cube, group by rollup, time zone,
		left join, right join, full join, inner join, outer join, cross join, natural join, character varying, char varying, bit varying, nchar varying, ^ copy`,
	Watch: watch, Depends: setConfig, Routine: routine, Clause: clause,
	Heads: []sqltext.Head{
		{Words: "select insert delete merge values with table copy", How: (*sqltext.Statement).Scan},
		{Words: "update", How: func(s *sqltext.Statement, i int) dialects.Effect { return update(s, i) | s.Scan(i) }},
		{Words: "execute", How: (*sqltext.Statement).Scan, Effect: dialects.Suspect | dialects.NamedPrepared},
		{Words: "call", How: (*sqltext.Statement).Scan, Effect: dialects.Suspect | dialects.TxControl},
		{Words: `drop grant revoke comment truncate vacuum analyze analyse reindex cluster refresh notify lock fetch move
			close show checkpoint security reassign import`},
		{Words: "begin start commit end abort rollback savepoint release", Effect: dialects.TxControl},
		{Words: "deallocate", Effect: dialects.Stateful | dialects.NamedPrepared | dialects.ForgetPrepared},
		{Words: "listen unlisten", Effect: dialects.Stateful},
		{Words: "load", Effect: dialects.Stateful | dialects.Unresettable},
		{Words: "set", How: set},
		{Words: "reset", How: setting, Effect: dialects.Stateful},
		{Words: "create", How: (*sqltext.Statement).Create},
		{Words: "alter", Then: []sqltext.Head{{Words: "table domain", How: (*sqltext.Statement).Scan}}},
		{Words: "explain", How: (*sqltext.Statement).Explain},
		{Words: "declare", How: declare},
		{Words: "prepare", How: prepare, Effect: dialects.Stateful | dialects.NamedPrepared, Then: []sqltext.Head{
			{Words: "transaction", Effect: dialects.TxControl},
		}},
		{Words: "discard", Effect: dialects.Stateful, Then: []sqltext.Head{
			{Words: "temp temporary", Effect: dialects.Stateful | dialects.ForgetPrepared},
			{Words: "all", Effect: dialects.Stateful | dialects.NamedPrepared | dialects.ForgetPrepared | dialects.Rereads},
		}},
		{Words: "do", How: do, Effect: dialects.Suspect | dialects.TxControl},
	},
})

// Classify returns what a text, one statement or several, leaves behind.
func Classify(query string) dialects.Effect { return language.Effect(query) }

// Texts answers for the texts of PostgreSQL. A dialect embeds it.
type Texts struct{}

func (Texts) Effect(query string) dialects.Effect { return language.Effect(query) }
func (Texts) Outline(query string) string         { return language.Outline(query) }
func (Texts) OnlyReads(query string) bool         { return language.OnlyReads(query) }
func (Texts) AsksBack(query string) bool          { return language.AsksBack(query) }
func (Texts) TakesLocks(query string) bool        { return language.TakesLocks(query) }

// temp is the effect of a temporary table: it hides another table of its name, and statements prepared while it
// exists have the types of its columns.
const temp = dialects.Stateful | dialects.ForgetPrepared

func isTemp(schema string) bool { return sqltext.HasPrefix(schema, "pg_temp") }

// watch looks at a word inside a query.
func watch(s *sqltext.Statement, i int) dialects.Effect {
	switch {
	case !s.Plain(i):
	case s.Is(i, "into"):
		return into(s, i)
	case s.Is(i, "update"):
		return update(s, i)
	case s.Is(i, "execute"):
		// CREATE TABLE … AS EXECUTE. A column with the name execute costs a cleaning, too.
		return dialects.Suspect | dialects.NamedPrepared
	case s.Is(i, "uescape") && s.Mark(i-1, sqltext.Disguised) && s.Mark(i+2, '('): // U&"f" UESCAPE '!' (1)
		return dialects.Suspect | dialects.Unresettable
	case s.Is(i, "drop") && s.Is(i-1, "commit") && s.Is(i-2, "on"):
		s.Noted = true
	}
	return dialects.Clean
}

// into looks at the INTO of a query: SELECT … INTO makes a table.
func into(s *sqltext.Statement, i int) dialects.Effect {
	if s.Is(i-1, "insert") || s.Is(i-1, "merge") {
		return dialects.Clean
	}
	if i++; s.Is(i, "table") {
		i++
	}
	if s.Has(i, sqltext.Temporary) || s.Is(i, "local") || s.Is(i, "global") || s.At(i).IsName() && isTemp(s.Name(i)) || s.Mark(i, sqltext.Disguised) {
		return temp
	}
	return dialects.Clean
}

// update looks at the table that an UPDATE changes: [ONLY] [(] [schema.]table.
func update(s *sqltext.Statement, i int) dialects.Effect {
	for i++; s.Is(i, "only") || s.Mark(i, '('); i++ {
	}
	for ; s.At(i).IsName() && !s.Mark(i, sqltext.Disguised); i += 2 {
		if !s.Mark(i+1, '.') {
			if sqltext.Equal(s.Name(i), "pg_settings") {
				return dialects.Stateful | dialects.ForgetPrepared | dialects.Rereads
			}
			return dialects.Clean
		}
	}
	if s.Mark(i, sqltext.Disguised) {
		return dialects.Suspect
	}
	return dialects.Clean
}

// clause reports whether a word that the server does not reserve is syntax, by what follows it.
func clause(s *sqltext.Statement, i int) bool {
	past := s.BehindClosingParen(i + 1)
	switch {
	case s.Is(i, "operator"):
		for i += 2; s.At(i).IsName() && s.Mark(i+1, '.'); i += 2 {
		}
		return s.IsOperator(i)
	case s.Is(i, "insert"): // of MERGE
		return s.Is(i-1, "then") && (s.Is(past, "values") || s.Is(past, "overriding"))
	case !s.Is(i, "conflict") || !s.Is(i-1, "on") || past < 0:
		return false
	case s.Is(past, "where"):
		for past++; past < i+2*sqltext.LookAhead && !s.Is(past, "do") && !s.Is(past, "on") && !s.Mark(past, sqltext.End); past++ {
		}
	}
	return s.Is(past, "do") // if not, the parentheses are the condition of a JOIN
}

// routine goes past the body BEGIN ATOMIC … END.
func routine(s *sqltext.Statement, i int) dialects.Effect {
	if i = s.Find(i, "begin", "atomic"); i < 0 {
		return dialects.Clean
	}
	return s.SkipBody(i)
}

// declare looks at DECLARE … CURSOR and the query after FOR.
func declare(s *sqltext.Statement, i int) dialects.Effect {
	e := dialects.Clean
	for ; !s.Is(i, "for") && !s.Mark(i, sqltext.End); i++ {
		if s.Is(i, "hold") && s.Is(i-1, "with") {
			e = dialects.Stateful
		}
	}
	return e | s.Scan(i)
}

// prepare: the effect of the query counts at the EXECUTE, which does not show effects that no cleaning undoes.
func prepare(s *sqltext.Statement, i int) dialects.Effect { return s.Scan(i) & dialects.Unresettable }

// do looks at [LANGUAGE name] and a body, in any order, for effects that no cleaning undoes. An unusual form
// counts as the worst.
func do(s *sqltext.Statement, i int) dialects.Effect {
	bodies := 0
	for i++; !s.Mark(i, sqltext.End); i++ {
		switch {
		case s.Is(i, "language") && s.At(i+1).IsName() && sqltext.Equal(s.Name(i+1), "plpgsql"):
			i++
		case s.Mark(i, sqltext.String) && bodies == 0 && !mayLast(s, i):
			bodies++
		default: // E'…' or U&'…' among others
			return dialects.Unresettable
		}
	}
	return dialects.Clean
}

// mayLast reports whether a body of PL/pgSQL, the string at i, may cause an effect that no cleaning
// undoes. In '…' the quotes are doubled: strings of the body are read as words of the body. So more words
// are found, not fewer.
func mayLast(s *sqltext.Statement, i int) bool {
	quoted, tag := s.Text(i), 1
	if quoted[0] == '$' {
		tag = 2 + strings.IndexByte(quoted[1:], '$')
	}
	if len(quoted) < 2*tag || quoted[0] == '\'' && strings.Contains(quoted, `\`) {
		return true
	}
	body := quoted[tag : len(quoted)-tag]
	return !s.Language().All(body, func(s *sqltext.Statement) bool {
		for i := 0; !s.Mark(i, sqltext.End); i++ {
			if t := s.At(i); t.IsName() && (lasting.Lookup(s.Name(i)) != 0 || t.Kind == sqltext.Disguised) ||
				t.Kind == '(' && s.Callee(i-1)&dialects.Unresettable != 0 {
				return false
			}
		}
		return true
	})
}

// lasting are the words by which PL/pgSQL may cause an effect that no cleaning undoes. A column with such a
// name costs a connection.
var lasting = sqltext.NewNames(sqltext.Words{Code: sqltext.Lasting, Names: "load seed execute"})
