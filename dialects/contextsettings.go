package dialects

import "context"

// ContextSetting is a setting that a program has put into a context, for the statements of
// that context (pooldriver.WithSettings).
type ContextSetting struct{ Name, Value string }

// A SettingsChecker is a Session that knows which settings of contexts it can put in force.
// A Session that is no SettingsSetter says why it can put none in force.
type SettingsChecker interface {
	Session
	// CheckSettings returns why one of the settings cannot be put in force, nil if all can.
	// The error names the setting, and contains no value. It sends nothing.
	CheckSettings(settings []ContextSetting) error
}

// A SettingsSetter is a Session that can put settings in force. The names were checked.
type SettingsSetter interface {
	SettingsChecker
	// SetSettings puts these settings in force, and no others: what an earlier call has
	// set and this one does not gets back the value that it had before that call. If it
	// is called in a transaction, the settings may end with that. The error contains no
	// value. Clean undoes all of it.
	SetSettings(ctx context.Context, settings []ContextSetting) error
}

// A SettingsCarrier is a Session that can send settings in front of a statement, in its
// packet. They end with the statement's transaction or, where none is open, with the
// statement. So nothing is left behind.
type SettingsCarrier interface {
	SettingsSetter
	// CarriesSettings reports whether this connection can do so. It always returns the
	// same.
	CarriesSettings() bool
	// CarrySettings has the next statement that the driver sends carry the settings. If
	// the server refuses them, the statement is not executed, and the server's error,
	// without the values, is the statement's.
	CarrySettings(ctx context.Context, settings []ContextSetting) error
	// DropSettings is called when the driver has returned: what it sends from here on
	// carries nothing. sent reports whether a statement has carried the settings: a driver
	// may find a reason to send none.
	DropSettings() (sent bool)
}
