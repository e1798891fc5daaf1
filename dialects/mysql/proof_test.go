package mysql

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

func TestAResetIsBelievedWhereItWasSeenToWork(t *testing.T) {
	p := newPeer(t)
	tmpl, err := parse(p.dsn("app:secret", ""))
	require.NoError(t, err)
	p.answers(func(_ *peerSession, q string) reply {
		if strings.HasPrefix(q, "SELECT @pooldriver_reset") {
			return reply{rows: [][]any{{nil}}}
		}
		return reply{}
	})
	for _, looks := range []int{2, 0, 0} { // once for each version
		s := p.dial(t, tmpl)
		p.said()
		_, err := s.Clean(t.Context(), dialects.Stateful)
		require.NoError(t, err)
		require.Len(t, p.said(), 2+looks)
	}
}

func TestAResetThatResetsNothingIsNoCleaning(t *testing.T) {
	p := newPeer(t)
	tmpl, err := parse(p.dsn("app:secret", ""))
	require.NoError(t, err)
	p.answers(func(_ *peerSession, q string) reply {
		if strings.HasPrefix(q, "SELECT @pooldriver_reset") {
			return reply{rows: [][]any{{"1"}}}
		}
		return reply{}
	})
	for _, tries := range []bool{true, false, false} {
		s := p.dial(t, tmpl)
		p.said()
		_, err := s.Clean(t.Context(), dialects.Stateful)
		require.ErrorIs(t, err, dialects.ErrCannotClean)
		require.ErrorIs(t, err, errKeepsState)
		require.Equal(t, tries, len(p.said()) > 0, "nothing is sent where it is known")
	}
}
