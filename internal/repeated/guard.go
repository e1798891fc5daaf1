package repeated

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
)

// Guard returns a logger that survives a panic of l's handler: the log of a library must not
// end the process. The first panic goes to standard error, with its stack.
func Guard(l *slog.Logger) *slog.Logger {
	return slog.New(guarded{l.Handler(), &told{to: os.Stderr}})
}

type told struct {
	once sync.Once
	to   io.Writer
}

// recover is deferred around a call of the handler.
func (t *told) recover() {
	if p := recover(); p != nil {
		t.once.Do(func() {
			fmt.Fprintf(t.to, "pooldriver: Config.Logger panicked (%T); further panics are not reported\n%s", p, debug.Stack())
		})
	}
}

// guarded is a handler that stops the panics of the handler inside.
type guarded struct {
	slog.Handler
	told *told
}

func (g guarded) Enabled(ctx context.Context, level slog.Level) bool {
	defer g.told.recover()
	return g.Handler.Enabled(ctx, level)
}

func (g guarded) Handle(ctx context.Context, record slog.Record) error {
	defer g.told.recover()
	return g.Handler.Handle(ctx, record)
}
