// Package generic is the dialect of an unknown database: it speaks SQL through database/sql/driver,
// and nothing else is known. The dialect is not registered, because no DSN belongs to it. It is
// used when a connector of an unknown driver is wrapped.
//
// Under it a connection that may carry state is closed rather than cleaned. Nobody knows for sure
// whether a transaction is open.
package generic

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/base"
	"github.com/pooldriver/pooldriver/dialects/internal/classify"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// Dialect is the generic dialect. Its zero value is ready.
type Dialect struct{}

// Name is "generic".
func (Dialect) Name() string { return "generic" }

// Claim claims nothing.
func (Dialect) Claim(string) dialects.Claim { return dialects.NotMine }

// Parse is an error: without a driver there is nothing to dial with.
func (Dialect) Parse(string) (dialects.Template, error) {
	return nil, errors.New("the generic dialect has no DSN; wrap the connector of a driver")
}

// Wrap takes a connector of any driver, unless the connector visibly pools. A driver of SQLite needs
// SQLite's dialect: a database in memory would end with a connection that is closed because nobody
// knows its state, or because of its age.
func (Dialect) Wrap(c driver.Connector) (dialects.Template, error) {
	if c == nil {
		return nil, errors.New("the connector to wrap is nil")
	}
	if base.IsSQLite(c.Driver()) {
		return nil, errors.New(`the driver is one of SQLite, whose dialect is not linked into this program; add import _ "github.com/pooldriver/pooldriver/dialects/anysqlite"`)
	}
	t, err := base.Wrap(c, fmt.Sprintf("generic %T", c.Driver()))
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Effect is Classify.
func (Dialect) Effect(query string) dialects.Effect { return Classify(query) }

var _ dialects.SettingsKeeper = Dialect{}

// Settings knows one setting, the key of SQLCipher, and refuses it: other connections would write
// without the key, perhaps into a file that is not encrypted.
func (Dialect) Settings(query string) (settings []dialects.Setting, alone, complete bool) {
	if setsKey(query) {
		settings = []dialects.Setting{{Name: "PRAGMA key", Text: query, Refusal: classify.ErrKey}}
	}
	return settings, false, false
}

// keys are the PRAGMAs of SQLCipher that give a connection a key.
var keys = []string{"key", "hexkey", "textkey"}

// setsKey reports whether a statement of query is PRAGMA key.
func setsKey(query string) (found bool) {
	language.All(query, func(s *sqltext.Statement) bool {
		for i := 1; s.Is(0, "pragma") && !found && !s.Mark(i, sqltext.End); i++ {
			found = s.At(i).IsName() && slices.ContainsFunc(keys, func(k string) bool { return sqltext.Equal(s.Name(i), k) })
		}
		return !found
	})
	return found
}

// Outline treats everything that may be a literal as a literal.
func (Dialect) Outline(query string) string {
	return language.Outline(query)
}

// Diagnose knows no error of any driver.
func (Dialect) Diagnose(error) dialects.Diagnosis { return 0 }
