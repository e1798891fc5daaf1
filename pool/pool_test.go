package pool

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPoolLendsHandsOverAndTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		p, err := New(Config[int]{Create: func(context.Context) (int, error) { n++; return n, nil }, Max: 1})
		require.NoError(t, err)
		l, err := p.Acquire(t.Context())
		require.NoError(t, err)
		go func() { time.Sleep(time.Second); l.Release() }()
		l2, err := p.Acquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, l2.Value())
		_, err = p.Acquire(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		t.Log(err)
		require.ErrorIs(t, l.Release(), ErrStaleLease)
		require.NoError(t, l2.Release())
		t.Logf("%+v", p.Stats())
		require.NoError(t, p.CloseContext(t.Context()))
		t.Logf("%+v", p.Stats())
	})
}
