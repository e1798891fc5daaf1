// Package textcache remembers what is known of the last statement texts.
package textcache

import (
	"hash/maphash"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
)

// Cache remembers what is known of the last texts. A program runs few texts many
// times, and mostly the same constant string, which Go compares by pointer. The zero
// value is empty. A Cache is safe for concurrent use and bounded by its arrays.
type Cache struct {
	// recent is indexed by the length and two bytes of the text, without a hash.
	recent [256]atomic.Pointer[Text]
	// known has four places for each hash, so that two texts which a program uses
	// alternately do not evict each other.
	known [128][4]atomic.Pointer[Text]
}

// Text is what is known of one statement text.
type Text struct {
	Query  string
	Effect dialects.Effect
	Pace   Pace
}

// Pace is how the last executions of a text went, for those that decide whether it shares a pipeline.
// Concurrent use loses a figure now and then.
type Pace struct {
	known [questions]atomic.Uint32 // 1: yes; 2: no; 0: nobody has asked
	runs  atomic.Uint32            // alone
	reads atomic.Uint32            // alone, of which the server has said that they wrote nothing
	slow  atomic.Int64             // the slowest, fading, in ns
}

const (
	aloneFirst = 3
	slowest    = int64(5 * time.Millisecond)
	// large stands for a large result: some hundred executions alone later the text is pipelined again.
	large = time.Hour
)

// IsShort reports whether the text is known to take little time, and to write nothing.
func (p *Pace) IsShort() bool {
	return p.runs.Load() >= aloneFirst && p.slow.Load() < slowest && p.reads.Load() >= aloneFirst
}

// Asks returns what is to be told whether an execution alone has written; nil: that is known.
func (p *Pace) Asks() func(wrote bool) {
	if p.reads.Load() >= aloneFirst {
		return nil
	}
	return p.wrote
}

func (p *Pace) wrote(wrote bool) {
	if wrote {
		p.doesMore()
	} else if n := p.reads.Load(); n < aloneFirst {
		p.reads.Store(n + 1)
	}
}

// Ran records an execution that took d.
func (p *Pace) Ran(d time.Duration) {
	if n := p.runs.Load(); n < aloneFirst {
		p.runs.Store(n + 1)
	}
	p.slow.Store(max(int64(d), p.slow.Load()*7/8))
}

// WasLarge records that the result was too large to be kept in memory for long.
func (p *Pace) WasLarge() { p.Ran(large) }

// Question is one that a dialect answers for a text.
type Question uint8

// The questions: see dialects.Dialect.
const (
	OnlyReads Question = iota
	AsksBack
	TakesLocks
	questions = int(TakesLocks) + 1
)

// Judges answer the questions.
type Judges [questions]func(query string) bool

// JudgesOf are those of a dialect.
func JudgesOf(d dialects.Dialect) Judges {
	return Judges{OnlyReads: d.OnlyReads, AsksBack: d.AsksBack, TakesLocks: d.TakesLocks}
}

// Is returns the answer for the text of t, which is asked for once.
func (t *Text) Is(q Question, judges *Judges) bool {
	known := t.Pace.known[q].Load()
	if known == 0 {
		if known = 2; judges[q](t.Query) {
			known = 1
		}
		t.Pace.known[q].Store(known)
	}
	return known == 1
}

// DoesMore records that the text does more than read, whatever it looks like.
func (t *Text) DoesMore() { t.Pace.doesMore() }

func (p *Pace) doesMore() { p.known[OnlyReads].Store(2) }

// longest is the longest text that is kept, in bytes. A longer one is classified each
// time instead of kept alive.
const longest = 8192

var seed = maphash.MakeSeed()

// Of returns what is known of query. again reports whether query was met lately.
func (m *Cache) Of(d dialects.Dialect, query string) (t *Text, again bool) {
	n, at := len(query), 0
	switch {
	case n > longest:
		return &Text{Query: query, Effect: d.Effect(query)}, false
	case n > 0:
		at = (n*31 + int(query[n/2])*7 + int(query[n-1])) % len(m.recent)
	}
	recent := &m.recent[at]
	if known := recent.Load(); known != nil && known.Query == query {
		return known, true
	}
	if t, again = m.look(d, query); again {
		recent.Store(t)
	}
	return t, again
}

func (m *Cache) look(d dialects.Dialect, query string) (t *Text, again bool) {
	places := &m.known[maphash.String(seed, query)%uint64(len(m.known))]
	at := rand.N(len(places))
	for i := range places {
		known := places[i].Load()
		if known == nil {
			at = i // places are filled in order
			break
		}
		if known.Query == query {
			return known, true
		}
	}
	t = &Text{Query: query, Effect: d.Effect(query)}
	if u, ok := d.(dialects.Detecting); !ok || u.Detected() { // else d will know better later
		places[at].Store(t)
	}
	return t, false
}
