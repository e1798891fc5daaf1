package inspect

import (
	"runtime"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/pooldriver/pooldriver"
)

// memory keeps a Connector's verdict from changing with each look where the load is at the border of two rows: a row that was left
// comes back a minute later, or if it is worse and was found for ten seconds. Until then the row is said that was found last. A row that
// was not said within a minute comes at once, and so does each change to or from what is sure.
type memory struct {
	mu    sync.Mutex // protects following fields
	at    time.Time  // of the last look
	shown Verdict
	seen  time.Time // when a look has last found shown
	found string    // the row that the last look has found
	since time.Time // since when each look has found it
	left  map[string]time.Time

	worst Verdict   // of the last levelLasts
	held  time.Time // when a look last found worst
}

const (
	// levelLasts is how long a worse verdict is shown below the present one.
	levelLasts     = 30 * time.Second
	comesBack      = time.Minute
	comesBackWorse = 10 * time.Second
	// forgets is after how long without a look nothing is remembered.
	forgets = 10 * time.Second
)

// steady returns the verdict to be shown, if the look has found v.
func (m *memory) steady(now time.Time, v Verdict) Verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Sub(m.at) > forgets {
		m.shown, m.left = Verdict{}, map[string]time.Time{}
	}
	if m.at = now; m.found != v.Rule {
		m.found, m.since = v.Rule, now
	}
	if v.Rule != m.shown.Rule {
		if !m.changes(now, v) {
			old := m.shown
			if ago := now.Sub(m.seen); ago >= still {
				old.Sentence = Brief(ago.Truncate(time.Second)) + " ago: " + old.Sentence
			}
			return old
		}
		m.left[m.shown.Rule] = now
	}
	m.shown, m.seen = v, now
	return v
}

// earlier remembers the worst verdict of the last levelLasts, and returns it if v is better.
func (m *memory) earlier(now time.Time, v Verdict) *Earlier {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ago := now.Sub(m.held); rank(v.Level) < rank(m.worst.Level) && ago < levelLasts {
		return &Earlier{m.worst, max(0, ago)}
	}
	m.held, m.worst = now, v
	return nil
}

// changes reports whether v takes the place of the row that is shown.
func (m *memory) changes(now time.Time, v Verdict) bool {
	left, was := m.left[v.Rule]
	lasts := now.Sub(m.since)
	switch {
	case isSure(v.Rule) || isSure(m.shown.Rule):
		return true
	case was && now.Sub(left) < comesBack:
		return rank(v.Level) > rank(m.shown.Level) && lasts >= comesBackWorse
	}
	return rank(v.Level) >= rank(m.shown.Level) || lasts >= still
}

func isSure(name string) bool {
	return slices.ContainsFunc(sureRules, func(r rule) bool { return r.name == name })
}

// memories are of all Connectors: what one page says, others say, too. A page that may ask the server finds other rows than who only looks.
var memories sync.Map // by remembered

type remembered struct {
	connector weak.Pointer[pooldriver.Connector]
	asks      bool
}

func memoryOf(c *pooldriver.Connector, asks bool) *memory {
	key := remembered{weak.Make(c), asks}
	m, known := memories.LoadOrStore(key, new(memory))
	if !known {
		runtime.AddCleanup(c, func(key remembered) { memories.Delete(key) }, key)
	}
	return m.(*memory)
}
