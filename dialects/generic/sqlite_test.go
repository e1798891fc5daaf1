package generic

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects/internal/classify"
)

func TestAnUnknownDriversKeyIsRefused(t *testing.T) {
	for text, refused := range map[string]bool{
		"PRAGMA key = 'a'": true, "pragma hexkey('aa')": true, "PRAGMA journal_mode = WAL; PRAGMA main.key = 1": true,
		"PRAGMA foreign_keys = 1": false, "SELECT key FROM t": false, "SELECT 'pragma key = 1'": false,
	} {
		settings, _, _ := Dialect{}.Settings(text)
		require.Equal(t, refused, len(settings) == 1, text)
		if refused {
			require.ErrorIs(t, settings[0].Refusal, classify.ErrKey)
		}
	}
}
