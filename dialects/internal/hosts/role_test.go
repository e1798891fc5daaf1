package hosts

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pooldriver/pooldriver/dialects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	primary  = Server{}
	frozen   = Server{ReadOnly: true} // a primary with default_transaction_read_only
	standby  = Server{Standby: true, ReadOnly: true}
	unready  = Server{NotReady: true}
	allRoles = []Role{Any, ReadWrite, ReadOnly, Primary, Standby, PreferStandby}
)

func TestARoleIsKnownByItsWord(t *testing.T) {
	for _, role := range allRoles {
		got, ok := ParseRole(role.String())
		require.True(t, ok)
		require.Equal(t, role, got)
	}
	_, ok := ParseRole("master")
	require.False(t, ok)
	require.Equal(t, "any, read-write, read-only, primary, standby, prefer-standby", RoleNames())
	require.Equal(t, "invalid", Role(99).String())
}

func TestWhatFitsIsWhatLibpqSays(t *testing.T) {
	for _, c := range []struct {
		server Server
		want   [6]Fit // in the order of allRoles
	}{
		{primary, [6]Fit{Fits, Fits, Unfit, Fits, Unfit, Second}},
		{frozen, [6]Fit{Fits, Unfit, Fits, Fits, Unfit, Second}},
		{standby, [6]Fit{Fits, Unfit, Fits, Unfit, Fits, Fits}},
		{unready, [6]Fit{}},
		{Server{Standby: true, NotReady: true}, [6]Fit{}},
	} {
		for i, role := range allRoles {
			require.Equal(t, c.want[i], role.Of(c.server), "%v for %v", c.server, role)
		}
	}
}

func TestARefusalSaysWhatTheServerIsAndWhatWasAskedFor(t *testing.T) {
	err := ReadWrite.Refuse(standby)
	require.ErrorIs(t, err, dialects.ErrWrongRole)
	require.EqualError(t, err, "the server is a standby, and target_session_attrs=read-write asks for another")
	require.EqualError(t, ReadOnly.Refuse(primary), "the server is a primary that takes writes, and target_session_attrs=read-only asks for another")
	require.EqualError(t, ReadWrite.Refuse(frozen), "the server is read-only, and target_session_attrs=read-write asks for another")
	require.EqualError(t, Any.Refuse(unready), "the server is a cluster's node that is not ready")
}

func TestASessionStaysWhereItsServerStillDoes(t *testing.T) {
	for _, c := range []struct {
		role      Role
		then, now Server
		wrong     bool
	}{
		{Any, primary, primary, false},
		{Any, primary, standby, true}, // the address has moved, or the server
		{Any, primary, frozen, true},
		{Any, standby, standby, false}, // it never took writes
		{Any, frozen, standby, false},
		{Any, standby, primary, false},
		{Any, primary, unready, true},
		{ReadWrite, primary, primary, false},
		{ReadWrite, primary, standby, true},
		{ReadWrite, primary, frozen, true},
		{ReadOnly, standby, primary, true},
		{Primary, primary, frozen, false},
		{Standby, standby, primary, true},
		{PreferStandby, standby, standby, false},
		{PreferStandby, standby, primary, true},
		{PreferStandby, primary, primary, false}, // a second choice, as before
		{PreferStandby, primary, standby, false},
		{PreferStandby, primary, unready, true},
	} {
		err := c.role.Still(c.then, c.now)
		if c.wrong {
			require.ErrorIs(t, err, dialects.ErrWrongRole, "%v: %v, now %v", c.role, c.then, c.now)
		} else {
			require.NoError(t, err, "%v: %v, now %v", c.role, c.then, c.now)
		}
	}
}
