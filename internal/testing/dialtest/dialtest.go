// Package dialtest dials for tests of dialects.
package dialtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

// Within dials within a limit, a part of which a silent server takes. Where the machine stood still meanwhile,
// that is tried again, with more time. Within returns the limit that was enough. before is called before each try.
func Within(t testing.TB, tmpl dialects.Template, limit time.Duration, before func()) (dialects.Session, time.Duration) {
	t.Helper()
	for ; ; limit *= 2 {
		before()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		s, err := tmpl.Dial(ctx, nil)
		cancel()
		if err == nil {
			return s, limit
		}
		require.Less(t, limit, 10*time.Second, "%v", err)
	}
}
