package postgres

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

func wrappedSession(t *testing.T, addr string, dial pgconn.DialFunc) dialects.Session {
	t.Helper()
	config, err := pgx.ParseConfig("postgres://u:x@" + addr + "/d?sslmode=disable")
	require.NoError(t, err)
	if dial != nil {
		config.DialFunc = dial
	}
	w, err := dialect{}.Wrap(stdlib.GetConnector(*config))
	require.NoError(t, err)
	s, err := w.Dial(t.Context(), nil)
	require.NoError(t, err)
	require.Nil(t, s.(*session).wire)
	return s
}

func TestAConnectionThatTheServerHasEndedIsOver(t *testing.T) {
	for _, how := range []string{"fin", "reset"} {
		for _, way := range []string{"Wrap", "New"} {
			t.Run(how+"/"+way, func(t *testing.T) {
				srv := newServer(t)
				srv.letGo()
				var s dialects.Session
				var conn net.Conn
				if way == "New" {
					s, conn = srv.dial(t)
				} else {
					s = wrappedSession(t, srv.addr, nil)
					conn = <-srv.conns
				}
				if how == "reset" {
					require.NoError(t, conn.(*net.TCPConn).SetLinger(0))
				}
				require.NoError(t, conn.Close())
				time.Sleep(20 * time.Millisecond)
				require.NoError(t, s.Close(t.Context()), "the server has no session any more")
			})
		}
	}
}

// noDeadline is what programs put around connections of x/crypto/ssh for pgx.
type noDeadline struct{ net.Conn }

func (noDeadline) SetDeadline(time.Time) error      { return nil }
func (noDeadline) SetReadDeadline(time.Time) error  { return nil }
func (noDeadline) SetWriteDeadline(time.Time) error { return nil }

// erringDeadline is a connection of x/crypto/ssh as it is.
type erringDeadline struct{ net.Conn }

func (erringDeadline) SetDeadline(time.Time) error      { return net.ErrClosed }
func (erringDeadline) SetReadDeadline(time.Time) error  { return net.ErrClosed }
func (erringDeadline) SetWriteDeadline(time.Time) error { return net.ErrClosed }

func returns(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Errorf("%s hangs", what)
	}
}

func TestAWrappedConnectionWithoutDeadlinesIsClosedAtOnce(t *testing.T) {
	for name, around := range map[string]func(net.Conn) net.Conn{
		"none": func(c net.Conn) net.Conn { return noDeadline{c} },
		"err":  func(c net.Conn) net.Conn { return erringDeadline{c} },
	} {
		t.Run(name, func(t *testing.T) {
			srv := newServer(t)
			if name == "err" {
				srv.letGo()
			}
			s := wrappedSession(t, srv.addr, func(ctx context.Context, network, addr string) (net.Conn, error) {
				var d net.Dialer
				nc, err := d.DialContext(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				return around(nc), nil
			})
			<-srv.conns
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			defer cancel()
			returns(t, "Close", func() {
				if err := s.Close(ctx); name == "err" {
					require.NoError(t, err)
				}
			})
			srv.letGo()
		})
	}
}

// TestAWrappedConnectionWhoseWritesWaitIsClosedAtOnce: they wait for a server that does not read.
func TestAWrappedConnectionWhoseWritesWaitIsClosedAtOnce(t *testing.T) {
	var wg sync.WaitGroup
	defer wg.Wait()
	srv := newServer(t)
	srv.letGo()
	stall := make(chan struct{})
	s := wrappedSession(t, srv.addr, func(ctx context.Context, network, addr string) (net.Conn, error) {
		a, b := net.Pipe()
		var d net.Dialer
		nc, err := d.DialContext(ctx, network, srv.addr)
		if err != nil {
			return nil, err
		}
		wg.Go(func() { // to the server
			defer nc.Close()
			buf := make([]byte, 4096)
			for {
				select {
				case <-stall:
					return
				default:
				}
				_ = b.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
				n, _ := b.Read(buf)
				if n > 0 {
					if _, err := nc.Write(buf[:n]); err != nil {
						return
					}
				}
			}
		})
		wg.Go(func() {
			buf := make([]byte, 4096)
			for {
				n, err := nc.Read(buf)
				if err != nil {
					return
				}
				_, _ = b.Write(buf[:n])
			}
		})
		t.Cleanup(func() { _ = a.Close(); _ = b.Close(); _ = nc.Close() })
		return pipeAddr{a, nc}, nil
	})
	<-srv.conns
	close(stall)
	time.Sleep(30 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	returns(t, "Close", func() { _ = s.Close(ctx) })
	_ = s.(*session).pg.Conn().Close()
}

type pipeAddr struct {
	net.Conn
	real net.Conn
}

func (p pipeAddr) RemoteAddr() net.Addr { return p.real.RemoteAddr() }
