package dialects

import (
	"context"
	"database/sql/driver"
)

// A SettingsKeeper is a Dialect for which a *sql.DB stands for the whole database
// (SQLite): what a statement sets for its connection, outside of any explicit task, transaction
// and *sql.Conn, holds for all connections of the Connector.
type SettingsKeeper interface {
	Dialect
	// Settings returns what query sets, statement by statement. complete: query leaves
	// nothing else in its session, and no setting that is not known. Otherwise the program
	// is told that this state was lost. alone: query has one statement, so that its arguments are
	// those of the setting.
	Settings(query string) (settings []Setting, alone, complete bool)
}

// Setting is one statement that sets something for its connection.
type Setting struct {
	// Name says what is set, without its value: it is shown in errors. A later
	// setting of the same name replaces this one.
	Name string
	// Of is the name of the setting that this setting needs, if any: both end together.
	Of string
	// Text is the statement.
	Text string
	// Undo is the statement that removes the setting from a connection. It is empty if a new
	// setting of the same name replaces this one. A setting with Undo may fail on a connection,
	// which then lacks the setting. With Ends, Undo creates, on a connection that lacks the
	// setting, something that the statement can remove.
	Undo string
	// Default: this is what a new connection has anyway.
	Default bool
	// Ends: the statement removes the setting of that name, or stores it in the
	// database's file, so that it need not be repeated.
	Ends bool
	// Refusal is why no connection may have the setting alone; nil: one may. A statement outside of
	// explicit tasks that has such a setting is not executed.
	Refusal error
	// NextTx: the setting applies only to the next transaction. With Ends, the statement takes back
	// such a setting that waits for its transaction.
	NextTx bool
	// ForVacuum: the setting applies only to a statement that has the effect ForgetPrepared and
	// nothing else that concerns its session (VACUUM). It is executed before each.
	ForVacuum bool
}

// A SettingRepeater is a Session that has just executed a setting with Undo. Repeatable returns the
// text by which other connections execute the setting later, with the same arguments: the text
// names the same file from every directory, and creates no file.
type SettingRepeater interface {
	Session
	Repeatable(ctx context.Context, setting Setting, args []driver.NamedValue) (text string)
}
