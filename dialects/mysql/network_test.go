package mysql

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

// pipe is a connection that shows nothing of its socket.
type pipe struct{ hidden }

// hidden as a field's name is not exported, so nobody finds the socket by it.
type hidden = net.Conn

// tunnelled is a template whose program dials p, under whatever name, and what it was
// asked for.
func tunnelled(t *testing.T, p *peer, dsn string) (tmpl *template, asked func() []string) {
	t.Helper()
	tmpl, err := parse(dsn)
	require.NoError(t, err)
	calls := make(chan string, 10)
	tmpl.DialNetworkBy(func(ctx context.Context, network, address string) (net.Conn, error) {
		calls <- network + " " + address
		var d net.Dialer
		nc, err := d.DialContext(ctx, "tcp", p.l.Addr().String())
		return pipe{nc}, err
	})
	return tmpl, func() (all []string) {
		for len(calls) > 0 {
			all = append(all, <-calls)
		}
		return all
	}
}

func TestASessionOfAProgramsNetworkIsCleanedInPlace(t *testing.T) {
	p := newPeer(t)
	tmpl, asked := tunnelled(t, p, "mysql:app:secret@cloud(project:region:instance)/app")
	s := p.dial(t, tmpl)
	require.Equal(t, []string{"cloud project:region:instance"}, asked())
	require.EqualValues(t, peerFirstID, s.thread, "the greeting was read")
	_, counted := s.Sent()
	require.True(t, counted)
	_ = p.said()
	_, err := s.Clean(t.Context(), dialects.Suspect)
	require.NoError(t, err)
	require.Contains(t, p.said(), "reset")
	require.NoError(t, s.Close(t.Context()))
	require.Contains(t, p.said(), "quit")
}

func TestTheKillerAsksTheProgramForTheSameAddress(t *testing.T) {
	p := newPeer(t)
	tmpl, asked := tunnelled(t, p, "mysql://app:secret@db.invalid:4711/app")
	s := p.dial(t, tmpl)
	l, err := tmpl.dialKiller(t.Context(), tmpl.servers[0], s.asVictim().remote, s.login)
	require.NoError(t, err)
	l.drop()
	require.Equal(t, []string{"tcp db.invalid:4711", "tcp db.invalid:4711"}, asked())
}

func TestATunnelThatWasIdleForLongIsPinged(t *testing.T) {
	p := newPeer(t)
	tmpl, _ := tunnelled(t, p, "mysql://app:secret@db.invalid/app")
	tunnel, socket := p.dial(t, tmpl), p.dial(t, p.template(t, ""))
	if seen := tunnel.Peek(); tunnel.wire.Idle() < askAfter { // else the machine stood still
		require.Equal(t, dialects.Alive, seen)
	}
	require.Eventually(t, func() bool { return tunnel.wire.Idle() > askAfter && socket.wire.Idle() > askAfter }, time.Minute, 10*time.Millisecond)
	require.Equal(t, dialects.Unsure, tunnel.Peek())
	require.Equal(t, dialects.Alive, socket.Peek())
	require.Eventually(t, func() bool {
		require.NoError(t, tunnel.Ping(t.Context()))
		return tunnel.Peek() == dialects.Alive
	}, time.Minute, time.Millisecond)
}
