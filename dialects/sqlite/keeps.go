package sqlite

import (
	"github.com/pooldriver/pooldriver/dialects"
	classifier "github.com/pooldriver/pooldriver/dialects/internal/classify/sqlite"
)

var _ dialects.StateKeeper = dialect{}

// KeepsState is for what a *sql.DB of SQLite holds for all its connections.
func (dialect) KeepsState(query string) bool { return classifier.OnlySettings(query) }
