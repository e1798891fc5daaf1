// Package mysql says what statements of MySQL and MariaDB leave behind, by their
// text. It knows no driver: every dialect that may meet them uses it.
package mysql

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/classify"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// The classifier answers for MySQL and MariaDB at once. If they differ, the worse answer holds.
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

var lexical = sqltext.NewRules(sqltext.DashNeedsSpace | sqltext.HashComments | sqltext.Backticks |
	sqltext.VersionedComments | sqltext.AtVariables | sqltext.Assignments | sqltext.DoubtfulDollars | sqltext.DoubtfulSpace)

// likely is how a text is read under the default settings.
var likely = sqltext.Reading{SingleEscapes: true, DoubleEscapes: true}

var language = classify.New(classify.Language{
	Rules: lexical,
	// ANSI_QUOTES makes "…" an identifier, which has no escapes. NO_BACKSLASH_ESCAPES
	// takes the escapes from strings as well. A versioned comment may be meant for
	// another server.
	Readings: []sqltext.Reading{
		likely, {}, {SingleEscapes: true},
		{SkipVersioned: true}, {SkipVersioned: true, SingleEscapes: true}, {SkipVersioned: true, SingleEscapes: true, DoubleEscapes: true},
	},
	Unknown: dialects.Suspect,
	Reads:   &reads,
	Heads: []classify.Head{
		{Kind: headQuery, Words: "select delete with values table do show kill purge"},
		{Kind: headInsert, Words: "insert replace update"},
		{Kind: classify.Evaluated, Words: "execute",
			Effect: dialects.Suspect | dialects.TxControl | dialects.ForgetPrepared | dialects.NamedPrepared},
		{Kind: classify.Skipped, Words: `alter grant revoke truncate rename optimize repair check checksum help
			install uninstall shutdown restart clone cache change reset stop import signal resignal`},
		{Kind: classify.Skipped, Words: "commit rollback savepoint release", Effect: dialects.TxControl},
		{Kind: classify.Skipped, Words: "use", Effect: dialects.Stateful | dialects.ForgetPrepared | dialects.Renames},
		{Kind: classify.Skipped, Words: "lock unlock handler backup", Effect: dialects.Stateful},
		{Kind: classify.Skipped, Words: "prepare deallocate", Effect: dialects.Stateful | dialects.NamedPrepared},
		{Kind: classify.Skipped, Words: "xa", Effect: dialects.Stateful | dialects.TxControl, Then: []classify.Head{
			{Kind: classify.Skipped, Words: "recover"}, // it lists transactions
		}},
		{Kind: classify.Skipped, Words: "start", Then: []classify.Head{
			{Kind: classify.Skipped, Words: "transaction", Effect: dialects.TxControl},
		}},
		{Kind: classify.Skipped, Words: "drop", Then: []classify.Head{
			{Kind: classify.Skipped, Words: "temporary", Effect: dialects.Stateful},
			{Kind: classify.Skipped, Words: "prepare", Effect: dialects.Stateful | dialects.NamedPrepared},
			{Kind: classify.Skipped, Words: "database schema", Effect: dialects.Suspect | dialects.ForgetPrepared},
		}},
		{Kind: headAssigning, Words: "load get"},
		{Kind: headAssigning, Words: "call", Effect: dialects.Suspect | dialects.TxControl},
		{Kind: headBegin, Words: "begin"},
		{Kind: headSet, Words: "set"},
		{Kind: headCreate, Words: "create"},
		{Kind: headExplain, Words: "explain describe desc analyze"},
		{Kind: headFlush, Words: "flush"},
	},
})

const (
	headQuery     = classify.Own + iota
	headInsert    // its Result tells LAST_INSERT_ID
	headAssigning // it may assign any user variable in its text: LOAD DATA … (a, @b)
	headBegin
	headSet
	headCreate
	headExplain
	headFlush
)

