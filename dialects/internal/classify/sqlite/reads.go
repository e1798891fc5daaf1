package sqlite

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/classify"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

var reads = classify.Reads{
	First: sqltext.Words("select values with pragma explain"),
	Not:   sqltext.NewNames(sqltext.Group{Code: classify.NotAnywhere, Names: "last_insert_rowid changes total_changes data_version"}),
	Asks:  sqltext.NewNames(sqltext.Group{Code: classify.AskCall, Names: "last_insert_rowid changes total_changes"}),
}

// Texts answers for the texts of SQLite, as the functions of package classify that have the same
// names. A dialect embeds it.
type Texts struct{}

// Effect is Classify.
func (Texts) Effect(query string) dialects.Effect { return Classify(query) }

func (Texts) Outline(query string) string { return language.Outline(query) }
func (Texts) OnlyReads(query string) bool { return language.OnlyReads(query, Classify(query)) }
func (Texts) AsksBack(query string) bool  { return language.AsksBack(query) }
