package anysqlite

import (
	"github.com/pooldriver/pooldriver/dialects"
	classifier "github.com/pooldriver/pooldriver/dialects/internal/classify/sqlite"
)

var _ dialects.SettingsKeeper = Dialect{}

// Settings: PRAGMA, ATTACH and DETACH, as far as they concern one connection.
func (Dialect) Settings(query string) (settings []dialects.Setting, alone bool) {
	return classifier.Settings(query)
}
