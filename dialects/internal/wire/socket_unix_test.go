//go:build unix && !aix

package wire

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// arrive blocks until something has arrived at c, or the end of the stream,
// and leaves it there: loopback delivers soon, but not at once.
func arrive(t *testing.T, c *Conn) (Sight, []byte) {
	t.Helper()
	first := true
	require.NoError(t, c.raw.Read(func(uintptr) bool {
		if first { // not yet waited for the poller
			first = false
			sight, _ := c.look()
			return sight != Quiet
		}
		return true
	}))
	return c.Peek()
}

func TestPeekOfAQuietConnectionIsQuietAlsoAfterAnExpiredDeadline(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		c, _ := pair(t, network, 0)
		require.NoError(t, c.SetReadDeadline(time.Unix(1, 0)))
		sight, waiting := c.Peek()
		require.Equal(t, Quiet, sight)
		require.Empty(t, waiting)
		require.False(t, c.Ended())
	})
}

func TestPeekShowsWhatWaitsAndLeavesItThere(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		c, peer := pair(t, network, 0)
		_, err := peer.Write([]byte("Ebye"))
		require.NoError(t, err)
		sight, waiting := arrive(t, c)
		require.Equal(t, Readable, sight)
		require.Equal(t, "Ebye", string(waiting))
		got := make([]byte, 4)
		_, err = io.ReadFull(c, got)
		require.NoError(t, err)
		require.Equal(t, "Ebye", string(got))
		sight, _ = c.Peek()
		require.Equal(t, Quiet, sight)
	})
}

func TestPeekNoticesThatThePeerHungUp(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		c, peer := pair(t, network, 0)
		require.NoError(t, peer.Close())
		sight, _ := arrive(t, c)
		require.Equal(t, Closed, sight)
		require.True(t, c.Ended())
	})
}

func TestPeekRemembersAReset(t *testing.T) {
	c, peer := pair(t, "tcp", 0)
	require.NoError(t, peer.(*net.TCPConn).SetLinger(0))
	require.NoError(t, peer.Close())
	for range 3 {
		sight, _ := arrive(t, c)
		require.Equal(t, Closed, sight)
	}
	require.True(t, c.Ended())
}

func TestPeekOfAQuietConnectionAllocatesNothing(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		c, _ := pair(t, network, 0)
		require.Zero(t, testing.AllocsPerRun(100, func() { c.Peek() }))
	})
}

func BenchmarkPeek(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer l.Close()
	nc, err := net.Dial("tcp", l.Addr().String())
	require.NoError(b, err)
	c := New(nc, 0)
	defer c.Close()
	b.ReportAllocs()
	for b.Loop() {
		c.Peek()
	}
}

// TestASocketBelowAWrapperIsLookedAt: TLS of a connector for a cloud, whose own deadlines do nothing.
func TestASocketBelowAWrapperIsLookedAt(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		plain, far := pair(t, network, 0)
		server := tls.Server(far, &tls.Config{Certificates: []tls.Certificate{certificate(t)}})
		sealed := tls.Client(plain.NetConn(), &tls.Config{InsecureSkipVerify: true})
		var handshake sync.WaitGroup
		handshake.Go(func() { _ = server.Handshake() })
		require.NoError(t, sealed.Handshake())
		handshake.Wait()

		c := Dialled(&timeless{sealed}, network, "db.internal:5432", 0)
		require.True(t, c.OnSocket())
		require.Equal(t, "db.internal:5432", c.RemoteAddr().String())
		_, err := server.Write([]byte("hello")) // TLS 1.3 sends its tickets with it
		require.NoError(t, err)
		got := make([]byte, 5)
		_, err = io.ReadFull(c, got)
		require.NoError(t, err)
		require.Equal(t, "hello", string(got))
		sight, _ := c.Peek()
		require.Equal(t, Quiet, sight)

		require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
		_, err = c.Read(got)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, c.SetReadDeadline(time.Time{}))

		_, err = server.Write([]byte("bye"))
		require.NoError(t, err)
		sight, waiting := arrive(t, c)
		require.Equal(t, Readable, sight)
		require.Nil(t, waiting, "what waits is sealed")
		n, err := c.Read(got)
		require.NoError(t, err)
		require.Equal(t, "bye", string(got[:n]))

		require.NoError(t, far.Close())
		sight, _ = arrive(t, c)
		require.Equal(t, Closed, sight)
		c.Sever()
		_, err = c.Write([]byte("too late"))
		require.Error(t, err)
		require.EqualValues(t, len("too late"), c.Sent(), "a wrapper may have sent it")
	})
}

// timeless is a wrapper without deadlines.
type timeless struct{ net.Conn }

func (timeless) SetDeadline(time.Time) error      { return errNoDeadline }
func (timeless) SetReadDeadline(time.Time) error  { return errNoDeadline }
func (timeless) SetWriteDeadline(time.Time) error { return errNoDeadline }
