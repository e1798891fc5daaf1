// Package direct is what module pgxpooldriver does with a virtual connection: it sends statements by
// the driver's own connection, in the driver's own API. Such statements are operations as those of
// database/sql are.
package direct

import (
	"context"
	"database/sql/driver"

	"github.com/pooldriver/pooldriver/dialects"
)

// Sender sends one statement, or a batch.
type Sender interface {
	// Send executes the statement by conn, the driver's own connection, and returns the open rows of a
	// query. Nobody else uses conn until Send returns. After a loss of the connection, and with a
	// prepared statement that does not fit any more, Send is called once more.
	Send(ctx context.Context, conn driver.Conn, opts SendOptions) (driver.Rows, error)
}

// SendOptions say what Send has to take care of.
type SendOptions struct {
	// Unkept: the server reads texts by settings that may end with the statement. The driver must neither
	// keep a statement that it prepares, nor use one that it has kept.
	Unkept bool
}

// Call is a statement to be sent.
type Call struct {
	Text        string          // as it is sent
	MoreTexts   []string        // the further texts of a batch; nil: it is no batch
	Args        []any           // of Text, if it is no batch
	ReturnsRows bool            // Send returns rows
	Effect      dialects.Effect // what the texts do not show
	Sender      Sender
}

// Conn is a virtual connection. One goroutine at a time uses it.
type Conn interface {
	driver.Conn
	driver.Pinger
	// ResetSession begins a checkout, and IsValid ends it. After a false, or an error, the connection is closed.
	driver.SessionResetter
	driver.Validator

	// Attach takes a real connection, unless the checkout has one.
	Attach(ctx context.Context) error
	Execute(ctx context.Context, call *Call) (driver.Rows, error)
	// Start is BeginTx for a transaction that outlives ctx: it ends with lifetime. nested: a
	// transaction of the checkout is open, and this one is a savepoint in it.
	Start(ctx, lifetime context.Context, opts driver.TxOptions, nested bool) (driver.Tx, error)
	// Lend lends the driver's own connection until End of the loan. effect is what the borrower may do.
	Lend(ctx context.Context, effect dialects.Effect) (Loan, error)
}

// Kept is an optional interface of the rows that Send returns.
type Kept interface {
	// Kept is called when all further rows were read into memory, and the rows were closed, under their session's lock.
	Kept()
}

// Rows are the rows of Execute.
type Rows interface {
	driver.Rows
	// Lost is why rows that were not read to their end are lost; nil: they are not.
	Lost() error
}

// Anything is the effect of a borrower of whom nothing is known.
const Anything = dialects.Suspect | dialects.TxControl | dialects.ForgetPrepared | dialects.NamedPrepared | dialects.Rereads

// Loan is the driver's own connection, lent. Meanwhile every operation of the virtual connection fails.
type Loan interface {
	// Call calls fn, which may use the driver's connection. After a panic the connection is closed.
	Call(fn func(driver.Conn) error) error
	// End takes the connection back. err is the borrower's error.
	End(err error)
}
