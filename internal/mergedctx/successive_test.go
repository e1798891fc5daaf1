package mergedctx

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestASuccessiveContextIsTheLastOneThatWasNamed(t *testing.T) {
	type key struct{}
	first, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, 1), time.Hour)
	second := context.WithValue(t.Context(), key{}, 2)
	var s Successive
	s.Become(&first)
	_, bounded := s.Deadline()
	require.True(t, bounded)
	require.Equal(t, 1, s.Value(key{}))
	cancel()
	require.ErrorIs(t, s.Err(), context.Canceled)
	<-s.Done()
	s.Become(&second)
	_, bounded = s.Deadline()
	require.False(t, bounded)
	require.Equal(t, 2, s.Value(key{}))
	require.NoError(t, s.Err())
}
