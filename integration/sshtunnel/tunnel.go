// Package sshtunnel is an SSH server that forwards TCP connections, and a client of it.
// The client's connections are the hardest that a pool can be given: they have no
// deadlines, no socket and no address, all of them share one TCP connection, and their
// Close needs the server.
package sshtunnel

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/ssh"
)

// Tunnel is a server and its client.
type Tunnel struct {
	listener net.Listener
	server   *ssh.ServerConfig
	key      ssh.PublicKey
	running  sync.WaitGroup
	forwards atomic.Int32 // connections that are forwarded

	mu       sync.Mutex // protects following fields
	entrance string     // where the client finds the server
	client   *ssh.Client
	dialled  int
}

// Open starts a tunnel that ends with the test. Its client connects at the first Dial.
func Open(t testing.TB) *Tunnel {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &Tunnel{listener: listener, server: &ssh.ServerConfig{NoClientAuth: true}, key: signer.PublicKey(), entrance: listener.Addr().String()}
	u.server.AddHostKey(signer)
	u.running.Go(u.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		u.Cut()
		u.running.Wait()
	})
	return u
}

// Addr is where the server listens.
func (u *Tunnel) Addr() string { return u.listener.Addr().String() }

// Enter has the client connect to addr from now on, which leads to the server. What is
// open stays as it is.
func (u *Tunnel) Enter(addr string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.entrance, u.client = addr, nil
}

// Dial opens a connection through the tunnel, as a program's pooldriver.Config.Dial
// does: it connects to the SSH server first if there is no connection to it.
func (u *Tunnel) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	client, err := u.connected()
	if err != nil {
		return nil, err
	}
	return client.DialContext(ctx, network, addr)
}

// Dialled counts the calls of Dial.
func (u *Tunnel) Dialled() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.dialled
}

// Forwards counts the connections that are forwarded. The client has been told of the end of all others.
func (u *Tunnel) Forwards() int { return int(u.forwards.Load()) }

func (u *Tunnel) connected() (*ssh.Client, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.dialled++
	if u.client != nil {
		return u.client, nil
	}
	client, err := ssh.Dial("tcp", u.entrance, &ssh.ClientConfig{User: "tunnel", HostKeyCallback: ssh.FixedHostKey(u.key)})
	if err != nil {
		return nil, err
	}
	u.client = client
	u.running.Go(func() {
		_ = client.Wait()
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.client == client {
			u.client = nil
		}
	})
	return client, nil
}

// Cut ends the client's connection to the server, and with it all that go through it.
func (u *Tunnel) Cut() {
	u.mu.Lock()
	client := u.client
	u.client = nil
	u.mu.Unlock()
	if client != nil {
		_ = client.Close()
	}
}

func (u *Tunnel) accept() {
	for {
		nc, err := u.listener.Accept()
		if err != nil {
			return // Closed.
		}
		u.running.Go(func() { u.serve(nc) })
	}
}

// serve forwards what one client asks for.
func (u *Tunnel) serve(nc net.Conn) {
	defer nc.Close()
	conn, channels, requests, err := ssh.NewServerConn(nc, u.server)
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go ssh.DiscardRequests(requests)
	for asked := range channels {
		u.running.Go(func() { u.forward(ctx, asked) })
	}
	_ = conn.Wait()
}

// direct is what a client says of a channel (RFC 4254, 7.2).
type direct struct {
	Host       string
	Port       uint32
	Origin     string
	OriginPort uint32
}

func (u *Tunnel) forward(ctx context.Context, asked ssh.NewChannel) {
	var to direct
	if err := ssh.Unmarshal(asked.ExtraData(), &to); err != nil {
		_ = asked.Reject(ssh.ConnectionFailed, "what is asked for cannot be read")
		return
	}
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))))
	if err != nil {
		_ = asked.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	defer nc.Close()
	channel, requests, err := asked.Accept()
	if err != nil {
		return
	}
	u.forwards.Add(1)
	defer u.forwards.Add(-1)
	go ssh.DiscardRequests(requests)
	defer context.AfterFunc(ctx, func() { _ = nc.Close() })() // the client has gone
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(nc, channel)
		_ = nc.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(channel, nc)
	_ = channel.CloseWrite()
	_ = channel.Close()
	_ = nc.Close()
	<-ended
}
