package pairs

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// configuration has the number of a level for each axis; -1: not chosen yet.
type configuration []int

func (c configuration) String() string {
	var parts []string
	for i, l := range c {
		if l > 0 || l == 0 && axes[i].shown {
			parts = append(parts, axes[i].name+"="+axes[i].levels[l])
		}
	}
	return strings.Join(parts, " ")
}

func axisOf(name string) int {
	i := slices.IndexFunc(axes, func(a axis) bool { return a.name == name })
	if i < 0 {
		panic("no axis " + name)
	}
	return i
}

// has reports whether a configuration has all parts of a pattern such as "face=pgx task=implicit|explicit".
func (c configuration) has(pattern string) bool {
	for part := range strings.FieldsSeq(pattern) {
		name, levels, _ := strings.Cut(part, "=")
		i := axisOf(name)
		if c[i] < 0 || !slices.Contains(strings.Split(levels, "|"), axes[i].levels[c[i]]) {
			return false
		}
	}
	return true
}

func (c configuration) level(name string) string { i := axisOf(name); return axes[i].levels[c[i]] }

// parse returns the configuration of a text. Axes that the text does not name are at their plain level.
func parse(t testing.TB, text string) configuration {
	t.Helper()
	c := make(configuration, len(axes))
	for part := range strings.FieldsSeq(text) {
		name, level, _ := strings.Cut(part, "=")
		i := axisOf(name)
		c[i] = slices.Index(axes[i].levels, level)
		require.GreaterOrEqual(t, c[i], 0, part)
	}
	return c
}

// refused is the reason why a configuration is impossible. Axes that are not chosen yet have no part in it.
func (c configuration) refused() string {
	for _, r := range refusals {
		if c.has(r.of) {
			return r.why
		}
	}
	return ""
}

// cell is two or three axes with a level each. The third axis of a pair is -1.
type cell [3][2]int8

func (k cell) axes() [][2]int8 {
	if k[2][0] < 0 {
		return k[:2]
	}
	return k[:]
}

func (k cell) in(c configuration) bool {
	for _, p := range k.axes() {
		if c[p[0]] != int(p[1]) {
			return false
		}
	}
	return true
}

func (k cell) String() string {
	var parts []string
	for _, p := range k.axes() {
		parts = append(parts, axes[p[0]].name+"="+axes[p[0]].levels[p[1]])
	}
	return strings.Join(parts, " ")
}

// alone is a configuration that has the levels of a cell, and no others.
func (k cell) alone() configuration {
	c := empty()
	for _, p := range k.axes() {
		c[p[0]] = int(p[1])
	}
	return c
}

func empty() configuration {
	c := make(configuration, len(axes))
	for i := range c {
		c[i] = -1
	}
	return c
}

// cells are all pairs or triples of levels that no refusal excludes, and how many are excluded.
func cells(strength int, banned string) (open []cell, refused int) {
	var add func(k cell, n, from int, c configuration)
	add = func(k cell, n, from int, c configuration) {
		if n == strength {
			if c.refused() != "" {
				refused++
			} else {
				open = append(open, k)
			}
			return
		}
		for a := from; a < len(axes); a++ {
			for l := range axes[a].levels {
				if c[a] = l; !c.banned(banned) {
					next := k
					next[n] = [2]int8{int8(a), int8(l)}
					add(next, n+1, a+1, c)
				}
			}
			c[a] = -1
		}
	}
	add(cell{{-1}, {-1}, {-1}}, 0, 0, empty())
	return open, refused
}

// banned reports whether a configuration has one of the levels.
func (c configuration) banned(levels string) bool {
	for level := range strings.FieldsSeq(levels) {
		if c.has(level) {
			return true
		}
	}
	return false
}

// covering returns configurations that together have each cell, if possible where no known fault keeps an axis of the cell
// from acting. They are the same for the same seed.
func covering(strength int, seed uint64, banned string) (all []configuration) {
	r := rand.New(rand.NewPCG(seed, 7))
	open, _ := cells(strength, banned)
	tries := map[int]int{2: 60, 3: 8}[strength]
	covers := func(c configuration, k cell) bool { return k.in(c) && (!quietIn(k, c) || quietIn(k, k.alone())) }
	for idle := 0; len(open) > 0 && idle < 50; idle++ {
		var best configuration
		most := 0
		for range tries {
			i := r.IntN(len(open))
			c := complete(r, open[i], open, banned)
			if c == nil { // refusals exclude this cell together
				open = slices.Delete(open, i, i+1)
				break
			}
			n := 0
			for _, k := range open {
				if covers(c, k) {
					n++
				}
			}
			if n > most {
				most, best = n, c
			}
		}
		if best != nil {
			all, idle = append(all, best), 0
			open = slices.DeleteFunc(open, func(k cell) bool { return covers(best, k) })
		}
	}
	return all
}

// complete chooses, in random order, for each axis the level with which most open cells are covered.
func complete(r *rand.Rand, first cell, open []cell, banned string) configuration {
	c := first.alone()
	for _, a := range r.Perm(len(axes)) {
		if c[a] >= 0 {
			continue
		}
		best, most := -1, -1
		for _, l := range r.Perm(len(axes[a].levels)) {
			if c[a] = l; c.refused() != "" || c.banned(banned) {
				continue
			}
			n := 0
			for _, k := range open {
				if (int(k[0][0]) == a || int(k[1][0]) == a || int(k[2][0]) == a) && k.in(c) {
					n++
				}
			}
			if n > most {
				best, most = l, n
			}
		}
		if best < 0 {
			return nil
		}
		c[a] = best
	}
	return c
}

func TestCoveringArraysHaveEachCell(t *testing.T) {
	t.Parallel()
	all := covering(2, 1, "")
	open, refused := cells(2, "")
	never := 0
	for _, k := range open {
		if !slices.ContainsFunc(all, k.in) {
			never++
		}
	}
	t.Logf("%d pairs in %d configurations; %d are refused, %d by several refusals together", len(open)-never, len(all), refused, never)
	require.Less(t, never, 12)
	require.LessOrEqual(t, len(all), 36)
	for _, c := range all {
		require.Empty(t, c.refused(), c)
	}
}
