package pooldriver

import (
	"hash/maphash"
	"math/rand/v2"
	"sync/atomic"

	"github.com/pooldriver/pooldriver/dialects"
)

// texts remembers what is known of the last texts, a few for each hash: two that
// a program uses in turns do not drive each other out.
type texts [128][4]atomic.Pointer[text]

type text struct {
	query  string
	effect dialects.Effect
	// direct: the driver could not prepare it, but run it.
	direct atomic.Bool
}

// Longer texts are classified each time rather than kept alive, and a plain
// query of such a length is not prepared for the next one.
const longestText = 8192

var textSeed = maphash.MakeSeed()

// of returns what query does and, if it was met lately, what else is known.
func (m *texts) of(d dialects.Dialect, query string) (dialects.Effect, *text) {
	if len(query) > longestText {
		return d.Effect(query), nil
	}
	slots := &m[maphash.String(textSeed, query)%uint64(len(m))]
	for i := range slots {
		known := slots[i].Load()
		if known == nil {
			break // they are filled in order
		}
		if known.query == query {
			return known.effect, known
		}
	}
	e := d.Effect(query)
	at := rand.N(len(slots))
	for i := range slots {
		if slots[i].Load() == nil {
			at = i
			break
		}
	}
	slots[at].Store(&text{query: query, effect: e})
	return e, nil
}