// Classify returns what a text, one statement or several, leaves behind. It
// runs on every statement: one pass, no allocation.
func Classify(query string) dialects.Effect {
	var c classifier
	c.Begin(language, query)
	for c.Next() {
		c.unknown, c.words, c.insert, c.variables = dialects.Suspect, queryWords, false, dialects.Clean
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

	// variables is the effect of a user variable wherever it stands.
	variables dialects.Effect

	// insert is set in statements whose Result tells LAST_INSERT_ID.
	insert bool
}

// statement classifies one statement from its first token on, and leaves the
// lexer at its end.
func (c *classifier) statement() dialects.Effect {
	head := c.Statement()
	switch head.Kind {
	case classify.Skipped:
		return head.Effect
	case headQuery:
		if c.Lx.IsWord("with") {
			c.Lx.BeginWith()
		}
	case headInsert:
		c.insert = true
		return c.instruments() | c.query()
	case headAssigning:
		c.variables = dialects.Stateful
	case headBegin:
		return c.begin()
	case headSet:
		return c.set()
	case headCreate:
		return c.create()
	case headExplain:
		return c.explain()
	case headFlush:
		return c.flush()
	}
	return c.query() | head.Effect
}

var queryWords = sqltext.Words("with")

// createTableWords are those of CREATE TABLE, where functions are evaluated
// only in a query.
var createTableWords = sqltext.Words("with select values")

// query classifies what remains of a statement that evaluates expressions.
func (c *classifier) query() dialects.Effect {
	lx := &c.Lx
	effect := dialects.Clean
	for !lx.Ended() {
		switch lx.Skim(c.words) {
		case sqltext.Call:
			effect |= c.call()
		case sqltext.Assign:
			effect |= dialects.Stateful
		case sqltext.At:
			effect |= c.variable()
		case sqltext.Word:
			switch {
			case !lx.Keyword():
			case lx.IsWord("with"):
				if lx.Before() == sqltext.Open {
					lx.BeginWith()
				}
			default:
				c.unknown = dialects.Suspect
			}
		}
	}
	return effect
}

// variable classifies the user variable whose @ was just read. A variable after INTO is assigned.
func (c *classifier) variable() dialects.Effect {
	if sqltext.Equal(c.Lx.PreviousWord(), "into") {
		return dialects.Stateful
	}
	return c.variables
}

// call classifies the call whose opening parenthesis was just read.
func (c *classifier) call() dialects.Effect {
	lx := &c.Lx
	switch functions.Lookup(lx.Name()) {
	case funcKeyword:
		if lx.Keyword() {
			return dialects.Clean
		}
	case funcHarmless:
		if !lx.Qualified() && !lx.GluedToNumber() {
			return dialects.Clean
		}
	case funcStateful:
		return dialects.Stateful
	case funcLastInsertID:
		if ahead := *lx; c.insert || ahead.Next() == sqltext.Close {
			return dialects.Clean
		}
		return dialects.Suspect
	}
	if lx.Before() == sqltext.Close || lx.AfterOperand(leads) || lx.GivesName(notFunction) || lx.OpensQuery() {
		return dialects.Clean // JSON_TABLE(…) t(a, b)
	}
	return c.unknown
}

// leads are the words after which an expression may begin: the words that MySQL or MariaDB
// reserves, and other words that the grammars have there.
var leads = sqltext.Words(`
	accessible add all alter analyze and any as asc asensitive at before between bigint binary blob both by
	call cascade case change char character check collate column concurrent condition constraint continue convert
	create cross cube cume_dist current_date current_role current_time current_timestamp current_user cursor database
	databases day_hour day_microsecond day_minute day_second dec decimal declare default delayed delete
	delete_domain_id dense_rank desc describe deterministic distinct distinctrow div do do_domain_ids double drop dual
	each else elseif empty enclosed end ends escape escaped every except exists exit explain external false fetch
	first first_value float float4 float8 for force foreign from fulltext function generated get grant group grouping
	groups having high_priority hour_microsecond hour_minute hour_second if ignore ignore_domain_ids immediate in
	index infile inner inout insensitive insert int int1 int2 int3 int4 int8 integer intersect interval into
	io_after_gtids io_before_gtids is iterate join json_table key keys kill lag last_value lateral lead leading leave
	left library like limit linear lines load localtime localtimestamp lock long longblob longtext loop low_priority
	master_demote_to_replica master_demote_to_slave match maxvalue mediumblob mediumint mediumtext middleint
	minus minute_microsecond minute_second mod modifies natural next no_write_to_binlog not nth_value ntile null
	numeric of offset on optimize optimizer_costs option optionally or order out outer outfile over page_checksum
	parse_vcol_expr partition percent_rank portion precision primary procedure purge qualify quick range rank read
	read_write reads real recursive ref_system_id references regexp release rename repeat replace require resignal
	restrict return returning revoke right rlike row row_number rows schema schemas second_microsecond select
	sensitive separator set show signal smallint some sounds spatial specific sql sql_after_gtids sql_before_gtids
	sql_big_result sql_buffer_result sql_cache sql_calc_found_rows sql_no_cache sql_small_result sqlexception sqlstate
	sqlwarning ssl starting starts stats_auto_recalc stats_persistent stats_sample_pages stored straight_join system
	table tablesample terminated then timestamp tinyblob tinyint tinytext to trailing transaction trigger true undo
	union unique unlock unsigned until update usage use using utc_date utc_time utc_timestamp value values varbinary
	varchar varcharacter varying vector virtual when where while window with write xor year_month zerofill`)

// notFunction are the words after which name( is not a call.
var notFunction = sqltext.Words("into insert replace ignore delayed low_priority as table with recursive references")
