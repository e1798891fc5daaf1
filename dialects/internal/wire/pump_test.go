package wire

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// channel is a connection like one of SSH: it has no deadlines, no socket and no
// addresses, and its Close waits for the peer.
type channel struct {
	in      *io.PipeReader
	out     *io.PipeWriter
	closing chan struct{} // Close returns when it is closed; nil: at once
	ended   chan struct{} // closed by CloseWrite
}

var errNoDeadline = errors.New("deadline not supported")

func (c *channel) Read(b []byte) (int, error)       { return c.in.Read(b) }
func (c *channel) Write(b []byte) (int, error)      { return c.out.Write(b) }
func (c *channel) LocalAddr() net.Addr              { return nil }
func (c *channel) RemoteAddr() net.Addr             { return nil }
func (c *channel) SetDeadline(time.Time) error      { return errNoDeadline }
func (c *channel) SetReadDeadline(time.Time) error  { return errNoDeadline }
func (c *channel) SetWriteDeadline(time.Time) error { return errNoDeadline }

func (c *channel) CloseWrite() error {
	close(c.ended)
	return c.out.Close()
}

func (c *channel) Close() error {
	if c.closing != nil {
		<-c.closing
	}
	_ = c.in.Close()
	return c.out.Close()
}

// peer is the other end of a channel.
type peer struct {
	*io.PipeReader
	*io.PipeWriter
}

func (p peer) Close() { _, _ = p.PipeReader.Close(), p.PipeWriter.Close() }

// tunnel returns a connection over a channel, and the channel's two ends.
func tunnel(t *testing.T) (*Conn, *channel, peer) {
	t.Helper()
	there, back := io.Pipe()
	reads, writes := io.Pipe()
	ch := &channel{in: reads, out: back, ended: make(chan struct{})}
	c := Dialled(ch, "tcp", "db.internal:5432", 0)
	p := peer{there, writes}
	t.Cleanup(func() { _ = c.Close(); p.Close() })
	return c, ch, p
}

func TestATunnelHasTheAddressThatWasDialled(t *testing.T) {
	c, _, _ := tunnel(t)
	require.Equal(t, "tcp", c.RemoteAddr().Network())
	require.Equal(t, "db.internal:5432", c.RemoteAddr().String())
	require.Empty(t, c.LocalAddr().String(), "it has none, and is not nil")
	require.False(t, c.OnSocket())
}

func TestASocketThatAProgramHasDialledIsLookedAt(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		plain, peer := pair(t, network, 0)
		c := Dialled(plain.NetConn(), network, "db.internal:5432", 0)
		require.True(t, c.OnSocket())
		require.Equal(t, "db.internal:5432", c.RemoteAddr().String())
		require.Equal(t, plain.LocalAddr(), c.LocalAddr())
		_, err := peer.Write([]byte("Ebye"))
		require.NoError(t, err)
		sight, waiting := arrive(t, c)
		require.Equal(t, Readable, sight)
		require.Equal(t, "Ebye", string(waiting))
	})
}

func TestATunnelCarriesWhatIsWrittenAndRead(t *testing.T) {
	c, _, p := tunnel(t)
	long := strings.Repeat("0123456789abcdef", 3*pumpSize/16+1)
	var peers sync.WaitGroup
	peers.Go(func() {
		got := make([]byte, len(long))
		_, _ = io.ReadFull(p, got)
		_, _ = p.Write(got)
		_ = p.PipeWriter.Close()
	})
	n, err := c.Write([]byte(long))
	require.NoError(t, err)
	require.Equal(t, len(long), n)
	require.EqualValues(t, len(long), c.Sent())
	got, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, long, string(got))
	require.True(t, c.Ended())
	peers.Wait()
}

func TestADeadlineEndsTheReadOfATunnel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, p := tunnel(t)
		began := time.Now()
		require.NoError(t, c.SetReadDeadline(began.Add(time.Hour)))
		require.NoError(t, c.SetReadDeadline(began.Add(time.Minute)))
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		var timeout net.Error
		require.ErrorAs(t, err, &timeout)
		require.True(t, timeout.Timeout())
		require.Equal(t, time.Minute, time.Since(began))
		require.False(t, c.Ended())

		require.NoError(t, c.SetReadDeadline(time.Time{}))
		go func() { _, _ = p.Write([]byte("late")) }()
		got := make([]byte, 4)
		_, err = io.ReadFull(c, got)
		require.NoError(t, err)
		require.Equal(t, "late", string(got), "nothing is lost")
	})
}

func TestADeadlineThatIsMovedEndsAReadThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := tunnel(t)
		woken := make(chan error)
		go func() {
			_, err := c.Read(make([]byte, 1))
			woken <- err
		}()
		synctest.Wait()
		c.Sever()
		require.ErrorIs(t, <-woken, os.ErrDeadlineExceeded)
	})
}

func TestAWriteThatADeadlineEndsHasNotLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, p := tunnel(t)
		require.NoError(t, c.SetWriteDeadline(time.Now().Add(time.Minute)))
		statement := []byte("INSERT")
		_, err := c.Write(statement) // nobody reads it yet
		require.NoError(t, err)
		copy(statement, "xxxxxx") // it is the caller's again
		_, err = c.Write([]byte(" lost"))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.EqualValues(t, 6, c.Sent())
		require.True(t, c.Cut())

		require.NoError(t, c.SetWriteDeadline(time.Time{}))
		second := make(chan error)
		go func() {
			_, err := c.Write([]byte(" quit"))
			second <- err
		}()
		got := make([]byte, 11)
		_, err = io.ReadFull(p, got)
		require.NoError(t, err)
		require.Equal(t, "INSERT quit", string(got))
		require.NoError(t, <-second)
	})
}

func TestNothingIsSentThroughATunnelThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, p := tunnel(t)
		p.Close()
		synctest.Wait()
		_, err := c.Write([]byte("INSERT"))
		require.ErrorIs(t, err, io.EOF)
		require.Zero(t, c.Sent(), "the statement can be executed on another connection")
	})
}

func TestAWriteThatFailsCountsAsSent(t *testing.T) {
	c, _, p := tunnel(t)
	_ = p.PipeReader.CloseWithError(errors.New("the tunnel is broken"))
	_, err := c.Write([]byte("INSERT"))
	require.NoError(t, err)
	require.EqualValues(t, 6, c.Sent(), "what a tunnel says of its failed writes is not trusted")
	_, err = c.Read(make([]byte, 1))
	require.ErrorContains(t, err, "the tunnel is broken")
}

func TestPeekSeesThatBytesWaitInATunnel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, p := tunnel(t)
		sight, _ := c.Peek()
		require.Equal(t, Quiet, sight)
		_, err := p.Write([]byte("Ebye"))
		require.NoError(t, err)
		synctest.Wait()
		for range 2 {
			sight, waiting := c.Peek()
			require.Equal(t, Readable, sight)
			require.Nil(t, waiting)
		}
		p.Close()
		got, err := io.ReadAll(c)
		require.NoError(t, err)
		require.Equal(t, "Ebye", string(got))
		sight, _ = c.Peek()
		require.Equal(t, Closed, sight)
	})
}

func TestPeekSeesTheEndOfATunnel(t *testing.T) {
	for _, test := range []struct {
		err   error
		ended bool // by the server, for all we know
	}{{io.EOF, true}, {io.ErrUnexpectedEOF, true}, {errors.New("the tunnel is broken"), false}} {
		t.Run(test.err.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _, p := tunnel(t)
				_ = p.PipeWriter.CloseWithError(test.err)
				synctest.Wait()
				for range 2 {
					sight, _ := c.Peek()
					require.Equal(t, Closed, sight)
				}
				require.Equal(t, test.ended, c.Ended())
			})
		})
	}
}

func TestCloseOfATunnelEndsWhatWaitsAlthoughTheTunnelStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, ch, p := tunnel(t)
		ch.closing = make(chan struct{})
		woken := make(chan error)
		go func() {
			_, err := c.Read(make([]byte, 1))
			woken <- err
		}()
		go func() {
			_, _ = c.Write([]byte("x"))
			_, err := c.Write([]byte("y"))
			woken <- err
		}()
		synctest.Wait()
		began := time.Now()
		require.NoError(t, c.Close())
		require.LessOrEqual(t, time.Since(began), endPatience)
		require.ErrorIs(t, <-woken, net.ErrClosed)
		require.ErrorIs(t, <-woken, net.ErrClosed)
		require.ErrorIs(t, c.Close(), net.ErrClosed)
		require.NoError(t, c.SetDeadline(time.Now().Add(time.Hour)))
		close(ch.closing)
		p.Close()
	})
}

func TestTheStreamOfATunnelEndsAfterWhatIsBeingWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, ch, p := tunnel(t)
		_, err := c.Write([]byte("half a statement"))
		require.NoError(t, err)
		require.NoError(t, c.CloseWrite(), "it does not wait for ever")
		synctest.Wait()
		select {
		case <-ch.ended:
			require.Fail(t, "a stream must not end in the middle of a Write")
		default:
		}
		got, err := io.ReadAll(p)
		require.NoError(t, err)
		require.Equal(t, "half a statement", string(got))
	})
}

func TestATunnelIsClosedGracefully(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, p := tunnel(t)
		go func() {
			_, _ = io.Copy(io.Discard, p) // until our end of stream
			time.Sleep(time.Minute)
			p.Close()
		}()
		_, err := c.Write([]byte("quit"))
		require.NoError(t, err)
		began := time.Now()
		c.EndGracefully(began.Add(time.Hour))
		require.NoError(t, c.Close())
		require.True(t, c.Ended())
		require.Equal(t, time.Minute, time.Since(began))
	})
}

func TestTLSGoesThroughATunnelAndSurvivesADeadline(t *testing.T) {
	a, b := net.Pipe()
	c := Dialled(a, "tcp", "db.internal:5432", 0)
	server := tls.Server(b, &tls.Config{Certificates: []tls.Certificate{certificate(t)}})
	client := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	var servers sync.WaitGroup
	servers.Go(func() { _, _ = io.Copy(server, server); _ = server.Close() })
	require.NoError(t, client.Handshake())
	require.Same(t, c, Of(client))
	require.NoError(t, client.SetReadDeadline(time.Unix(1, 0)))
	_, err := client.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, client.SetReadDeadline(time.Time{}))
	_, err = client.Write([]byte("secret"))
	require.NoError(t, err)
	got := make([]byte, 6)
	_, err = io.ReadFull(client, got)
	require.NoError(t, err)
	require.Equal(t, "secret", string(got))
	require.NoError(t, client.Close())
	servers.Wait()
}
