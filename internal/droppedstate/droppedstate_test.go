package droppedstate

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEachStatementIsToldOnceAndMostOfThem(t *testing.T) {
	t.Parallel()
	var told Told
	for i := range Most {
		require.True(t, told.First(fmt.Sprint(i)))
		require.False(t, told.First(fmt.Sprint(i)))
	}
	require.False(t, told.First("one more"))
}
