package binding

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/report"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/stubdialect"
	"github.com/pooldriver/pooldriver/internal/usage"
)

// newEngine makes an engine over a fake database.
func newEngine(t *testing.T, most int) *Engine {
	t.Helper()
	s := stubdialect.New(dialects.Traits{})
	stubdialect.Connector(s)
	var r report.Report
	r.Init(slog.New(slog.DiscardHandler), "stub", report.Listener{})
	e, err := New(Config{Pool: connpool.Config{
		Dialect: s, Template: s, Usage: &usage.Env{Clock: usage.NewClock()},
		Session: session.Env{Dialect: s, Buffered: &r.Buffered, ReadAheads: &r.ReadAheads, CleanTimeout: time.Second, PingTimeout: time.Second},
		Limits:  connpool.Limits{Max: most, ConnectTimeout: time.Second, CleanTimeout: time.Second, PingTimeout: time.Second},
	}}, &r)
	require.NoError(t, err)
	t.Cleanup(e.Pool().Close)
	return e
}

// reached is a checkout without a task that has a connection.
func reached(t *testing.T, ctx context.Context, e *Engine) *Checkout {
	t.Helper()
	c, w := &Checkout{}, &Want{}
	c.Init(e, ctx)
	require.NoError(t, c.Reach(ctx, w))
	c.Done(w)
	t.Cleanup(c.Detach)
	return c
}

// TestABindingPeeksAtItsOwnSessionsAlone: what has gone to another one in the meantime is
// neither locked nor kept.
func TestABindingPeeksAtItsOwnSessionsAlone(t *testing.T) {
	e := newEngine(t, 2)
	a, b := reached(t, t.Context(), e), reached(t, t.Context(), e)
	own, held, other := a.binding, a.conn, b.conn
	require.NotSame(t, own, other.holder.Load())
	require.False(t, own.tryPeek(other))
	require.True(t, other.TryLock(), "it was left unlocked")
	require.Zero(t, other.use.peeks)
	require.False(t, other.holder.Load().tryPeek(other), "somebody works on it")
	require.Zero(t, other.use.peeks)
	other.Unlock()
	require.True(t, own.tryPeek(held))
	require.Equal(t, 1, held.use.peeks)
	own.endPeek(held)
	require.Zero(t, held.use.peeks)
}
