package dialects

// A ReadJudge is a Dialect that knows which texts only read. If others wait for the connection of
// open rows of such a text, the rows are read into memory and the connection is lent to others. The
// borrower's next statement may run on another connection. Without a ReadJudge rows keep their
// connection.
//
// It is asked when connections are scarce, not for every statement.
type ReadJudge interface {
	Dialect

	// OnlyReads reports whether query is known to read and do nothing else. Such a query writes
	// nothing, locks no rows and takes no value of a sequence. Neither its rows nor later
	// questions to the session show which session has run the query.
	OnlyReads(query string) bool

	// AsksBack reports whether query asks the session for something that an earlier
	// statement has left there: LAST_INSERT_ID(), FOUND_ROWS(), SHOW WARNINGS, currval.
	AsksBack(query string) bool
}

// A LockJudge is a Dialect that knows which texts take advisory locks (GET_LOCK, pg_advisory_lock). A replica would take them, and
// keep nobody from anything.
type LockJudge interface {
	TakesLocks(query string) bool
}
