package dialects

// A SettingsKeeper is a Dialect for which a *sql.DB stands for the whole database
// (SQLite): what a statement sets for its connection, outside of any explicit task, transaction
// and *sql.Conn, holds for all connections of the Connector.
type SettingsKeeper interface {
	Dialect
	// Settings returns what query sets, statement by statement. It is nil if query
	// leaves anything else in its session, or a setting that is not known: then nothing
	// is kept, and the program is told that the state was lost. alone reports whether
	// query has one statement, so that its arguments are those of the setting.
	Settings(query string) (settings []Setting, alone bool)
}

// Setting is one statement that sets something for its connection.
type Setting struct {
	// Name says what is set, without its value: it is shown in errors. A later
	// setting of the same name replaces this one.
	Name string
	// Of is the name of the setting that this one needs, if any: it ends with that one.
	Of string
	// Text is the statement.
	Text string
	// Undo is the statement that removes the setting from a connection. It is empty
	// where setting it again replaces it.
	Undo string
	// Default: this is what a new connection has anyway.
	Default bool
	// Ends: the statement removes the setting of that name, or stores it in the
	// database's file, so that it need not be repeated.
	Ends bool
	// Private: what it sets up is another one for each connection, and gone with it (ATTACH
	// of a database in memory): it cannot hold for all.
	Private bool
	// NextTx: it applies to the next transaction alone. With Ends it takes back one that
	// waits for its transaction.
	NextTx bool
}
