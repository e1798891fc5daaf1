package byteproxy

import (
	"io"
	"net"
	"sync"
)

// link is one client's connection and the server's that belongs to it.
type link struct {
	proxy          *Proxy
	client, server *net.TCPConn
	broken         *Cut   // protected by proxy.mu; set once: nothing passes any more
	answer         []byte // the fault's; set with broken, and read by the direction that was struck
}

func (l *link) run() {
	var ways sync.WaitGroup
	ways.Go(func() { l.forward(ToServer, l.client, l.server) })
	ways.Go(func() { l.forward(ToClient, l.server, l.client) })
	ways.Wait()
	l.close()
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// forward is the only writer of its direction, so a fault in this direction
// knows exactly what has arrived. The two directions share no lock while they
// write: a full pipe one way must not hold up the other.
func (l *link) forward(d Direction, from, to *net.TCPConn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !l.pass(d, from, to, buffer[:n]) {
			return
		}
		if err == io.EOF {
			_ = to.CloseWrite() // The other way may still have something to say.
			return
		}
		if err != nil {
			l.hangUp()
			return
		}
	}
}

// hangUp hands a reset of one side on to the other.
func (l *link) hangUp() {
	if l.proxy.breakLink(l, Reset) {
		reset(l.client)
		reset(l.server)
	}
}

// pass forwards a chunk and reports whether the direction lives on.
func (l *link) pass(d Direction, from, to *net.TCPConn, chunk []byte) bool {
	if !l.proxy.delay(d) {
		return false
	}
	if l.proxy.loses(d, len(chunk)) {
		_, _ = io.Copy(io.Discard, from) // until the client goes away, and the server after it
		return false
	}
	n, fired, broken := l.proxy.admit(l, d, len(chunk))
	if n > 0 {
		if _, err := to.Write(chunk[:n]); err != nil {
			l.hangUp()
			return false
		}
	}
	if broken == nil {
		return true
	}
	if fired != nil {
		l.strike(*broken)
		close(fired)
	}
	switch *broken {
	case Finish:
		// Unread bytes would turn the orderly end into a reset.
		_, _ = io.Copy(io.Discard, from)
	case Stall:
		<-l.proxy.ctx.Done()
	case Reset:
	}
	return false
}

// strike breaks the link. What was let through before arrives: a reset throws
// away what is still in the send queue, so that has to be empty first.
func (l *link) strike(cut Cut) {
	switch cut {
	case Reset:
		drain(l.client)
		drain(l.server)
		reset(l.client)
		reset(l.server)
	case Finish:
		_, _ = l.client.Write(l.answer)
		_ = l.client.CloseWrite()
		_ = l.server.CloseWrite()
	case Stall:
	}
}

// reset closes a connection with RST in place of FIN.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
