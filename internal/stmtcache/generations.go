package stmtcache

import "sync"

// Generations distinguishes statements of one text by when the program prepared them, if that
// matters (dialects.Traits.PreparedAges): a program that closes a statement and prepares it again
// expects a statement that fits the present tables. While a statement of a text is open in the
// program, the text's generation stays. The zero value is empty. It is safe for concurrent use.
type Generations struct {
	mu     sync.Mutex // protects following fields
	live   map[string]*generation
	serial uint64
}

type generation struct {
	number uint64
	users  int
}

// Open counts a user of text and returns the generation that it may use, 1 or more.
func (g *Generations) Open(text string) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.live == nil {
		g.live = make(map[string]*generation)
	}
	gen := g.live[text]
	if gen == nil {
		g.serial++
		gen = &generation{number: g.serial}
		g.live[text] = gen
	}
	gen.users++
	return gen.number
}

// Of returns the generation of a text that is open in the program, else 0.
func (g *Generations) Of(text string) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if gen := g.live[text]; gen != nil {
		return gen.number
	}
	return 0
}

// Close ends what Open began.
func (g *Generations) Close(text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	gen := g.live[text]
	if gen.users--; gen.users == 0 {
		delete(g.live, text)
	}
}

// Len returns how many texts are open.
func (g *Generations) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.live)
}
