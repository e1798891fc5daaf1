package task

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/pooldriver/pooldriver/pool"
)

// maxLabel is the most of a label that is kept, in bytes.
const maxLabel = 100

// Label returns a context with a label. It has the task that ctx has.
func Label(ctx context.Context, name string) context.Context {
	p := PlaceOf(ctx)
	p.Label = nil
	if name = shortened(name); name != "" {
		p.Label = &name
	}
	return &labelled{ctx, p}
}

// WithPriority returns a context of this priority. It has the task that ctx has.
func WithPriority(ctx context.Context, priority pool.Priority) context.Context {
	p := PlaceOf(ctx)
	p.Priority = priority
	return &labelled{ctx, p}
}

// labelled is a context with a label or a priority. It says itself what its task is, so a task, a
// label and a priority are found by one look.
type labelled struct {
	context.Context
	place Place
}

func (l *labelled) Value(k any) any {
	if _, ok := k.(key); ok {
		return l
	}
	return l.Context.Value(k)
}

// shortened is name as it may stand in a log: bounded, and a copy, so that no large text is
// kept for it.
func shortened(name string) string {
	if len(name) > maxLabel {
		cut := maxLabel
		for cut > 0 && !utf8.RuneStart(name[cut]) {
			cut--
		}
		name = name[:cut]
	}
	return strings.ToValidUTF8(strings.Clone(name), "?")
}
