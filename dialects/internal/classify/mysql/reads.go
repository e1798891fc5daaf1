package mysql

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/classify"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// reads: Not lacks INSERT and REPLACE: both are functions, too, and as statements cannot follow WITH.
var reads = classify.Reads{
	First: sqltext.Words("select values table with show explain describe desc"),
	Not: sqltext.NewNames(
		sqltext.Group{Code: classify.NotAnywhere, Names: `
			update delete into sql_calc_found_rows next previous nextval currval setval lastval
			last_insert_id found_rows row_count identity insert_id warning_count error_count
			connection_id ps_current_thread_id pseudo_thread_id
			is_free_lock is_used_lock`}, // of this server
		sqltext.Group{Code: classify.NotLocking, Names: "share"},
	),
	Asks: sqltext.NewNames(
		sqltext.Group{Code: classify.AskEmpty | classify.AskVariable, Names: "last_insert_id"},
		sqltext.Group{Code: classify.AskEmpty, Names: "found_rows row_count"},
		sqltext.Group{Code: classify.AskCall, Names: "lastval"},
		sqltext.Group{Code: classify.AskVariable, Names: "identity insert_id warning_count error_count"},
		sqltext.Group{Code: classify.AskShow, Names: "warnings errors diagnostics"},
		sqltext.Group{Code: classify.AskValue, Names: "previous"},
	),
}

// Texts answers for the texts of MySQL and MariaDB, as the functions of package classify that have the same
// names. A dialect embeds it.
type Texts struct{}

// Effect is Classify.
func (Texts) Effect(query string) dialects.Effect { return Classify(query) }

func (Texts) Outline(query string) string { return language.Outline(query) }
func (Texts) OnlyReads(query string) bool { return language.OnlyReads(query, Classify(query)) }
func (Texts) AsksBack(query string) bool  { return language.AsksBack(query) }
