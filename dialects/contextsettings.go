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

// A Rereader is a Session whose driver keeps prepared statements by their texts, and whose server
// interprets a text by the settings that are in force when the server prepares the text.
type Rereader interface {
	Session
	// Anew returns arguments with which the driver sends the text again with the execution, so that
	// the server interprets the text again. The driver then keeps no statement, and uses no kept
	// statement.
	Anew(args []driver.NamedValue) []driver.NamedValue
	// Rereads reports whether the server interprets texts by one of these settings.
	Rereads(settings []ContextSetting) bool
	// Kept counts how often the driver has prepared a statement to keep it, and how often it has executed one that is kept.
	Kept() (prepared, executed uint64)
}

// A SettingsCarrier is a Session that can send settings in front of a statement, in the statement's
// packet. The settings end with the statement's transaction or, if no transaction is open, with the
// statement. So no setting stays in the session.
type SettingsCarrier interface {
	SettingsSetter
	// CarriesSettings reports whether this connection can send settings in this way. The answer
	// never changes.
	CarriesSettings() bool
	// CarrySettings makes the next statement that the driver sends carry the settings. If the
	// server refuses the settings, the statement is not executed, and its error is the server's
	// error without the values.
	CarrySettings(ctx context.Context, settings []ContextSetting) error
	// DropSettings is called when the driver has returned: later statements carry nothing. sent
	// reports whether a statement has carried the settings: the driver may have sent no statement.
	DropSettings() (sent bool)
}
