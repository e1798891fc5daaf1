//go:build unix && !aix

package wire

import (
	"errors"
	"net"
	"syscall"
)

// peeker keeps what a look needs, so that a look allocates nothing.
type peeker struct {
	raw   syscall.RawConn // nil: no socket to look at
	probe func(fd uintptr)
	n     int
	errno error
	buf   [peekSize]byte
}

func (p *peeker) initPeek(nc net.Conn) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	p.raw = raw
	p.probe = func(fd uintptr) {
		for {
			p.n, _, p.errno = syscall.Recvfrom(int(fd), p.buf[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			if p.errno != syscall.EINTR {
				return
			}
		}
	}
}

func (p *peeker) look() (Sight, []byte) {
	if p.raw == nil {
		return Quiet, nil
	}
	// Control and not Read: Read would refuse once a deadline has passed and
	// queue behind a reader; MSG_PEEK disturbs neither.
	if err := p.raw.Control(p.probe); err != nil {
		return Closed, nil
	}
	switch {
	case p.errno == nil && p.n > 0:
		return Readable, p.buf[:p.n]
	case p.errno == syscall.EAGAIN || p.errno == syscall.EWOULDBLOCK:
		return Quiet, nil
	}
	return Closed, nil
}

// isReset reports whether err says that the peer has reset the connection, or has closed it during
// a send.
func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ENOTCONN)
}
