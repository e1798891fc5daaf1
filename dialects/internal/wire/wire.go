// Package wire is the network connection that a dialect puts under its driver.
// It sees what drivers do not tell: how many bytes have left, what the server said first, whether
// the server has hung up. It can look at an idle socket without a round trip.
package wire

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/internal/unwrap"
)

// Conn is a net.Conn around the dialled connection. TLS, if any, lies above it. Conn is
// intentionally no syscall.Conn: from a syscall.Conn drivers read to see whether the socket is
// alive, and Peek does that better.
//
// As with every net.Conn its methods are safe for concurrent use, except where
// they say otherwise.
type Conn struct {
	// The fields that every statement touches come first, to share a cache line: the line is cold
	// when the server has answered.
	nc       net.Conn
	sent     atomic.Uint64
	listened atomic.Int64 // when the last Read began, in nanoseconds since start
	head     []byte       // len grows up to cap; only Read and Head touch it
	ended    atomic.Bool  // the peer has ended the connection
	closing  atomic.Bool  // Close has been called
	cut      atomic.Bool  // a Write has failed
	finished atomic.Bool  // CloseWrite has been called

	graceful atomic.Int64 // deadline of EndGracefully in Unix nanoseconds, or 0
	peeker
	veiled net.Conn // the socket below nc, which does more than pass bytes on; nil: nc is the socket, or a pump
	pump   *pump    // the same as nc, if no socket was found
	remote net.Addr // nil: nc's
}

// New wraps nc and keeps the first keep bytes that are read.
func New(nc net.Conn, keep int) *Conn {
	c := &Conn{nc: nc}
	if keep > 0 {
		c.head = make([]byte, 0, keep)
	}
	c.initPeek(nc)
	return c
}

// Dialled wraps the connection that a function of the program has dialled to network and address.
// RemoteAddr returns this address: the connection itself may know only the address of a proxy, or
// none, and whoever dials RemoteAddr must reach the same server. Whatever nc is, deadlines and
// Close work as on a socket: a socket is looked for below TLS and the wrappers of connectors and tracers,
// and where none is found (a channel of SSH), a pump has them. If nc is no socket, Peek does not show the bytes that wait.
func Dialled(nc net.Conn, network, address string, keep int) *Conn {
	var c *Conn
	switch s := unwrap.NetConn(nc); s.(type) {
	case *net.TCPConn, *net.UnixConn:
		c = New(nc, keep)
		if s != nc {
			c.veiled = s
			c.initPeek(s)
		}
	default:
		p := newPump(nc)
		c = New(p, keep)
		c.pump = p
	}
	c.remote = target{network, address}
	return c
}

// target is an address as it was dialled.
type target struct{ network, address string }

func (t target) Network() string { return t.network }
func (t target) String() string  { return t.address }

// Of finds the Conn under nc, looking through TLS; nil if there is none.
func Of(nc net.Conn) *Conn { return Under[*Conn](nc) }

// Under finds the C under nc, looking through TLS; the zero C if there is none.
func Under[C net.Conn](nc net.Conn) (none C) {
	for nc != nil {
		if c, ok := nc.(C); ok {
			return c
		}
		outer, ok := nc.(interface{ NetConn() net.Conn }) // *tls.Conn
		if !ok {
			return none
		}
		nc = outer.NetConn()
	}
	return none
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	// Before the read, while the server works: then a look at the clock costs the statement
	// nothing.
	c.listened.Store(int64(time.Since(start)))
	n, err := c.nc.Read(b)
	if free := cap(c.head) - len(c.head); free > 0 {
		c.head = append(c.head, b[:min(n, free)]...)
	}
	if err != nil {
		c.note(err)
	}
	return n, err
}

