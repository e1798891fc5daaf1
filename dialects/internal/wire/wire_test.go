package wire

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair returns a wrapped connection and the peer it leads to.
func pair(t *testing.T, network string, keep int) (*Conn, net.Conn) {
	t.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, addr)
	require.NoError(t, err)
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		nc, _ := l.Accept()
		accepted <- nc
	}()
	nc, err := net.Dial(network, l.Addr().String())
	require.NoError(t, err)
	peer := <-accepted
	require.NotNil(t, peer)
	c := New(nc, keep)
	t.Cleanup(func() { _ = c.Close(); _ = peer.Close() })
	return c, peer
}

func eachNetwork(t *testing.T, f func(t *testing.T, network string)) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) { f(t, network) })
	}
}

func TestSentCountsWhatWasHandedToTheNetwork(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		c, peer := pair(t, network, 0)
		require.Zero(t, c.Sent())
		_, err := c.Write([]byte("hello"))
		require.NoError(t, err)
		require.Equal(t, uint64(5), c.Sent())

		require.NoError(t, c.SetWriteDeadline(time.Unix(1, 0)))
		_, err = c.Write([]byte("never sent"))
		require.Error(t, err)
		require.Equal(t, uint64(5), c.Sent(), "a write that failed before its first byte counts nothing")

		got := make([]byte, 5)
		_, err = io.ReadFull(peer, got)
		require.NoError(t, err)
		require.Equal(t, "hello", string(got))
	})
}

func TestAWriteThatFailsIsRemembered(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		c, _ := pair(t, network, 0)
		_, err := c.Write([]byte("hello"))
		require.NoError(t, err)
		require.False(t, c.Cut())
		require.NoError(t, c.SetWriteDeadline(time.Unix(1, 0)))
		_, err = c.Write([]byte("the rest"))
		require.Error(t, err)
		require.NoError(t, c.SetWriteDeadline(time.Time{}))
		require.True(t, c.Cut())
	})
}

func TestTheEndOfTheStreamThatIsOursIsNotThePeers(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		c, peer := pair(t, network, 0)
		require.NoError(t, c.CloseWrite())
		_, err := c.Write([]byte("goodbye"))
		require.Error(t, err)
		require.False(t, c.Ended())
		require.NoError(t, peer.Close())
		_, err = c.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.True(t, c.Ended())
	})
}

func TestHeadKeepsTheFirstBytesAndNoMore(t *testing.T) {
	c, peer := pair(t, "tcp", 6)
	_, err := peer.Write([]byte("greeting"))
	require.NoError(t, err)
	got := make([]byte, 4)
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	require.Equal(t, "gree", string(c.Head()))
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	require.Equal(t, "ting", string(got))
	require.Equal(t, "greeti", string(c.Head()))
}

func TestPeekAfterCloseIsClosed(t *testing.T) {
	c, _ := pair(t, "tcp", 0)
	require.NoError(t, c.Close())
	sight, _ := c.Peek()
	require.Equal(t, Closed, sight)
	require.False(t, c.Ended(), "it was not the peer")
}

func TestPeekOfAConnectionWithoutSocketIsQuiet(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	c := New(a, 0)
	defer c.Close()
	sight, _ := c.Peek()
	require.Equal(t, Quiet, sight)
}

func TestReadAndWriteNoticeThatThePeerHungUp(t *testing.T) {
	t.Run("eof", func(t *testing.T) {
		c, peer := pair(t, "tcp", 0)
		require.NoError(t, peer.Close())
		_, err := c.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.True(t, c.Ended())
	})
	t.Run("write", func(t *testing.T) {
		c, peer := pair(t, "unix", 0)
		require.NoError(t, peer.Close())
		_, err := c.Write([]byte("x"))
		require.Error(t, err)
		require.True(t, c.Ended())
	})
	t.Run("timeout", func(t *testing.T) {
		c, _ := pair(t, "tcp", 0)
		require.NoError(t, c.SetReadDeadline(time.Unix(1, 0)))
		_, err := c.Read(make([]byte, 1))
		require.Error(t, err)
		require.False(t, c.Ended())
	})
}

