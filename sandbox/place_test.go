package sandbox

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestTheHashIsThatOfFilesAndVersion(t *testing.T) {
	t.Parallel()
	hash := func(m Migration) string {
		h, err := m.hash()
		require.NoError(t, err)
		return h
	}
	files := func(content string) fstest.MapFS { return fstest.MapFS{"a/1.sql": {Data: []byte(content)}} }
	require.Equal(t, hash(Migration{Files: files("x")}), hash(Migration{Files: files("x")}))
	seen := map[string]bool{}
	for _, m := range []Migration{{}, {Version: "1"}, {Version: "2"}, {Files: files("x")}, {Files: files("y")}, {Files: files("x"), Version: "1"}} {
		require.False(t, seen[hash(m)], "%v", m)
		seen[hash(m)] = true
	}
	require.Equal(t, keepBinaryTemplate, Migration{}.keep())
	require.Equal(t, keepTemplate, Migration{Version: "1"}.keep())
}

func TestAPlacePrintsWithoutItsDSN(t *testing.T) {
	t.Parallel()
	p := &Place{dsn: "postgres://app:secret@h/shop", label: "postgres app@h/shop"}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		require.Equal(t, "postgres app@h/shop", fmt.Sprintf(verb, p))
	}
	text, err := json.Marshal(p)
	require.NoError(t, err)
	require.NotContains(t, string(text), "secret")
}
