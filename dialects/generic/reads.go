package generic

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/classify"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// reads: in an unknown database only the functions of standard SQL, and a few functions that mean
// the same everywhere, are known to read.
var reads = classify.Reads{
	First: sqltext.Words("select values table with show describe desc explain"),
	Not: sqltext.NewNames(
		sqltext.Group{Code: classify.NotAnywhere, Names: `
			insert update delete merge upsert into create next nextval prevval currval previous identity rowcount
			sql_calc_found_rows connection_id pg_backend_pid spid`},
		// WITH LOCK, USE AND KEEP SHARE LOCKS, and hints that may stand without parentheses.
		sqltext.Group{Code: classify.NotAnywhere, Names: "lock locks holdlock updlock xlock tablock tablockx"},
		sqltext.Group{Code: classify.NotLocking, Names: "share"},
	),
	Calls: sqltext.Words(`
		in values and or not as exists any some all select from where on over partition by having when then else
		limit offset using join lateral union except intersect distinct case between like filter within array row
		varchar char character nvarchar numeric decimal float time timestamp
		count sum min max avg every stddev_pop stddev_samp var_pop var_samp
		rank dense_rank percent_rank cume_dist row_number ntile lag lead first_value last_value nth_value
		coalesce nullif cast convert greatest least extract
		abs mod ceil ceiling floor round sign sqrt power exp ln log trunc
		lower upper trim ltrim rtrim substring substr position char_length character_length octet_length length
		overlay concat replace left right lpad rpad now current_timestamp current_time localtime localtimestamp`),
	Asks: sqltext.NewNames(
		sqltext.Group{Code: classify.AskEmpty | classify.AskVariable, Names: "last_insert_id"},
		sqltext.Group{Code: classify.AskCall, Names: `
			lastval currval found_rows row_count last_insert_rowid changes total_changes scope_identity
			identity_val_local`},
		sqltext.Group{Code: classify.AskVariable, Names: "identity rowcount error"},
		sqltext.Group{Code: classify.AskShow, Names: "warnings errors diagnostics"},
		sqltext.Group{Code: classify.AskValue, Names: "previous"},
	),
}

var _ dialects.ReadJudge = Dialect{}

// OnlyReads reports whether a text is known to read and do nothing else.
func (Dialect) OnlyReads(query string) bool {
	return language.OnlyReads(query, Classify(query))
}

// AsksBack reports whether a text asks for what the last statement has left.
func (Dialect) AsksBack(query string) bool { return language.AsksBack(query) }