func TestCloseWakesAReaderAtOnce(t *testing.T) {
	c, _ := pair(t, "tcp", 0)
	woken := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		woken <- err
	}()
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-woken, net.ErrClosed)
	require.False(t, c.Ended())
}

func TestGracefulCloseReturnsWhenThePeerHasClosed(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		c, peer := pair(t, network, 0)
		order := make(chan string, 2)
		var peers sync.WaitGroup
		peers.Go(func() {
			_, _ = io.Copy(io.Discard, peer) // until our end of stream
			_, _ = peer.Write([]byte("last words"))
			order <- "peer"
			_ = peer.Close()
		})
		_, err := c.Write([]byte("quit"))
		require.NoError(t, err)
		c.EndGracefully(time.Now().Add(time.Minute))
		require.NoError(t, c.Close())
		order <- "we"
		require.True(t, c.Ended())
		require.Equal(t, "peer", <-order)
		peers.Wait()
	})
}

func TestGracefulCloseGivesUpAtItsDeadline(t *testing.T) {
	c, _ := pair(t, "tcp", 0)
	c.EndGracefully(time.Now())
	require.NoError(t, c.Close())
	require.False(t, c.Ended())
}

func TestSecondCloseCutsAGracefulOneShort(t *testing.T) {
	c, peer := pair(t, "tcp", 0)
	c.EndGracefully(time.Now().Add(time.Hour))
	first := make(chan error, 1)
	go func() { first <- c.Close() }()
	_, err := peer.Read(make([]byte, 1)) // the first Close waits from here on
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-first, net.ErrClosed)
	require.False(t, c.Ended())
}

func TestWhereTheStreamCannotBeEndedTheGoodbyeIsAwaited(t *testing.T) {
	a, b := net.Pipe()
	c := New(a, 0)
	require.ErrorIs(t, c.CloseWrite(), errors.ErrUnsupported)
	var peers sync.WaitGroup
	peers.Go(func() {
		_, _ = io.ReadFull(b, make([]byte, len("quit")))
		_, _ = b.Write([]byte("last words"))
		_ = b.Close()
	})
	_, err := c.Write([]byte("quit"))
	require.NoError(t, err)
	c.EndGracefully(time.Now().Add(time.Hour))
	require.NoError(t, c.Close())
	require.True(t, c.Ended())
	peers.Wait()
}

func TestWhereTheGoodbyeWasCutNothingIsAwaited(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	c := New(a, 0)
	require.NoError(t, c.SetWriteDeadline(time.Unix(1, 0)))
	_, err := c.Write([]byte("quit"))
	require.Error(t, err)
	c.EndGracefully(time.Now().Add(time.Hour))
	require.NoError(t, c.Close(), "there is nothing to wait for")
	require.False(t, c.Ended())
}

func TestOfFindsTheConnUnderTLS(t *testing.T) {
	c, peer := pair(t, "tcp", 0)
	require.Same(t, c, Of(c))
	require.Nil(t, Of(nil))
	require.Nil(t, Of(peer))

	server := tls.Server(peer, &tls.Config{Certificates: []tls.Certificate{certificate(t)}})
	client := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	var servers sync.WaitGroup
	servers.Go(func() { _, _ = io.Copy(server, server); _ = server.Close() })
	require.NoError(t, client.Handshake())
	require.Same(t, c, Of(client))
	before := c.Sent()
	_, err := client.Write([]byte("secret"))
	require.NoError(t, err)
	require.Greater(t, c.Sent(), before+6)
	got := make([]byte, 6)
	_, err = io.ReadFull(client, got)
	require.NoError(t, err)
	require.Equal(t, "secret", string(got))

	c.EndGracefully(time.Now().Add(time.Minute))
	require.NoError(t, client.Close())
	require.True(t, c.Ended())
	servers.Wait()
}

func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestWhatWasReadJustNowIsFreshUnlessThePeerHasHungUp(t *testing.T) {
	c, _ := pair(t, "tcp", 0)
	now := func() int64 { return int64(time.Since(start)) }
	c.listened.Store(now() + int64(time.Hour))
	require.True(t, c.Fresh())
	c.ended.Store(true)
	require.False(t, c.Fresh())
	c.ended.Store(false)
	c.listened.Store(now() - int64(freshFor))
	require.False(t, c.Fresh())
}
