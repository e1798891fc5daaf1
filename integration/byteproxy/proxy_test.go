package byteproxy_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pooldriver/pooldriver/integration/byteproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what must happen soon; a test that needs it has failed.
const patience = 30 * time.Second

// bed is a client and a server with the proxy between them.
type bed struct {
	listener       net.Listener
	proxy          *byteproxy.Proxy
	client, server *net.TCPConn
}

func newBed(t *testing.T) bed {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	proxy, err := byteproxy.Listen(listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	b := bed{listener: listener, proxy: proxy}
	b.client, b.server = b.dial(t)
	return b
}

func (b bed) dial(t *testing.T) (client, server *net.TCPConn) {
	t.Helper()
	var ends [2]*net.TCPConn
	for i, open := range []func() (net.Conn, error){
		func() (net.Conn, error) { return net.Dial("tcp", b.proxy.Addr()) },
		b.listener.Accept,
	} {
		conn, err := open()
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		ends[i] = conn.(*net.TCPConn)
	}
	return ends[0], ends[1]
}

// ends returns who writes and who reads in that direction.
func (b bed) ends(d byteproxy.Direction) (writer, reader *net.TCPConn) {
	if d == byteproxy.ToServer {
		return b.client, b.server
	}
	return b.server, b.client
}

// exchange passes text one way, so that what was counted before is counted.
func exchange(t *testing.T, from, to net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(from, text)
	require.NoError(t, err)
	got := make([]byte, len(text))
	_, err = io.ReadFull(to, got)
	require.NoError(t, err)
	require.Equal(t, text, string(got))
}

func awaitStruck(t *testing.T, struck <-chan struct{}) {
	t.Helper()
	select {
	case <-struck:
	case <-time.After(patience):
		require.Fail(t, "the fault did not strike")
	}
}

func TestProxyPassesBothWaysUnchangedAndCounts(t *testing.T) {
	b := newBed(t)
	b.proxy.Count()
	payload := make([]byte, 1<<20)
	for i := range payload {
		payload[i] = byte(rand.Uint32())
	}
	for _, d := range []byteproxy.Direction{byteproxy.ToServer, byteproxy.ToClient} {
		writer, reader := b.ends(d)
		written := make(chan error, 1)
		go func() {
			_, err := writer.Write(payload)
			written <- errors.Join(err, writer.CloseWrite())
		}()
		got, err := io.ReadAll(reader)
		require.NoError(t, err)
		require.NoError(t, <-written)
		require.True(t, bytes.Equal(payload, got))
	}
	toServer, toClient := b.proxy.Counted()
	require.Equal(t, int64(len(payload)), toServer)
	require.Equal(t, int64(len(payload)), toClient)
}

func TestFullPipeOneWayDoesNotHoldUpTheOther(t *testing.T) {
	b := newBed(t)
	stuck := make(chan error, 1)
	go func() { // The server never reads: the proxy's way to it fills up.
		_, err := b.client.Write(make([]byte, 64<<20))
		stuck <- err
	}()
	require.Eventually(t, func() bool {
		before, _ := b.proxy.Counted()
		select {
		case <-time.After(20 * time.Millisecond):
		case <-t.Context().Done():
		}
		after, _ := b.proxy.Counted()
		return after > 0 && after == before
	}, patience, time.Millisecond)
	exchange(t, b.server, b.client, "still here")
	require.NoError(t, b.server.Close())
	require.Error(t, <-stuck)
}

func TestCutLetsExactlyTheArmedNumberOfBytesArrive(t *testing.T) {
	for _, cut := range []byteproxy.Cut{byteproxy.Reset, byteproxy.Finish} {
		for _, d := range []byteproxy.Direction{byteproxy.ToServer, byteproxy.ToClient} {
			for _, at := range []int64{0, 1, 4095, 32 << 10, 32<<10 + 1, 99_999, 100_000} {
				fault := byteproxy.Fault{Direction: d, At: at, Cut: cut}
				t.Run(fault.String(), func(t *testing.T) {
					b := newBed(t)
					writer, reader := b.ends(d)
					exchange(t, b.client, b.server, "greeting")
					exchange(t, b.server, b.client, "answer")

					struck := b.proxy.Arm(fault)
					written := make(chan struct{})
					go func() {
						defer close(written)
						_, _ = writer.Write(make([]byte, 100_000))
					}()
					got, err := io.ReadAll(reader)
					require.Equal(t, at, int64(len(got)))
					if cut == byteproxy.Reset {
						require.ErrorIs(t, err, syscall.ECONNRESET)
					} else {
						require.NoError(t, err)
					}
					awaitStruck(t, struck)
					require.False(t, b.proxy.Disarm())

					// The writer's side ends in the same way.
					<-written
					_, err = io.ReadAll(writer)
					if cut == byteproxy.Reset {
						require.ErrorIs(t, err, syscall.ECONNRESET)
					} else {
						require.NoError(t, err)
					}
				})
			}
		}
	}
}

func TestStallIsSilentUntilTheProxyCloses(t *testing.T) {
	b := newBed(t)
	struck := b.proxy.Arm(byteproxy.Fault{Direction: byteproxy.ToServer, At: 3, Cut: byteproxy.Stall})
	_, err := io.WriteString(b.client, "hello")
	require.NoError(t, err)
	got := make([]byte, 3)
	_, err = io.ReadFull(b.server, got)
	require.NoError(t, err)
	require.Equal(t, "hel", string(got))
	awaitStruck(t, struck)

	_, err = io.WriteString(b.server, "anybody?")
	require.NoError(t, err)
	for _, conn := range []net.Conn{b.client, b.server} {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(30*time.Millisecond)))
		_, err := conn.Read(make([]byte, 1))
		var timeout net.Error
		require.ErrorAs(t, err, &timeout)
		require.True(t, timeout.Timeout())
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	}
	require.NoError(t, b.proxy.Close())
	_, err = io.ReadAll(b.client)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestFaultStrikesOnlyTheConnectionThatCarriesItsByte(t *testing.T) {
	b := newBed(t)
	other, otherServer := b.dial(t)
	b.proxy.Arm(byteproxy.Fault{Direction: byteproxy.ToClient, At: 4})
	exchange(t, b.client, b.server, "the other direction does not count")
	_, err := io.WriteString(b.server, "12345")
	require.NoError(t, err)
	_, err = io.ReadAll(b.client)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	exchange(t, otherServer, other, "not struck")
}

