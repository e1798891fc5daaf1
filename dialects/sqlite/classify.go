package sqlite

import (
	"github.com/pooldriver/pooldriver/dialects"
	classifier "github.com/pooldriver/pooldriver/dialects/internal/classify/sqlite"
)

// classify returns what a text, one statement or several, leaves behind.
func classify(query string) dialects.Effect { return classifier.Classify(query) }

var _ dialects.Outliner = dialect{}

func (dialect) Outline(query string) string { return classifier.Outline(query) }

var _ dialects.ReadJudge = dialect{}

func (dialect) OnlyReads(query string) bool { return classifier.OnlyReads(query) }
func (dialect) AsksBack(query string) bool  { return classifier.AsksBack(query) }
