package pooldriver

import (
	"errors"
	"fmt"
	"io"

	"github.com/pooldriver/pooldriver/pool"
)

// errUnclear takes the place of driver.ErrBadConn where the statement had been
// sent: database/sql executes a statement that failed with ErrBadConn again.
// It is an io.ErrUnexpectedEOF.
var errUnclear = fmt.Errorf("pooldriver: the connection was lost after the statement had been sent, so the server may or may not have executed it; look before you repeat it: %w", io.ErrUnexpectedEOF)

// errWrapSelf is the answer to Wrap(New(…)).
var errWrapSelf = errors.New("pooldriver: Wrap was given a pooldriver Connector, which pools already; use it as it is")

// errFoundDead is why the pool destroys a connection that died while idle.
var errFoundDead = errors.New("pooldriver: the server has closed the connection")

// acquireError is what a caller gets who got no connection. A failed dial
// speaks for itself; the pool's other reasons get the target's name. What is
// below stays within reach of errors.Is and errors.As.
func (c *Connector) acquireError(err error) error {
	var create *pool.CreateError
	if errors.As(err, &create) {
		return create.Err
	}
	return fmt.Errorf("pooldriver: no connection to %s: %w", c.template.Target(), err)
}
