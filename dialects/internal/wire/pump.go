package wire

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// pump gives a connection what it may lack: deadlines, and calls that return in time. A channel of
// SSH has no deadlines. The connection below must have Read, Write and Close; if it has CloseWrite,
// pump uses it.
//
// The pump reads and writes two pipes, which have deadlines (net.Pipe). Two goroutines copy between
// the pipes and the connection: a deadline ends the wait for them, not the connection's own call.
// So the connection may still write what a Write of the pump was given, and an error of the
// connection's Write is the error of a later call.
type pump struct {
	nc      net.Conn
	in, out net.Conn // the pump's ends of the pipes: in is read, out is written
	feed    net.Conn // the other end of in
	drain   net.Conn // the other end of out

	unread  atomic.Int64          // bytes that nc has given, and Read has not
	end     atomic.Pointer[error] // why nc has ended; nil: it has not
	closed  atomic.Bool
	written chan struct{} // closed when nothing more is written to nc
}

// pumpSize is the most that is read or written at a time.
const pumpSize = 16 << 10

func newPump(nc net.Conn) *pump {
	p := &pump{nc: nc, written: make(chan struct{})}
	p.in, p.feed = net.Pipe()
	p.out, p.drain = net.Pipe()
	go p.receive()
	go p.deliver()
	return p
}

// receive copies from the connection until it has ended.
func (p *pump) receive() {
	chunk := make([]byte, pumpSize)
	for {
		n, err := p.nc.Read(chunk)
		p.unread.Add(int64(n))
		if n > 0 {
			if _, closed := p.feed.Write(chunk[:n]); closed != nil {
				return
			}
		}
		if err != nil {
			p.ends(err)
			return
		}
	}
}

// deliver copies to the connection until out is closed.
func (p *pump) deliver() {
	defer close(p.written)
	if _, err := io.CopyBuffer(struct{ io.Writer }{p.nc}, p.drain, make([]byte, pumpSize)); err != nil {
		p.ends(err)
		return
	}
	if half, ok := p.nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // the reader learns what comes of it
	}
}

// ends fails every call that waits, and later ones.
func (p *pump) ends(err error) {
	p.end.CompareAndSwap(nil, &err)
	_, _ = p.feed.Close(), p.drain.Close()
}

// reason is the error for a caller whose pipe has returned err.
func (p *pump) reason(err error) error {
	switch end := p.end.Load(); {
	case err == nil || errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case p.closed.Load():
		return net.ErrClosed
	case end != nil:
		return *end
	}
	return err
}

// look reports whether bytes wait. err is why the connection has ended.
func (p *pump) look() (sight Sight, err error) {
	switch end := p.end.Load(); {
	case p.closed.Load():
		return Closed, nil
	case end != nil:
		return Closed, *end
	case p.unread.Load() > 0:
		return Readable, nil
	}
	return Quiet, nil
}

// Read implements net.Conn.
func (p *pump) Read(b []byte) (int, error) {
	n, err := p.in.Read(b)
	p.unread.Add(-int64(n))
	return n, p.reason(err)
}

// Write implements net.Conn, except for n: n counts the bytes that may have left, so n is never too
// small.
func (p *pump) Write(b []byte) (int, error) {
	if p.end.Load() != nil {
		return 0, p.reason(io.ErrClosedPipe) // no byte of b has left
	}
	n, err := p.out.Write(b)
	return n, p.reason(err)
}

// CloseWrite ends the stream after the bytes that are being written. It returns
// errors.ErrUnsupported if the connection below cannot.
func (p *pump) CloseWrite() error {
	if _, ok := p.nc.(interface{ CloseWrite() error }); !ok {
		return errors.ErrUnsupported
	}
	return p.out.Close()
}

// endPatience bounds the wait for a connection that sends what was written, and the end of its
// stream.
const endPatience = 100 * time.Millisecond

// Close implements net.Conn. Calls that wait return first: the connection below may end them only
// after its peer's answer, or when the network takes what it sends.
func (p *pump) Close() error {
	if p.closed.Swap(true) {
		return net.ErrClosed
	}
	_, _ = p.in.Close(), p.out.Close()
	done := make(chan error, 1)
	go func() {
		select {
		case <-p.written: // also the driver's goodbye
		case <-time.After(endPatience):
		}
		done <- p.nc.Close()
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(endPatience):
		return nil
	}
}

// LocalAddr implements net.Conn.
func (p *pump) LocalAddr() net.Addr { return p.nc.LocalAddr() }

// RemoteAddr implements net.Conn.
func (p *pump) RemoteAddr() net.Addr { return p.nc.RemoteAddr() }

// A pipe that is closed takes no deadline, and needs none.

// SetDeadline implements net.Conn.
func (p *pump) SetDeadline(t time.Time) error {
	_, _ = p.in.SetReadDeadline(t), p.out.SetWriteDeadline(t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (p *pump) SetReadDeadline(t time.Time) error {
	_ = p.in.SetReadDeadline(t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (p *pump) SetWriteDeadline(t time.Time) error {
	_ = p.out.SetWriteDeadline(t)
	return nil
}
