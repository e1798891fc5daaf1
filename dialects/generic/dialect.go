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
	"github.com/pooldriver/pooldriver/dialects/internal/anysqlite"
	"github.com/pooldriver/pooldriver/dialects/internal/base"
	"github.com/pooldriver/pooldriver/dialects/internal/classify/sqlite"
)

// Dialect is the generic dialect. Its zero value is ready.
type Dialect struct{}

var _ dialects.Outliner = Dialect{}

// Name is "generic".
func (Dialect) Name() string { return "generic" }

// Claim claims nothing.
func (Dialect) Claim(string) dialects.Claim { return dialects.NotMine }

// Parse is an error: without a driver there is nothing to dial with.
func (Dialect) Parse(string) (dialects.Template, error) {
	return nil, errors.New("the generic dialect has no DSN; wrap the connector of a driver")
}

// Wrap takes a connector of any driver, unless the connector visibly pools. A driver of SQLite gets
// SQLite's own dialect: a database in memory would end with a connection that is closed because nobody
// knows its state, or because of its age.
func (Dialect) Wrap(c driver.Connector) (dialects.Template, error) {
	if c == nil {
		return nil, errors.New("the connector to wrap is nil")
	}
	if t, err := (anysqlite.Dialect{}).Wrap(c); !errors.Is(err, dialects.ErrNotMine) {
		return t, err
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

// Settings knows one setting, which is refused: the key of SQLCipher, if the database is that. A file that
// the program believes to be encrypted would not be.
func (Dialect) Settings(query string) (settings []dialects.Setting, alone, complete bool) {
	settings, _, _ = sqlite.Settings(query)
	return slices.DeleteFunc(settings, func(s dialects.Setting) bool { return s.Refusal != sqlite.ErrKey }), false, false
}

// Outline treats everything that may be a literal as a literal.
func (Dialect) Outline(query string) string {
	return language.Outline(query)
}

// Diagnose knows no error of any driver.
func (Dialect) Diagnose(error) dialects.Diagnosis { return 0 }
