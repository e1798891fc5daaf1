package dialects

import (
	"context"
	"database/sql/driver"
)

// ContextSetting is a setting that a program has put into a context, for the statements of
// that context (pooldriver.WithSettings).
type ContextSetting struct{ Name, Value string }

// A SettingsChecker is a Session that knows which settings of contexts it can put in force.
// A Session that is no SettingsSetter says why it can put none in force.
type SettingsChecker interface {
	Session
	// CheckSettings returns why one of the settings cannot be put in force; nil: all can be. The
	// error names the setting, and contains no value. CheckSettings sends nothing.
	CheckSettings(settings []ContextSetting) error
}

// A SettingsSetter is a Session that can put settings in force. The names were checked.
type SettingsSetter interface {
	SettingsChecker
	// SetSettings puts these settings in force, and no others: a setting of an earlier call that is
	// not among them gets back the value that it had before that call. If SetSettings is called in
	// a transaction, the settings may end with the transaction. The error contains no value. Clean
	// undoes all settings.
	SetSettings(ctx context.Context, settings []ContextSetting) error
}

// A Rereader is a Session whose driver keeps the statements that it prepares for texts, and whose
// server reads a text by the settings that are in force when it prepares the text.
type Rereader interface {
	Session
	// Anew returns the arguments with which the driver has the server read a text again, in the
	// packet of its execution. The driver keeps no statement then, and uses none that it has kept.
	Anew(args []driver.NamedValue) []driver.NamedValue
	// Rereads reports whether the server reads texts by one of these settings.
	Rereads(settings []ContextSetting) bool
}

// A SettingsCarrier is a Session that can send settings in front of a statement, in its
// packet. They end with the statement's transaction or, where none is open, with the
// statement. So nothing is left behind.
type SettingsCarrier interface {
	SettingsSetter
	// CarriesSettings reports whether this connection can do so. The answer never changes.
	CarriesSettings() bool
	// CarrySettings makes the next statement that the driver sends carry the settings. If the
	// server refuses the settings, the statement is not executed, and its error is the server's
	// error without the values.
	CarrySettings(ctx context.Context, settings []ContextSetting) error
	// DropSettings is called when the driver has returned: later statements carry nothing. sent
	// reports whether a statement has carried the settings: the driver may have sent no statement.
	DropSettings() (sent bool)
}
