package stmtcache

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// stmt is a driver's statement that counts how often it is closed.
type stmt struct {
	driver.Stmt
	closed int
	err    error
}

func (s *stmt) Close() error { s.closed++; return s.err }

func TestTheLeastRecentlyUsedStatementIsEvictedAndClosed(t *testing.T) {
	c := New(2)
	a, b, d := &stmt{}, &stmt{}, &stmt{}
	c.Done(c.Add("a", 0, a, true))
	c.Done(c.Add("b", 0, b, true))
	require.Same(t, a, c.Get("a", 0, 0).Driver)
	c.Done(c.Add("d", 0, d, true))
	require.Equal(t, []int{0, 1, 0}, []int{a.closed, b.closed, d.closed})
	require.Nil(t, c.Get("b", 0, 0))
	require.Equal(t, 2, c.Len())
}

func TestAStatementWithOpenRowsIsNotLentAgainAndClosedAfterThem(t *testing.T) {
	c := New(1)
	a, other := &stmt{}, &stmt{}
	s := c.Add("a", 0, a, true)
	s.Open++
	c.Done(s)
	require.Nil(t, c.Get("a", 0, 0))
	second := c.Add("a", 0, other, true)
	c.Done(second)
	require.Equal(t, 1, other.closed, "the text has its place, and the second handle is not kept")
	c.Drop("a")
	require.Zero(t, a.closed, "rows are still read from it")
	s.Open--
	c.Done(s)
	require.Equal(t, 1, a.closed)
}

func TestStatementsAreValidByGeneration(t *testing.T) {
	for name, tc := range map[string]struct {
		stale      func(*Cache, *Stmt)
		generation uint64
		schema     uint64
		valid      bool
	}{
		"same generation":               {generation: 1, valid: true},
		"prepared again by the program": {generation: 2},
		"in the same schema generation": {generation: 2, schema: 7, valid: true},
		"in another schema generation":  {generation: 2, schema: 8},
		"marked stale":                  {generation: 1, stale: func(c *Cache, s *Stmt) { c.MarkStale(s) }},
		"marked stale, same schema":     {generation: 1, schema: 7, stale: func(c *Cache, s *Stmt) { c.MarkStale(s) }},
		"all marked stale, same schema": {generation: 1, schema: 7, stale: func(c *Cache, _ *Stmt) { c.MarkAllStale() }},
		"nobody has the text open":      {generation: 0, valid: true},
	} {
		t.Run(name, func(t *testing.T) {
			c, a := New(4), &stmt{}
			s := c.Add("a", 1, a, true)
			s.SchemaGeneration = 7
			c.Done(s)
			if tc.stale != nil {
				tc.stale(&c, s)
			}
			require.Equal(t, tc.valid, c.Get("a", tc.generation, tc.schema) == s)
			require.Equal(t, tc.valid, a.closed == 0, "what is not valid is closed when it is met")
		})
	}
}

func TestDropStaleKeepsWhatThePresentProgramMayUse(t *testing.T) {
	for _, tc := range []struct {
		generation, schema uint64
		kept               bool
	}{{1, 0, true}, {2, 0, false}, {0, 0, false}, {0, 7, true}} {
		c, a := New(4), &stmt{}
		s := c.Add("a", 1, a, true)
		s.SchemaGeneration = 7
		c.DropStale("a", tc.generation, tc.schema)
		require.Equal(t, tc.kept, c.Has("a"), tc)
	}
}

func TestForgetClosesNothingAndCounts(t *testing.T) {
	c, a, bad := New(4), &stmt{}, &stmt{err: errors.New("busy")}
	c.Done(c.Add("a", 0, a, true))
	c.Done(c.Add("bad", 0, bad, false))
	require.True(t, c.CloseFailed())
	c.Forget()
	require.Zero(t, a.closed)
	require.False(t, c.CloseFailed())
	require.Equal(t, 1, c.Forgotten())
	require.Zero(t, c.Len())
}

// Whatever happens, each statement is closed once: when it is neither cached nor read.
func TestEveryStatementIsClosedOnce(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := New(r.IntN(4))
		var all []*stmt
		var open []*Stmt
		for range 500 {
			text := fmt.Sprint(r.IntN(6))
			switch r.IntN(8) {
			case 0:
				c.Drop(text)
			case 1:
				c.MarkAllStale()
			case 2:
				c.CloseAll()
			case 3:
				if len(open) > 0 {
					open[0].Open--
					c.Done(open[0])
					open = open[1:]
				}
			default:
				s := c.Get(text, 0, 0)
				if s == nil {
					si := &stmt{}
					all = append(all, si)
					s = c.Add(text, 0, si, r.IntN(4) > 0)
				}
				if r.IntN(3) == 0 {
					s.Open++
					open = append(open, s)
				}
				c.Done(s)
			}
		}
		for _, s := range open {
			s.Open--
			c.Done(s)
		}
		c.CloseAll()
		require.Zero(t, c.weight)
		for i, s := range all {
			require.Equal(t, 1, s.closed, "seed %d, statement %d", seed, i)
		}
	}
}

// A batch insert takes the place of several small statements, and one that would take more than
// there are is not kept.
func TestALargeStatementTakesThePlaceOfSeveral(t *testing.T) {
	c := New(10)
	add := func(text string) *stmt {
		si := &stmt{}
		c.Done(c.Add(text, 0, si, true))
		return si
	}
	small := make([]*stmt, 10)
	for i := range small {
		small[i] = add(fmt.Sprint(i))
	}
	large := add("INSERT INTO t VALUES (?" + strings.Repeat(",?", 79) + ")") // 80 parameters: 6 places
	closed := 0
	for _, s := range small {
		closed += s.closed
	}
	require.Equal(t, 6, closed)
	require.Equal(t, 5, c.Len())
	require.Equal(t, 1, add("INSERT INTO t VALUES (?"+strings.Repeat(",?", 799)+")").closed)
	require.Equal(t, 5, c.Len())
	c.CloseAll()
	require.Equal(t, 1, large.closed)
	require.Zero(t, c.weight)
}

func TestATextKeepsItsGenerationWhileItIsOpen(t *testing.T) {
	var g Generations
	first := g.Open("a")
	require.Equal(t, first, g.Open("a"))
	require.Greater(t, g.Open("b"), first)
	g.Close("a")
	require.Equal(t, first, g.Of("a"))
	g.Close("a")
	require.Zero(t, g.Of("a"))
	require.Greater(t, g.Open("a"), first)
	require.Equal(t, 2, g.Len())
}
