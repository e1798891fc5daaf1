package wire

import "time"

// Sight is what a look at a socket shows.
type Sight uint8

const (
	// Quiet: connected, nothing to read. It is also the answer if a look is not possible: on
	// another operating system, or at a connection without a socket.
	Quiet Sight = iota
	// Readable: something waits to be read.
	Readable
	// Closed: the peer has ended the connection, or it was closed here.
	Closed
)

// peekSize is enough for the first messages of a server that says goodbye.
const peekSize = 512

// Idle is how long ago the last Read began.
func (c *Conn) Idle() time.Duration {
	return time.Since(start) - time.Duration(c.listened.Load())
}

// freshFor: a look at a connection that was idle for less would tell little, and costs a system
// call. The server's time for the last answer counts as idle time, so a lower limit would spare no
// look.
const freshFor = time.Millisecond

// Fresh reports whether the connection has been idle for so short a time that a look is useless.
func (c *Conn) Fresh() bool { return c.Idle() < freshFor && !c.ended.Load() }

// OnSocket reports whether the connection is a socket of the operating system, or lies on one that was found. It
// sends keep-alives: such a socket notices when the way to the peer is cut. A tunnel may not
// notice.
func (c *Conn) OnSocket() bool { return c.pump == nil }

// Peek looks at the connection without blocking, without a round trip and
// without taking anything from it. With Readable it returns the first bytes
// that wait, which are good until the next Peek, or nil where the connection is no
// socket itself. It is for an idle connection: one goroutine at a time calls it.
func (c *Conn) Peek() (Sight, []byte) {
	if c.closing.Load() || c.ended.Load() {
		return Closed, nil
	}
	if c.pump != nil {
		sight, err := c.pump.look()
		c.note(err)
		return sight, nil
	}
	sight, waiting := c.look()
	if c.veiled != nil {
		waiting = nil // they may be sealed
	}
	if sight == Closed {
		// The system reports a reset only once; a second look would find the connection quiet.
		c.ended.Store(true)
	}
	return sight, waiting
}
