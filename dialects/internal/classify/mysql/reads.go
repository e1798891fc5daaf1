package mysql

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/classify"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// reads: INSERT and REPLACE are functions, too, and cannot follow WITH.
var reads = classify.Reads{
	First: sqltext.NewNames(sqltext.Group{Code: 1, Names: "select values table with show explain describe desc"}),
	Not: sqltext.NewNames(
		sqltext.Group{Code: classify.NotAnywhere, Names: `
			update delete into sql_calc_found_rows next previous nextval currval setval lastval
			last_insert_id found_rows row_count identity insert_id warning_count error_count
			connection_id ps_current_thread_id pseudo_thread_id`},
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

// Texts answers for the texts of MySQL and MariaDB. A dialect embeds it.
type Texts struct{}

// Effect is Classify.
func (Texts) Effect(query string) dialects.Effect { return Classify(query) }

// Outline returns a text without literals and comments, for people.
func (Texts) Outline(query string) string { return language.Outline(query) }

// OnlyReads reports whether a text is known to read and do nothing else.
func (Texts) OnlyReads(query string) bool {
	return Classify(query) == dialects.Clean && language.OnlyReads(query, &reads)
}

// AsksBack reports whether a text asks for what the last statement has left.
func (Texts) AsksBack(query string) bool { return language.AsksBack(query, &reads) }
