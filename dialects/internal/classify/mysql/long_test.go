package mysql

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

// TestALongStatementIsReadOnce: what was met at its beginning counts, and what was forgotten is not taken for clean.
func TestALongStatementIsReadOnce(t *testing.T) {
	many := strings.Repeat("1, ", 1000)
	for text, want := range map[string]dialects.Effect{
		"INSERT INTO t VALUES (" + many + "1)":               dialects.Clean,
		"SELECT f(1), " + many + "1":                         dialects.Suspect,
		"SELECT " + many + "GET_LOCK('a', 1), " + many + "1": dialects.Stateful,
		"CALL p(@out, " + many + "1)":                        dialects.Suspect | dialects.Stateful | dialects.TxControl,
		"SET GLOBAL a = f(1) + g(" + many + "1), b = 1":      dialects.Stateful | dialects.TxControl | dialects.ForgetPrepared | dialects.Rereads,
	} {
		require.Equal(t, want, Classify(text), text[:30])
	}
	require.True(t, Classify("SET GLOBAL a = f(1) + "+strings.Repeat("1 + ", 1000)+"1").Dirty())
	require.True(t, Texts{}.OnlyReads("SELECT "+many+"1"))
	require.False(t, Texts{}.OnlyReads("SELECT "+many+"LAST_INSERT_ID(), "+many+"1"))
}
