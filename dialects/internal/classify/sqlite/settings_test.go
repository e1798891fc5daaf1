package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

func TestSettingsAreWhatAStatementSetsForItsConnection(t *testing.T) {
	for text, want := range map[string][]dialects.Setting{
		"PRAGMA foreign_keys = OFF":           {{Name: "PRAGMA foreign_keys", Text: "PRAGMA foreign_keys = OFF"}},
		" /* x */ pragma\nFOREIGN_KEYS(1) ; ": {{Name: "PRAGMA foreign_keys", Text: "pragma\nFOREIGN_KEYS(1)"}},
		"pragma main.cache_size=-10":          {{Name: "PRAGMA main.cache_size", Text: "pragma main.cache_size=-10"}},
		"pragma A.cache_size=1":               {{Name: "PRAGMA a.cache_size", Of: "ATTACH a", Text: "pragma A.cache_size=1"}},
		"pragma synchronous=off; pragma busy_timeout=1": {
			{Name: "PRAGMA synchronous", Text: "pragma synchronous=off"}, {Name: "PRAGMA busy_timeout", Text: "pragma busy_timeout=1"}},
		"attach database 'x''y.db' as A": {{Name: "ATTACH a", Text: "attach database 'x''y.db' as A", Undo: `DETACH "a"`}},
		"attach ? as 'a'":                {{Name: "ATTACH a", Text: "attach ? as 'a'", Undo: `DETACH "a"`}},
		"detach database a":              {{Name: "ATTACH a", Text: "detach database a", Ends: true}},
		"pragma journal_mode=memory":     {{Name: "PRAGMA journal_mode", Text: "pragma journal_mode=memory"}},
		"pragma journal_mode('wal')":     {{Name: "PRAGMA journal_mode", Text: "pragma journal_mode('wal')", Ends: true}},

		"pragma main.journal_mode=off": {{Name: "PRAGMA journal_mode", Text: "pragma main.journal_mode=off"}},
		"attach cast('x' as text) as a key 'k'": {
			{Name: "ATTACH a", Text: "attach cast('x' as text) as a key 'k'", Undo: `DETACH "a"`}},

		"pragma journal_mode=Delete": {{Name: "PRAGMA journal_mode", Text: "pragma journal_mode=Delete", Default: true}},

		"attach 'x' as 'a' || 'b'":          nil,
		"attach 'x' as a.b":                 nil,
		"pragma foreign_keys":               nil,
		"pragma table_info(t)":              nil,
		"pragma user_version = 5":           nil,
		"pragma auto_vacuum = 1":            nil,
		"pragma defer_foreign_keys = 1":     nil,
		"pragma no_such_thing = 1":          nil,
		"pragma foreign_keys=off; select 1": nil,
		"begin; pragma foreign_keys=off":    nil,
		"explain pragma foreign_keys=off":   nil,
		"attach 'x' as ?":                   nil,
		"attach 'x'":                        nil,
		"select 'pragma foreign_keys=off'":  nil,
		"pragma foreign_keys=off /* no end": nil,
		"":                                  nil,
	} {
		require.Equal(t, want, Settings(text), text)
	}
}
