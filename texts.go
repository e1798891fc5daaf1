package pooldriver

import (
	"hash/maphash"
	"math/rand/v2"
	"sync/atomic"

	"github.com/pooldriver/pooldriver/dialects"
)

// texts remembers what is known of the last texts. Programs run few of them many
// times, mostly the same constant string, which Go compares by pointer.
type texts struct {
	// recent is chosen by the length and two bytes: nothing is hashed.
	recent [256]atomic.Pointer[text]
	// known has a few places for each hash: two texts that a program uses in
	// turns do not drive each other out.
	known [128][4]atomic.Pointer[text]
}

type text struct {
	query  string
	effect dialects.Effect
}

// Longer texts are classified each time rather than kept alive, and a plain
// query of such a length is not prepared for the next one.
const longestText = 8192

var textSeed = maphash.MakeSeed()

// of returns what query does and, if it was met lately, what else is known.
func (m *texts) of(d dialects.Dialect, query string) (dialects.Effect, *text) {
	n := len(query)
	if n == 0 || n > longestText {
		return d.Effect(query), nil
	}
	recent := &m.recent[(n*31+int(query[n/2])*7+int(query[n-1]))%len(m.recent)]
	if known := recent.Load(); known != nil && known.query == query {
		return known.effect, known
	}
	effect, known := m.look(d, query)
	if known != nil {
		recent.Store(known)
	}
	return effect, known
}

func (m *texts) look(d dialects.Dialect, query string) (dialects.Effect, *text) {
	places := &m.known[maphash.String(textSeed, query)%uint64(len(m.known))]
	at := rand.N(len(places))
	for i := range places {
		known := places[i].Load()
		if known == nil {
			at = i // they are filled in order
			break
		}
		if known.query == query {
			return known.effect, known
		}
	}
	e := d.Effect(query)
	if u, ok := d.(dialects.Undecided); ok && !u.Decided() {
		return e, nil // it will know better
	}
	places[at].Store(&text{query: query, effect: e})
	return e, nil
}