// start is the time from which times are counted; it has a monotonic clock.
var start = time.Now()

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) {
	// The bytes are counted before and corrected after, so that Sent is never less than the bytes
	// that may have left.
	c.sent.Add(uint64(len(b)))
	n, err := c.nc.Write(b)
	if n < len(b) && c.veiled == nil { // a wrapper may have sent more than it says
		c.sent.Add(-uint64(len(b) - n))
	}
	if err != nil {
		c.cut.Store(true)
		if !c.finished.Load() { // otherwise the error may come from our own end of the stream
			c.note(err)
		}
	}
	return n, err
}

// note remembers that the peer has ended the connection, if err says so. The program's own TLS
// returns an unexpected EOF if the peer has ended only the connection below.
func (c *Conn) note(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || isReset(err) {
		c.ended.Store(true)
	}
}

// Sent counts the bytes handed to the network so far.
func (c *Conn) Sent() uint64 { return c.sent.Load() }

// Head returns the first bytes that were read, at most as many as New was told
// to keep. It must not run at the same time as Read.
func (c *Conn) Head() []byte { return c.head }

// Ended reports whether the peer has been seen to end the connection, by EOF
// or by a reset.
func (c *Conn) Ended() bool { return c.ended.Load() }

// Cut reports whether a Write has failed: the peer may wait for the rest of the message.
func (c *Conn) Cut() bool { return c.cut.Load() }

// EndGracefully makes the Close that follows wait until the peer has closed its
// side too, but no longer than until deadline.
func (c *Conn) EndGracefully(deadline time.Time) {
	c.graceful.Store(deadline.UnixNano())
}

// Close closes the connection at once, which ends blocked calls of Read and Write;
// drivers rely on that when a context ends. After EndGracefully it first sends the end of
// the stream and then reads to the peer's end: if Ended is true when it returns, the
// server has released the connection. A second Close ends the wait.
func (c *Conn) Close() error {
	if first := !c.closing.Swap(true); first {
		if until := c.graceful.Load(); until != 0 {
			c.drain(time.Unix(0, until))
		}
	}
	return c.nc.Close()
}

// drain reads to the peer's end. If this side alone cannot end the stream, the peer ends it after
// the driver's goodbye, unless the goodbye was cut.
func (c *Conn) drain(deadline time.Time) {
	if c.Ended() || c.SetReadDeadline(deadline) != nil {
		return
	}
	if err := c.CloseWrite(); err != nil {
		c.note(err) // the peer may have ended before, and have answered the driver's goodbye by a reset
		if c.Ended() || c.Cut() || !errors.Is(err, errors.ErrUnsupported) {
			return
		}
	}
	var scratch [4096]byte
	for {
		if _, err := c.nc.Read(scratch[:]); err != nil {
			c.note(err)
			return
		}
	}
}

// Sever fails every call that waits for the network, now and later. Close can
// still be called, and still ends gracefully.
func (c *Conn) Sever() { _ = c.SetDeadline(start) }

// CloseWrite sends the end of the stream if the network has it (TCP, Unix sockets); else it returns
// errors.ErrUnsupported. Later writes fail.
func (c *Conn) CloseWrite() error {
	c.finished.Store(true)
	if half, ok := c.nc.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// NetConn returns the connection that was wrapped.
func (c *Conn) NetConn() net.Conn { return c.nc }

// LocalAddr implements net.Conn. It is never nil.
func (c *Conn) LocalAddr() net.Addr {
	if own := c.nc.LocalAddr(); own != nil {
		return own
	}
	return target{}
}

// RemoteAddr implements net.Conn. After Dialled it is the address that was dialled.
func (c *Conn) RemoteAddr() net.Addr {
	if c.remote != nil {
		return c.remote
	}
	return c.nc.RemoteAddr()
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadline(net.Conn.SetDeadline, t) }

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(net.Conn.SetReadDeadline, t) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.setDeadline(net.Conn.SetWriteDeadline, t)
}

// setDeadline sets a deadline. The deadlines of a wrapper may do nothing, so those of the socket below it are set, too.
func (c *Conn) setDeadline(set func(net.Conn, time.Time) error, t time.Time) error {
	err := set(c.nc, t)
	if c.veiled != nil {
		return set(c.veiled, t)
	}
	return err
}
