package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// integration/pgxface runs the program on a server.
func TestAMistakeIsAnError(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, run(t.Context(), t.Output(), "nonsense://"), "scheme")
	require.ErrorContains(t, run(t.Context(), t.Output(), "postgres://127.0.0.1:1/nothing?pool_acquire_timeout=1s"), "127.0.0.1:1")
}
