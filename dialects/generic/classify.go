package generic

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// The generic language knows standard SQL and common extensions. A connection that is not clean
// is closed, because nobody knows how to clean it. So plain queries have to be clean. A function
// counts as harmless, unless it is known to change the session in some database. A statement that
// begins with an unknown word is suspect.

var language = sqltext.New(sqltext.Language{
	Features: sqltext.DollarQuotes | sqltext.EscapeStrings | sqltext.DoubtfulNesting | sqltext.ReturnEndsComment |
		sqltext.Backticks | sqltext.DoubtfulBrackets | sqltext.HashNames | sqltext.AlternativeQuotes |
		sqltext.DoubtfulUnicode | sqltext.OpenQueries,
	// Some databases have backslash escapes in one kind of quotes or both.
	Readings: []sqltext.Reading{{}, {SingleEscapes: true}, {SingleEscapes: true, DoubleEscapes: true}},
	Unknown:  dialects.Suspect,
	Temp:     dialects.Stateful,
	Pure:     true,
	Watch:    watch,
	Words:    words,
	Heads: []sqltext.Head{
		{Words: "select delete merge upsert values with table", How: (*sqltext.Statement).Scan, Kind: query},
		{Words: "start commit rollback savepoint release abort end", How: (*sqltext.Statement).Scan, Kind: query, Effect: dialects.TxControl},
		{Words: "insert update replace drop truncate comment rename show describe desc analyze vacuum reindex notify copy",
			How: (*sqltext.Statement).Scan},
		{Words: `declare listen unlisten lock unlock pragma load handler discard open dbms_session dbms_application_info
			dbms_lock`, How: (*sqltext.Statement).Scan, Effect: dialects.Stateful},
		{Words: "use attach detach connect disconnect", How: (*sqltext.Statement).Scan, Effect: dialects.Stateful | dialects.ForgetPrepared},
		{Words: "call exec do", How: (*sqltext.Statement).Scan, Effect: dialects.Suspect | dialects.TxControl},
		{Words: "execute", How: (*sqltext.Statement).Scan, Effect: dialects.Suspect | dialects.TxControl | dialects.NamedPrepared},
		{Words: "grant revoke"},
		{Words: "begin", How: begin, Kind: query, Effect: dialects.TxControl},
		{Words: "set reset", How: set},
		{Words: "prepare deallocate", How: (*sqltext.Statement).Scan, Effect: dialects.Stateful | dialects.NamedPrepared, Then: []sqltext.Head{
			{Words: "transaction", How: (*sqltext.Statement).Scan, Effect: dialects.TxControl},
		}},
		{Words: "create", How: create},
		{Words: "alter", How: (*sqltext.Statement).Scan, Then: []sqltext.Head{
			{Words: "session", How: (*sqltext.Statement).Scan, Effect: dialects.Stateful | dialects.ForgetPrepared},
		}},
		{Words: "explain", How: (*sqltext.Statement).Explain},
	},
})

// query is the Kind of a statement in which a SET is another statement, unless an UPDATE stands before it.
const query = 1

var words = []sqltext.Words{
	// SQL Server needs no separator between statements: a word that only begins a statement may begin a second
	// statement there.
	{Code: sqltext.Watched, Names: `into set update exec execute use begin commit rollback dbms_session dbms_application_info
		dbms_lock`},
	{Code: sqltext.Modifier, Names: "or replace unique recursive unlogged column row multiset set cached memory private"},
	{Code: sqltext.Temporary, Names: "temp temporary local global volatile"},
	{Code: sqltext.Option, Names: "analyze analyse verbose query plan for extended distsql debug"},
	// They are known to change the session in one database or another.
	{Code: sqltext.Changing, Names: `
		set_config setseed get_lock release_lock release_all_locks load_extension
		pg_advisory_lock pg_advisory_lock_shared pg_try_advisory_lock pg_try_advisory_lock_shared
		pg_advisory_unlock pg_advisory_unlock_shared pg_advisory_unlock_all
		dblink_connect dblink_connect_u dblink_disconnect dblink_open dblink_close dblink_send_query
		rdb$set_context set_context sp_set_session_context sp_getapplock sp_executesql`},

	{Code: sqltext.First, Names: "select values table with show describe desc explain"},
	{Code: sqltext.Acts, Names: `
		insert update delete merge upsert into create next nextval prevval currval previous identity rowcount
		sql_calc_found_rows connection_id pg_backend_pid spid`},
	// WITH LOCK, USE AND KEEP SHARE LOCKS, and hints that may stand without parentheses.
	{Code: sqltext.Acts, Names: "lock locks holdlock updlock xlock tablock tablockx"},
	{Code: sqltext.Locks, Names: "share"},
	// In an unknown database only the functions of standard SQL, and a few that mean the same everywhere, are
	// known to read.
	{Code: sqltext.Pure, Names: `
		in values and or not as exists any some all select from where on over partition by having when then else
		limit offset using join lateral union except intersect distinct case between like filter within array row
		varchar char character nvarchar numeric decimal float time timestamp
		count sum min max avg every stddev_pop stddev_samp var_pop var_samp
		rank dense_rank percent_rank cume_dist row_number ntile lag lead first_value last_value nth_value
		coalesce nullif cast convert greatest least extract
		abs mod ceil ceiling floor round sign sqrt power exp ln log trunc
		lower upper trim ltrim rtrim substring substr position char_length character_length octet_length length
		overlay concat replace left right lpad rpad now current_timestamp current_time localtime localtimestamp`},
	{Code: sqltext.AsksEmpty | sqltext.AsksSystem, Names: "last_insert_id"},
	{Code: sqltext.AsksCalled, Names: `
		lastval currval found_rows row_count last_insert_rowid changes total_changes scope_identity identity_val_local`},
	{Code: sqltext.AsksSystem, Names: "identity rowcount error"},
	{Code: sqltext.AsksShown, Names: "warnings errors diagnostics"},
	{Code: sqltext.AsksValue, Names: "previous"},
}

