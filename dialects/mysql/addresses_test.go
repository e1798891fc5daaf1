package mysql

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/testing/dialtest"
)

// TestTheOtherAddressesOfAnOnlyNameAreReachedWhereOneIsSilent: the name is that
// of two addresses of one port, of which the dialer reaches the silent one.
func TestTheOtherAddressesOfAnOnlyNameAreReachedWhereOneIsSilent(t *testing.T) {
	peers, list := newPeers(t, writable)
	_, port, err := net.SplitHostPort(list)
	require.NoError(t, err)
	tmpl := parseList(t, "127.0.0.2:"+port, "")
	silent, err := net.Listen("tcp", "127.0.0.2:"+port) // its connections wait to be accepted
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	before := lookup
	defer func() { lookup = before }()
	lookup = func(context.Context, string) ([]string, error) { return []string{"127.0.0.2", "127.0.0.1"}, nil }
	s, _ := dialtest.Within(t, tmpl, time.Second, func() { peers[0].said() })
	require.Equal(t, list, s.(*session).wire.RemoteAddr().String())
	require.Equal(t, 1, count(peers[0].said(), "login"))
	require.NoError(t, s.Close(t.Context()))

	lookup = func(context.Context, string) ([]string, error) { return []string{"127.0.0.2"}, nil }
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = tmpl.Dial(ctx, nil)
	require.Error(t, err)
}

func TestWhatAServerRepeatsInsteadOfASettingIsNotShown(t *testing.T) {
	_, list := newPeers(t, [][]any{{"read_only", "ON"}, {secret, "ON"}})
	_, err := parseList(t, list, "target_session_attrs=primary").Dial(t.Context(), nil)
	require.ErrorContains(t, err, "read-only (read_only)")
	require.NotContains(t, shown(err), secret)
}
