package mysql

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

// sealedPeer is a peer that has TLS of one version.
func sealedPeer(t *testing.T, version uint16) *peer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	p := newPeer(t)
	p.encrypts(&tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: version, MaxVersion: version})
	return p
}

func eachTLS(t *testing.T, test func(t *testing.T, p *peer)) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) { test(t, sealedPeer(t, version)) })
	}
}

// The driver keeps its connection to itself. When this fails, a new version of the driver has moved
// it, and lookInto has to follow.
func TestASessionUnderTLSIsCleanedInPlace(t *testing.T) {
	eachTLS(t, func(t *testing.T, p *peer) {
		s := p.dial(t, p.template(t, "tls=skip-verify"))
		require.IsType(t, &tls.Conn{}, s.carrier)
		for range 3 {
			require.NoError(t, execute(t.Context(), s.conn, "SET @a = 1"))
			_, err := s.Clean(t.Context(), dialects.Suspect)
			require.NoError(t, err)
			require.NoError(t, s.Ping(t.Context()), "the driver is in step with the server")
		}
		require.Equal(t, 3, count(p.said(), "reset"))
		require.NoError(t, s.Close(t.Context()))
		require.True(t, s.wire.Ended())
	})
}

func TestTheCarrierIsTheWireWhereTheServerHasNoTLS(t *testing.T) {
	p := newPeer(t)
	s := p.dial(t, p.template(t, "tls=preferred"))
	require.True(t, s.carrier == net.Conn(s.wire))
	_, err := s.Clean(t.Context(), dialects.Stateful)
	require.NoError(t, err)
	require.Equal(t, 1, count(p.said(), "reset"))
}

func TestOnlyTheDriversTLSOnOurWireIsTrusted(t *testing.T) {
	p := sealedPeer(t, tls.VersionTLS13)
	tmpl := p.template(t, "tls=skip-verify")
	s, other := p.dial(t, tmpl), p.dial(t, tmpl)
	srv := tmpl.servers[0]
	require.NotNil(t, srv.carrier(s.link, s.inner))
	for name, in := range map[string]inner{
		"another version of the driver":  {known: true},
		"the connection of another wire": other.inner,
		"something between":              {known: true, speaks: pipe{s.wire}},
		"TLS on something between":       {known: true, speaks: tls.Client(pipe{s.wire}, nil)},
	} {
		require.Nil(t, srv.carrier(s.link, in), name)
	}
	packed := p.template(t, "tls=skip-verify&compress=true")
	require.Nil(t, packed.servers[0].carrier(s.link, s.inner))
}

func TestWhatTLSHoldsUnreadEndsTheSession(t *testing.T) {
	eachTLS(t, func(t *testing.T, p *peer) {
		s := p.dial(t, p.template(t, "tls=skip-verify"))
		// A goodbye that comes in one segment with an answer: TLS takes it from the socket, and
		// the driver has not asked for it.
		p.answers(func(s *peerSession, _ string) reply {
			s.cork.in = true
			_, _ = s.send(1, s.okPacket(0)), s.send(1, errorPacket(1927))
			_ = s.cork.out()
			return reply{given: true}
		})
		require.NoError(t, execute(t.Context(), s.conn, "SELECT 1"))
		p.said()
		require.True(t, s.healthy(), "nothing shows it")
		_, err := s.Clean(t.Context(), dialects.Stateful)
		require.ErrorIs(t, err, errSpoke)
		require.Empty(t, p.said())
	})
}

func TestCleanUnderTLSIsBoundedByItsContext(t *testing.T) {
	eachTLS(t, func(t *testing.T, p *peer) { cleanIsBounded(t, p, "tls=skip-verify") })
}

func TestPeekUnderTLSDoesNotTakeATicketForAGoodbye(t *testing.T) {
	p := sealedPeer(t, tls.VersionTLS13)
	s := p.dial(t, p.template(t, "tls=skip-verify"))
	require.Equal(t, dialects.Alive, s.Peek())
	require.NoError(t, p.session(0).send(0, errorPacket(4031)))
	awaitNews(t, s)
	require.Equal(t, dialects.Unsure, s.Peek())
	require.Error(t, s.Ping(t.Context()))
}