// Classify returns what a text, one statement or several, leaves behind.
func Classify(query string) dialects.Effect { return language.Effect(query) }

// OnlyReads reports whether a text is known to read and do nothing else.
func (Dialect) OnlyReads(query string) bool { return language.OnlyReads(query) }

// AsksBack reports whether a text asks for what the last statement has left.
func (Dialect) AsksBack(query string) bool { return language.AsksBack(query) }

// TakesLocks reports whether a text takes advisory locks: none that is known here does.
func (Dialect) TakesLocks(query string) bool { return language.TakesLocks(query) }

// begin looks at BEGIN, which opens a transaction or a block of statements.
func begin(s *sqltext.Statement, i int) dialects.Effect {
	i++
	for _, mode := range [...]string{"transaction", "tran", "work", "isolation", "read", "deferred", "immediate", "exclusive", "concurrent", "distributed"} {
		if s.Is(i, mode) {
			return s.Scan(i)
		}
	}
	switch {
	case s.Mark(i, sqltext.End):
		return dialects.Clean
	case s.Is(i, "begin"):
		return s.Scan(i) | dialects.Suspect
	}
	return s.Effect(i) | dialects.Suspect
}

// set looks at SET and RESET. SET TRANSACTION, SET CONSTRAINTS and SET LOCAL are about the current transaction.
// The text does not show whether a transaction is open.
func set(s *sqltext.Statement, i int) dialects.Effect {
	i++
	e := dialects.Stateful
	if s.Mark(i+1, sqltext.Word) && (s.Is(i, "transaction") || s.Is(i, "constraints") || s.Is(i, "constraint") || s.Is(i, "local")) {
		e = dialects.Suspect
	}
	return e | s.Effects(i, settings)
}

// settings are the words that matter anywhere in a SET.
var settings = sqltext.NewNames(
	sqltext.Group[dialects.Effect]{Code: dialects.ForgetPrepared, Names: `schema path catalog role authorization search_path
		current_schema sql_mode quoted_identifier ansi_nulls names collation database all`},
	sqltext.Group[dialects.Effect]{Code: dialects.TxControl, Names: "autocommit implicit_transactions xact_abort"},
)

// create: everything that is made may have a query in it. It is temporary if one of its names says so.
func create(s *sqltext.Statement, i int) (e dialects.Effect) {
	for j := i + 1; s.At(j).IsName() || s.Mark(j, '.'); j++ {
		if sqltext.Equal(s.Name(j), "temp") || sqltext.HasPrefix(s.Name(j), "pg_temp") || s.Text(j)[0] == '#' {
			e = dialects.Stateful
		}
	}
	return e | s.Create(i) | s.Scan(i)
}

// watch looks at a word inside a statement.
func watch(s *sqltext.Statement, i int) dialects.Effect {
	switch {
	case sqltext.HasPrefix(s.Text(i), "dbms_"):
		return dialects.Stateful
	case !s.Plain(i):
	case s.Is(i, "update"):
		s.Noted = true
	case s.Is(i, "set") && s.Kind == query && !s.Noted, s.Is(i, "exec"), s.Is(i, "execute"):
		return dialects.Suspect
	case s.Is(i, "use") && !hints(s, i):
		return dialects.Suspect | dialects.ForgetPrepared
	case s.Is(i, "into") && intoTemporary(s, i):
		return dialects.Stateful
	case controls(s, i):
		return dialects.TxControl
	}
	return dialects.Clean
}

// hints reports whether USE is a hint, or the end of a text: USE INDEX (a).
func hints(s *sqltext.Statement, i int) bool {
	return !s.At(i+1).IsName() || s.Is(i+1, "index") || s.Is(i+1, "key") || s.Is(i+1, "and")
}

// intoTemporary reports whether INTO makes a temporary table or sets a variable.
func intoTemporary(s *sqltext.Statement, i int) bool {
	if s.Is(i-1, "insert") || s.Is(i-1, "merge") || s.Is(i-1, "replace") {
		return false
	}
	return s.Has(i+1, sqltext.Temporary) || s.Mark(i+1, '@') || s.Mark(i+1, sqltext.System) || s.Mark(i+1, sqltext.Quoted) && s.Text(i + 1)[0] == '#'
}

// controls reports whether a word is BEGIN, COMMIT or ROLLBACK, as a statement and not as a name: ON COMMIT DROP, SELECT
// commit FROM builds.
func controls(s *sqltext.Statement, i int) bool {
	if !s.Is(i, "begin") && !s.Is(i, "commit") && !s.Is(i, "rollback") {
		return false
	}
	return s.Is(i+1, "tran") || s.Is(i+1, "transaction") || s.Is(i+1, "work") || s.Mark(i+1, sqltext.End) && !s.Is(i, "begin")
}
