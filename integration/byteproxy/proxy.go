// Package byteproxy forwards TCP connections and breaks them at an exact byte.
//
// A pool that claims to know whether a statement can have reached the server
// must be right wherever the connection breaks. So a fault names a direction and
// a number: exactly that many bytes of that direction, counted from the moment
// the fault is armed, arrive at the other side, and not one more.
package byteproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Direction is a way through the proxy.
type Direction int

// The two ways.
const (
	ToServer Direction = iota
	ToClient
)

func (d Direction) String() string {
	if d == ToServer {
		return "to server"
	}
	return "to client"
}

// Cut is a manner of breaking a connection, always on both of its sides.
type Cut int

const (
	// Reset sends a TCP reset, as a crashed host or an impatient firewall does.
	Reset Cut = iota
	// Finish ends both streams in an orderly way, as a closing process does.
	Finish
	// Stall forwards nothing more and tells nobody, as a pulled cable does. The
	// connection stays until [Proxy.Close].
	Stall
)

func (c Cut) String() string { return [...]string{"reset", "finish", "stall"}[c] }

// Fault breaks the connection that carries byte At of Direction. At 0 lets
// nothing of the next chunk pass.
type Fault struct {
	Direction Direction
	At        int64
	Cut       Cut
	// Answer is what the client gets before a Finish, as the server's last word.
	Answer []byte
}

func (f Fault) String() string { return fmt.Sprintf("%s after %d bytes %s", f.Cut, f.At, f.Direction) }

// Proxy forwards connections to one server. Its methods may be called at once
// from several goroutines.
type Proxy struct {
	listener net.Listener
	target   string
	ctx      context.Context
	cancel   context.CancelFunc
	pipes    sync.WaitGroup

	mu      sync.Mutex // protects the following
	links   map[*link]struct{}
	counts  [2]int64 // bytes let through since the last Arm or Count
	trips   int      // how often bytes to the server came after bytes to the client, or first
	last    Direction
	latency [2]time.Duration
	fault   *Fault
	fired   chan struct{} // the armed fault's; closed when it has struck
	refuses bool          // from Refuse to Serve
	plugged chan struct{} // closed but from Unplug to Plug
	held    chan struct{} // of HoldAnswers; nil: nothing is held
	most    int           // of LoseAbove
}

// Listen forwards from a free port of 127.0.0.1 to the target.
func Listen(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, target: target, links: map[*link]struct{}{}, plugged: make(chan struct{})}
	close(p.plugged)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.pipes.Go(p.accept)
	return p, nil
}

// Addr returns the address clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close breaks all connections and returns when nothing of the proxy runs.
func (p *Proxy) Close() error {
	p.cancel()
	err := p.listener.Close()
	p.mu.Lock()
	for l := range p.links {
		l.close()
	}
	p.mu.Unlock()
	p.pipes.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Count starts counting anew.
func (p *Proxy) Count() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts = [2]int64{}
	p.trips, p.last = 0, ToClient
}

// RoundTrips returns how often a client has spoken after the server has, or first, since
// the last [Proxy.Count]. It needs a client that speaks alone.
func (p *Proxy) RoundTrips() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trips
}

// Counted returns how many bytes passed since the last [Proxy.Count] or
// [Proxy.Arm], over all connections.
func (p *Proxy) Counted() (toServer, toClient int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[ToServer], p.counts[ToClient]
}

// Arm lets the fault strike once, counting from now. It takes the place of a
// fault that has not struck yet. The channel is closed when it has struck.
func (p *Proxy) Arm(f Fault) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts = [2]int64{}
	p.fault = &f
	p.fired = make(chan struct{})
	return p.fired
}

// Disarm takes a fault back that has not struck yet, and reports whether there
// was one.
func (p *Proxy) Disarm() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	armed := p.fault != nil
	p.fault = nil
	return armed
}

// SetLatency delays every chunk of that direction from now on.
func (p *Proxy) SetLatency(d Direction, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency[d] = delay
}

// HoldAnswers holds what servers send from now on, until a client sends something.
func (p *Proxy) HoldAnswers() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = make(chan struct{})
}

// Refuse resets all connections, and each new one until Serve, as where a network is cut.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = true
	for l := range p.links {
		if l.broken == nil {
			cut := Reset
			l.broken = &cut
			reset(l.client)
			reset(l.server)
		}
	}
}

// Serve ends Refuse.
func (p *Proxy) Serve() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = false
}

// Unplug has nothing pass until Plug, as where a cable is pulled: nobody is told. New connections are accepted.
func (p *Proxy) Unplug() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plugged = make(chan struct{})
}

// Plug ends Unplug: what was sent meanwhile arrives.
func (p *Proxy) Plug() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.plugged)
}

// LoseAbove loses what servers send in more than n bytes at once, and all that they send on this connection afterwards, as where a
// packet is too large for a tunnel and nobody is told; 0: nothing.
func (p *Proxy) LoseAbove(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most = n
}

func (p *Proxy) loses(d Direction, n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return d == ToClient && p.most > 0 && n > p.most
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // Closed.
		}
		p.pipes.Go(func() { p.serve(client.(*net.TCPConn)) })
	}
}

func (p *Proxy) serve(client *net.TCPConn) {
	var dialer net.Dialer
	server, err := dialer.DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		reset(client) // The client sees what it would see without a proxy: a refusal.
		return
	}
	l := &link{proxy: p, client: client, server: server.(*net.TCPConn)}
	p.mu.Lock()
	late := p.ctx.Err() != nil || p.refuses
	if !late {
		p.links[l] = struct{}{}
	}
	p.mu.Unlock()
	if late { // Close or Refuse has looked at the links already and will not find this one.
		reset(l.client)
		reset(l.server)
		return
	}
	l.run()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// admit decides about a chunk of n bytes the link wants to forward. It returns
// how many of them pass and, where the link is broken, how. With fired the link
// was broken by this very chunk: the caller strikes, then closes fired.
func (p *Proxy) admit(l *link, d Direction, n int) (pass int, fired chan<- struct{}, broken *Cut) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.broken != nil {
		return 0, nil, l.broken
	}
	pass = n
	if f := p.fault; f != nil && f.Direction == d && p.counts[d]+int64(n) >= f.At {
		pass = int(f.At - p.counts[d])
		l.broken, l.answer = &f.Cut, f.Answer
		p.fault = nil // Taken: no other link can be struck by it.
		fired = p.fired
	}
	p.counts[d] += int64(pass)
	if d == ToServer && p.last == ToClient {
		p.trips++
	}
	p.last = d
	if d == ToServer && p.held != nil {
		close(p.held)
		p.held = nil
	}
	return pass, fired, l.broken
}

// breakLink marks the link as broken and reports whether it was not before.
func (p *Proxy) breakLink(l *link, cut Cut) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.broken != nil {
		return false
	}
	l.broken = &cut
	return true
}

// delay waits for the end of HoldAnswers, as long as the direction's latency says, and then for the cable. It
// reports false when the proxy was closed meanwhile.
func (p *Proxy) delay(d Direction) bool {
	p.mu.Lock()
	latency, plugged, held := p.latency[d], p.plugged, p.held
	p.mu.Unlock()
	if d == ToClient && held != nil {
		select {
		case <-held:
		case <-p.ctx.Done():
			return false
		}
	}
	if latency > 0 {
		select {
		case <-time.After(latency):
		case <-p.ctx.Done():
			return false
		}
	}
	select {
	case <-plugged:
		return true
	case <-p.ctx.Done():
		return false
	}
}
