package repeated

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestALineIsSaidOnceInEachPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l Line
		_, due := l.Due()
		require.True(t, due)
		for range 5 {
			_, due = l.Due()
			require.False(t, due)
		}
		time.Sleep(Pause)
		since, due := l.Due()
		require.True(t, due)
		require.Equal(t, 5, since)
		time.Sleep(Pause)
		since, due = l.Due()
		require.True(t, due)
		require.Zero(t, since)
	})
}

type panicking struct{ slog.Handler }

func (panicking) Handle(context.Context, slog.Record) error { panic("boom") }

func TestAPanicOfTheLoggerIsToldOnce(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	log := slog.New(guarded{panicking{slog.DiscardHandler}, &told{to: &text}})
	log.Warn("nobody hears it: the handler is not enabled")
	require.Empty(t, text.String())
	log = slog.New(guarded{panicking{slog.NewTextHandler(io.Discard, nil)}, &told{to: &text}})
	for range 3 {
		log.Warn("x")
	}
	require.Equal(t, 1, strings.Count(text.String(), "Config.Logger panicked"))
	require.Contains(t, text.String(), "repeated_test.go", "the stack shows where")
	require.NotPanics(t, func() { Guard(slog.New(panicking{slog.NewTextHandler(io.Discard, nil)})).Info("x") })
}
