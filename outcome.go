package pooldriver

// outcome describes an operation that has failed.
type outcome struct {
	badConn  bool // the driver returned driver.ErrBadConn
	claims   bool // the error says of itself that nothing was sent
	lost     bool // the connection is closed
	executes bool // the operation may change data: it is no prepare, begin or ping
	unsent   bool // by our own count, no byte was given to the network
	wasIdle  bool // the server says that it was waiting for a statement when it ended the connection
	trusted  bool // there is no count, and this driver returns ErrBadConn only if nothing was sent
	first    bool // nothing else has happened in this checkout
	retried  bool // this was the second try
	expired  bool // the caller's context has ended
}

// verdict is what follows from an outcome.
type verdict struct {
	retry   bool // try once more, on another real connection
	unclear bool // hide that the error says "nothing was sent": database/sql would execute again
}

// judge decides whether an operation that failed is tried again: only if the server cannot
// have executed it, and nothing else depends on the connection. A prepare, a begin or a
// ping is safe to repeat in any case: what it did has ended with its connection.
//
// If there is no count of bytes and the driver can be trusted, its ErrBadConn goes to
// database/sql, which tries again as it does without us. An error that only says of itself
// that it is safe to repeat is not believed.
func judge(o outcome) verdict {
	safe := o.unsent || o.wasIdle || !o.executes
	doubtful := o.claims
	if o.badConn {
		doubtful = !o.trusted
	}
	return verdict{
		retry:   (o.badConn || o.lost) && safe && o.first && !o.retried && !o.expired,
		unclear: doubtful && !safe,
	}
}
