package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/pooldriver/pooldriver"
)

// The contests of queries for one row whose contexts can end: for each of them database/sql starts a goroutine,
// and with a pooldriver.DB none.

const dbName = ours + ", DB"

func rowName(goroutines int) string {
	if goroutines == 1 {
		return "one row, a context that can be cancelled, 1 goroutine"
	}
	return fmt.Sprintf("one row, a context that can be cancelled, %d goroutines", goroutines)
}

// rowContests are those of a venue that has an entrant with a DB.
func rowContests(v venue) []contest {
	if !slices.ContainsFunc(v.entrants, func(e entrant) bool { return e.part == asking }) {
		return nil
	}
	var contests []contest
	for _, goroutines := range []int{1, 8} {
		c := v.contest(rowName(goroutines), asking, 8, warm(query), func(b *testing.B, c client) { ask(b, c, goroutines) })
		c.fresh, c.apart = true, v.server
		contests = append(contests, c)
	}
	return contests
}

// ask splits b.N queries among the goroutines, each with a context of its own.
func ask(b *testing.B, c client, goroutines int) {
	b.ReportAllocs()
	b.ResetTimer()
	var all sync.WaitGroup
	for g := range goroutines {
		n := b.N / goroutines
		if g < b.N%goroutines {
			n++
		}
		all.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			for i := range n {
				if err := c.query(ctx, int64(i%accounts)); err != nil {
					note(b, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// dbClient asks through a pooldriver.DB.
type dbClient struct{ sqlClient }

// openDB wraps what opens our client.
func openDB(open func(conns int) (client, error)) func(conns int) (client, error) {
	return func(conns int) (client, error) {
		c, err := open(conns)
		if err != nil {
			return nil, err
		}
		return dbClient{c.(sqlClient)}, nil
	}
}

func (c dbClient) query(ctx context.Context, n int64) error {
	var answer int64
	return pooldriver.DB{DB: c.db}.QueryRowContext(ctx, c.texts.query, n).Scan(&answer)
}
