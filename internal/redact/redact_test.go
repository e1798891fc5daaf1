package redact

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

type guarded struct {
	Label
	Password string
}

func TestAStructThatEmbedsALabelShowsNothingElse(t *testing.T) {
	for _, v := range []any{guarded{"shown", "hunter2"}, &guarded{"shown", "hunter2"}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			require.Equal(t, "shown", fmt.Sprintf(verb, v), verb)
		}
		js, err := json.Marshal(v)
		require.NoError(t, err)
		require.Equal(t, `"shown"`, string(js))

		var log bytes.Buffer
		slog.New(slog.NewJSONHandler(&log, nil)).Info("m", "v", v)
		slog.New(slog.NewTextHandler(&log, nil)).Info("m", "v", v)
		require.Contains(t, log.String(), "shown")
		require.NotContains(t, log.String(), "hunter2")
	}
}

func TestStrikeLeavesNoSecret(t *testing.T) {
	require.Equal(t, "a xxxxx b xxxxx", Strike("a s3cret b s3cret", "s3cret"))
	require.Equal(t, "a", Strike("a", ""))
}