func TestDisarmedFaultDoesNotStrike(t *testing.T) {
	b := newBed(t)
	b.proxy.Arm(byteproxy.Fault{Direction: byteproxy.ToServer, At: 3})
	require.True(t, b.proxy.Disarm())
	exchange(t, b.client, b.server, "hello")
}

func TestResetOfOneSideReachesTheOther(t *testing.T) {
	b := newBed(t)
	exchange(t, b.client, b.server, "hello")
	require.NoError(t, b.server.SetLinger(0))
	require.NoError(t, b.server.Close())
	_, err := b.client.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestUnreachableServerResetsTheClient(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	proxy, err := byteproxy.Listen(listener.Addr().String())
	require.NoError(t, err)
	defer proxy.Close()
	client, err := net.Dial("tcp", proxy.Addr())
	if err == nil { // The reset may already meet the dial.
		defer client.Close()
		_, err = client.Read(make([]byte, 1))
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestLatencyDelaysItsDirectionOnly(t *testing.T) {
	const latency = 60 * time.Millisecond
	b := newBed(t)
	b.proxy.SetLatency(byteproxy.ToClient, latency)
	start := time.Now()
	exchange(t, b.server, b.client, "late")
	require.GreaterOrEqual(t, time.Since(start), latency)
	b.proxy.SetLatency(byteproxy.ToClient, 0)
	b.proxy.SetLatency(byteproxy.ToServer, time.Hour)
	exchange(t, b.server, b.client, "at once")
}

func TestAnswersAreHeldUntilAClientSends(t *testing.T) {
	b := newBed(t)
	exchange(t, b.client, b.server, "hello")
	b.proxy.HoldAnswers()
	_, err := io.WriteString(b.server, "goodbye")
	require.NoError(t, err)
	require.NoError(t, b.client.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = b.client.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, b.client.SetReadDeadline(time.Now().Add(patience)))
	exchange(t, b.client, b.server, "are you there?")
	got := make([]byte, len("goodbye"))
	_, err = io.ReadFull(b.client, got)
	require.NoError(t, err)
	require.Equal(t, "goodbye", string(got))
	exchange(t, b.server, b.client, "at once")
}

func TestRefuseResetsAllConnectionsUntilServe(t *testing.T) {
	b := newBed(t)
	exchange(t, b.client, b.server, "hello")
	b.proxy.Refuse()
	_, err := b.client.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	refused, err := net.Dial("tcp", b.proxy.Addr())
	if err == nil { // The reset may already meet the dial.
		defer refused.Close()
		_, err = refused.Read(make([]byte, 1))
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
	b.proxy.Serve()
	gone, err := b.listener.Accept() // the proxy's, of the one that was refused
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	client, server := b.dial(t)
	exchange(t, client, server, "served")
}

func TestNothingPassesUntilTheCableIsBack(t *testing.T) {
	b := newBed(t)
	exchange(t, b.client, b.server, "before")
	b.proxy.Unplug()
	later, laterServer := b.dial(t)
	for _, way := range [][2]*net.TCPConn{{b.client, b.server}, {b.server, b.client}, {later, laterServer}} {
		_, err := io.WriteString(way[0], "meanwhile")
		require.NoError(t, err)
		require.NoError(t, way[1].SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		_, err = way[1].Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, way[1].SetReadDeadline(time.Now().Add(patience)))
	}
	b.proxy.Plug()
	for _, reader := range []net.Conn{b.server, b.client, laterServer} {
		got := make([]byte, len("meanwhile"))
		_, err := io.ReadFull(reader, got)
		require.NoError(t, err)
		require.Equal(t, "meanwhile", string(got))
	}
	exchange(t, b.server, b.client, "after")
}

func TestOnlyLargeAnswersAreLost(t *testing.T) {
	b := newBed(t)
	b.proxy.LoseAbove(100)
	exchange(t, b.client, b.server, strings.Repeat("x", 200))
	exchange(t, b.server, b.client, "small")
	for _, text := range []string{strings.Repeat("x", 200), "small"} {
		_, err := io.WriteString(b.server, text)
		require.NoError(t, err)
		require.NoError(t, b.client.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		_, err = b.client.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	}
	require.NoError(t, b.client.CloseWrite())
	_, err := b.server.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the server is told that its client has gone")
}
