package wire

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// pump gives a connection what it may lack: deadlines, a look at what waits to be read,
// and calls that return in time. A channel of SSH has no deadlines, and neither it nor
// TLS has a socket to look at. The connection below must have Read, Write and Close; if it has
// CloseWrite, pump uses it.
//
// One goroutine reads from the connection. It keeps the bytes of one Read until they are taken, and
// ends when the connection ends. Each call of the connection's Write runs on a goroutine too: a
// deadline ends the wait for it, not the call.
type pump struct {
	nc net.Conn

	writing sync.Mutex // held by Write: the bytes of two calls do not mix

	mu          sync.Mutex // protects following fields; not held while nc works
	changed     sync.Cond  // of mu
	waiting     []byte     // bytes that were read, and are not taken yet
	ended       error      // not nil: why nothing more will be read
	out         []byte     // what nc writes
	busy        bool       // nc writes, or ends its stream
	closed      bool
	read, write limit
}

// pumpSize is the most that is read or written at a time.
const pumpSize = 16 << 10

func newPump(nc net.Conn) *pump {
	p := &pump{nc: nc}
	p.changed.L = &p.mu
	go p.receive()
	return p
}

// receive reads until the connection has ended.
func (p *pump) receive() {
	chunk := make([]byte, pumpSize)
	for {
		n, err := p.nc.Read(chunk)
		if !p.offer(chunk[:n], err) {
			return
		}
	}
}

// offer returns when b is taken, and reports whether to read on.
func (p *pump) offer(b []byte, err error) (more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting, p.ended = b, err
	p.changed.Broadcast()
	for len(p.waiting) > 0 && !p.closed {
		p.changed.Wait()
	}
	return err == nil && !p.closed
}

// look shows the bytes that wait. err is why the connection has ended.
func (p *pump) look() (sight Sight, waiting []byte, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return Closed, nil, nil
	case len(p.waiting) > 0:
		return Readable, p.waiting, nil
	case p.ended != nil:
		return Closed, nil, p.ended
	}
	return Quiet, nil, nil
}

// Read implements net.Conn.
func (p *pump) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.closed:
			return 0, net.ErrClosed
		case p.read.passed:
			return 0, os.ErrDeadlineExceeded
		case len(p.waiting) > 0:
			n := copy(b, p.waiting)
			p.waiting = p.waiting[n:]
			p.changed.Broadcast()
			return n, nil
		case p.ended != nil:
			return 0, p.ended
		}
		p.changed.Wait()
	}
}

// Write implements net.Conn, except for n: n counts the bytes that may have left, so n is never too
// small.
func (p *pump) Write(b []byte) (n int, err error) {
	p.writing.Lock()
	defer p.writing.Unlock()
	for err == nil && n < len(b) {
		var part int
		part, err = p.send(b[n:min(n+pumpSize, len(b))])
		n += part
	}
	return n, err
}

// send hands b to the connection and waits until it is written.
func (p *pump) send(b []byte) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.await(func() bool { return !p.busy }); err != nil {
		return 0, err
	}
	if p.ended != nil {
		return 0, p.ended // no byte of b has left
	}
	p.out, p.busy = append(p.out[:0], b...), true
	written, failed := false, error(nil)
	go func() {
		_, err := p.nc.Write(p.out)
		p.mu.Lock()
		defer p.mu.Unlock()
		written, failed = true, err
		p.rest()
	}()
	if err := p.await(func() bool { return written }); err != nil {
		return len(b), err
	}
	return len(b), failed
}

// await returns when done returns true. The lock is held. An error: done is still false.
func (p *pump) await(done func() bool) error {
	for {
		switch {
		case p.closed:
			return net.ErrClosed
		case p.write.passed:
			return os.ErrDeadlineExceeded
		case done():
			return nil
		}
		p.changed.Wait()
	}
}

// rest notes that the connection does not write any more. The lock is held.
func (p *pump) rest() {
	p.busy = false
	p.changed.Broadcast()
}

// CloseWrite ends the stream after the bytes that are being written. It returns
// errors.ErrUnsupported if the connection below cannot.
func (p *pump) CloseWrite() error {
	half, ok := p.nc.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return soon(func() error {
		p.mu.Lock()
		for p.busy && !p.closed {
			p.changed.Wait()
		}
		if p.closed {
			p.mu.Unlock()
			return net.ErrClosed
		}
		p.busy = true
		p.mu.Unlock()
		err := half.CloseWrite()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.rest()
		return err
	})
}

// Close implements net.Conn. Calls that wait return first: the connection below may end them only
// after its peer's answer, or when the network takes what it sends.
func (p *pump) Close() error {
	p.mu.Lock()
	again := p.closed
	p.closed = true
	p.read.stop()
	p.write.stop()
	p.changed.Broadcast()
	p.mu.Unlock()
	if again {
		return net.ErrClosed
	}
	return soon(p.nc.Close)
}

// endPatience bounds the wait for a connection that sends the end of its stream.
const endPatience = 100 * time.Millisecond

// soon calls f, and does not wait longer than endPatience for it.
func soon(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	timer := time.NewTimer(endPatience)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return nil
	}
}

// LocalAddr implements net.Conn.
func (p *pump) LocalAddr() net.Addr { return p.nc.LocalAddr() }

// RemoteAddr implements net.Conn.
func (p *pump) RemoteAddr() net.Addr { return p.nc.RemoteAddr() }

// SetDeadline implements net.Conn.
func (p *pump) SetDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(&p.read, t)
	p.set(&p.write, t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (p *pump) SetReadDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(&p.read, t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (p *pump) SetWriteDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(&p.write, t)
	return nil
}

// limit is a deadline.
type limit struct {
	timer  *time.Timer // nil: no deadline is to come
	passed bool
}

func (l *limit) stop() {
	if l.timer != nil {
		l.timer.Stop()
	}
	*l = limit{}
}

// set moves a deadline. The lock is held. Calls that wait for the old deadline see the new one.
func (p *pump) set(l *limit, t time.Time) {
	l.stop()
	if t.IsZero() || p.closed {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		l.passed = true
		p.changed.Broadcast()
		return
	}
	var own *time.Timer
	own = time.AfterFunc(left, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if l.timer == own { // not moved since
			l.passed = true
			p.changed.Broadcast()
		}
	})
	l.timer = own
}
