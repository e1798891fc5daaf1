package dialects

// A SettingsKeeper is a Dialect whose *sql.DB is the database to its program: what a
// statement sets for its connection there, outside of any task, transaction and
// *sql.Conn, is to hold for all connections.
type SettingsKeeper interface {
	Dialect
	// Settings takes a text apart that does nothing but set such things; nil: it
	// does something else, or does it for a transaction or in a file.
	Settings(query string) []Setting
}

// Setting is one statement that sets something for its connection.
type Setting struct {
	// Name says what is set, without its value: it is shown in errors. A later
	// setting of the same name replaces this one.
	Name string
	// Of is the name of the setting that this one needs, if any, and goes with.
	Of string
	// Text is the statement.
	Text string
	// Undo takes it back on a connection that has it, where setting it again does
	// not replace it.
	Undo string
	// Default: connections have it where nothing of that name was set.
	Default bool
	// Ends: the statement takes the setting of that name back, or moves it to where
	// it needs no repetition.
	Ends bool
}
