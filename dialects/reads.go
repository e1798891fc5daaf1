package dialects

// A ReadJudge is a Dialect that knows which texts only read. Open rows of such a text are
// read into memory where others wait for their connection, and the connection is lent to
// others; the borrower's next statement may run on another one. Without a ReadJudge rows
// keep their connection.
//
// It is asked where connections are scarce, not for every statement.
type ReadJudge interface {
	Dialect

	// OnlyReads reports whether query is known to read and do nothing else. It writes
	// nothing, takes no value of a sequence, and neither its rows nor what the session
	// can be asked for afterwards tell which session has run it.
	OnlyReads(query string) bool

	// AsksBack reports whether query asks the session for something that an earlier
	// statement has left there: LAST_INSERT_ID(), FOUND_ROWS(), SHOW WARNINGS, currval.
	AsksBack(query string) bool
}
