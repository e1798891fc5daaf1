package report

import (
	"log/slog"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver/internal/repeated"
)

// slowTexts is how many texts have a line of their own in the log. Later texts share a line.
const slowTexts = 256

// slowLines bounds the lines of slow statements.
type slowLines struct {
	mu    sync.Mutex // protects following fields
	lines map[string]*repeated.Line
	rest  repeated.Line
}

// of returns the line of a text.
func (s *slowLines) of(text string) *repeated.Line {
	s.mu.Lock()
	defer s.mu.Unlock()
	line, known := s.lines[text]
	switch {
	case known:
		return line
	case len(s.lines) >= slowTexts:
		return &s.rest
	case s.lines == nil:
		s.lines = map[string]*repeated.Line{}
	}
	line = new(repeated.Line)
	s.lines[text] = line
	return line
}

// SlowQuery is a statement that took longer than pool_slow_query.
type SlowQuery struct {
	Statement, Label   string // without literals
	Waited, Took, Idle time.Duration
	Rows               int64 // below 0: not known
}

// Slow writes of a slow statement to the log.
func (r *Report) Slow(q SlowQuery) {
	others, due := r.slow.of(q.Statement).Due()
	if !due {
		return
	}
	args := []any{"statement", q.Statement, "label", q.Label, "wait", rounded(q.Waited), "took", rounded(q.Took)}
	if q.Rows >= 0 {
		args = append(args, "rows", q.Rows)
	}
	if q.Idle > 0 {
		args = append(args, "not_read_for", rounded(q.Idle))
	}
	if others > 0 {
		args = append(args, "others", others)
	}
	r.write(slog.LevelWarn, "a statement took longer than pool_slow_query", args...)
}
