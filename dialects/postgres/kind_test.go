package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

// TestACockroachIsCleanedInItsOwnWords: by a login that reports its version.
func TestACockroachIsCleanedInItsOwnWords(t *testing.T) {
	for version, want := range map[string][]string{
		"CockroachDB CCL v25.1.2 (x86_64-pc-linux-gnu, built 2025/03/12, go1.22.8)": {"DISCARD ALL"},
		"CockroachDB CCL v23.1.0 (aarch64-unknown-linux-gnu)":                       {"DISCARD ALL"},
		"CockroachDB CCL v22.2.19 (x86_64-pc-linux-gnu)":                            nil,
		"something newer": nil,
	} {
		srv := newServer(t)
		srv.letGo()
		srv.becomes(map[string]string{"crdb_version": version, "default_transaction_read_only": "off"})
		s, _ := srv.dial(t)
		kept, err := s.Clean(t.Context(), dialects.Stateful)
		require.False(t, kept, "its prepared statements are gone")
		if want == nil {
			require.ErrorIs(t, err, dialects.ErrCannotClean, version)
		} else {
			require.NoError(t, err, version)
			require.Equal(t, want, srv.queries[:1], version)
		}
		require.NoError(t, s.Close(t.Context()))
	}
}

func TestAServerThatReportsNothingElseIsPostgreSQL(t *testing.T) {
	none := func(string) string { return "" }
	require.Equal(t, postgres{}, kindOf(none))
	text, kept := kindOf(none).cleaning(dialects.Stateful)
	require.Contains(t, text, "UNLISTEN *")
	require.True(t, kept)
}
