package dialects

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCredentialNeverPrintsItsPassword(t *testing.T) {
	c := Credential{User: "app", Password: "s3cr3t", Expires: time.Now()}
	j, err := json.Marshal(map[string]any{"c": c, "p": &c})
	require.NoError(t, err)
	for _, s := range []string{c.String(), fmt.Sprint(c), fmt.Sprintf("%+v", &c), fmt.Sprintf("%#v", c), fmt.Sprintf("%s %q %x %d", c, c, c, c), string(j), c.LogValue().String()} {
		require.NotContains(t, s, "s3cr3t")
		require.NotContains(t, s, fmt.Sprintf("%x", "s3cr3t"))
		require.Contains(t, s, "app")
	}
}
