// Package schedules uses the handle of a test's sandbox at random, from several goroutines.
package schedules

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// Schedule is how goroutines use a database at random.
type Schedule struct {
	Random *rand.Rand
	First  int           // id
	Rows   string        // a query of three rows
	Pause  time.Duration // the longest one between two statements
	// Patience bounds how late a circle of one goroutine may be known, in a bubble; 0: its error alone says that it
	// was known at once, and not after Config.DeadlockAfter.
	Patience time.Duration
}

// Run lets two to four goroutines use db, which has an empty table ledger with a column id. Every
// operation returns. What was committed is there, what was rolled back is not, and an operation fails
// only for a reason that names whom it would have waited for, with the stacks of both.
func (s Schedule) Run(t testing.TB, db *sql.DB) {
	t.Helper()
	var mu sync.Mutex
	var bad []error
	kept := map[int]bool{}
	var all sync.WaitGroup
	for n := range 2 + s.Random.IntN(3) {
		own := s
		own.Random = rand.New(rand.NewPCG(s.Random.Uint64(), 0))
		a := &actor{Schedule: own, db: db, random: own.Random, number: n, mu: &mu, kept: kept, bad: &bad}
		all.Go(func() {
			for range 1 + a.random.IntN(5) {
				a.act(t.Context())
			}
		})
	}
	all.Wait()
	require.Empty(t, bad)
	require.Equal(t, slices.Sorted(maps.Keys(kept)), Present(t, db))
}

// Present are the ids in the table.
func Present(t testing.TB, db *sql.DB) (ids []int) {
	t.Helper()
	rows, err := db.Query("SELECT id FROM ledger")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var id int
		require.NoError(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(t, rows.Err())
	slices.Sort(ids)
	return ids
}

// actor is one goroutine of a schedule.
type actor struct {
	Schedule
	db     *sql.DB
	random *rand.Rand
	number int
	next   int

	mu   *sync.Mutex  // protects following fields
	kept map[int]bool // what was committed
	bad  *[]error
}

// judge records an error that is none of those that are meant.
func (a *actor) judge(what string, err error) {
	switch {
	case err == nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, pooldriver.ErrDeadlock):
	case strings.Contains(err.Error(), "would wait for ever"), strings.Contains(err.Error(), "nothing has moved"):
		if n := strings.Count(err.Error(), "schedules.go:"); n < 2 {
			a.record(fmt.Errorf("%s: %d stacks in %w", what, n, err))
		}
	default:
		a.record(fmt.Errorf("%s: %w", what, err))
	}
}

func (a *actor) record(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*a.bad = append(*a.bad, err)
}

func (a *actor) keep(ids ...int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range ids {
		a.kept[id] = true
	}
}

func (a *actor) id() int {
	a.next++
	return a.First + 1000*a.number + a.next
}

func (a *actor) pause() { time.Sleep(time.Duration(a.random.Int64N(int64(a.Pause)))) }

// act does one thing.
func (a *actor) act(ctx context.Context) {
	switch a.random.IntN(8) {
	case 0, 1:
		_ = a.insert(ctx)
	case 2:
		_ = a.transaction(ctx, true)
	case 3:
		a.task(ctx)
	case 4:
		a.nestedRows(ctx)
	case 5:
		a.conn(ctx)
	case 6:
		a.waitsForAnother(ctx)
	case 7:
		short, cancel := context.WithTimeout(ctx, time.Duration(a.random.Int64N(2*int64(a.Pause))))
		defer cancel()
		_ = a.insert(short)
	}
}

func (a *actor) insert(ctx context.Context) error {
	id := a.id()
	_, err := a.db.ExecContext(ctx, fmt.Sprintf("INSERT INTO ledger VALUES (%d)", id))
	if err == nil {
		a.keep(id)
	}
	a.judge("insert", err)
	return err
}

// transaction runs a transaction, perhaps with a second one in the same goroutine.
func (a *actor) transaction(ctx context.Context, inside bool) error {
	tx, err := a.db.BeginTx(ctx, nil)
	if err != nil {
		a.judge("begin", err)
		return err
	}
	id := a.id()
	_, err = tx.Exec(fmt.Sprintf("INSERT INTO ledger VALUES (%d)", id))
	a.judge("insert in a transaction", err)
	a.pause()
	if inside && a.random.IntN(2) == 0 {
		begun := time.Now()
		for _, err := range []error{a.transaction(ctx, false), a.insert(ctx)} {
			if err != nil && strings.Contains(err.Error(), "nothing has moved") || a.Patience > 0 && time.Since(begun) >= a.Patience {
				a.record(fmt.Errorf("a circle of one goroutine is known at once: %w", err))
			}
		}
	}
	if a.random.IntN(3) == 0 {
		a.judge("rollback", tx.Rollback())
		return nil
	}
	if err = tx.Commit(); err == nil {
		a.keep(id)
	}
	a.judge("commit", err)
	return err
}

// task runs nested transactions in a task.
func (a *actor) task(ctx context.Context) {
	outer, inner := a.id(), a.id()
	undone := errors.New("undone")
	kept := []int{outer}
	err := pooldriver.InTx(ctx, a.db, nil, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := a.db.ExecContext(ctx, fmt.Sprintf("INSERT INTO ledger VALUES (%d)", outer)); err != nil {
			return err
		}
		err := pooldriver.InTx(ctx, a.db, nil, func(ctx context.Context, tx *sql.Tx) error {
			a.pause()
			if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO ledger VALUES (%d)", inner)); err != nil {
				return err
			}
			if a.random.IntN(2) == 0 {
				return undone
			}
			return nil
		})
		switch {
		case err == nil:
			kept = append(kept, inner)
		case !errors.Is(err, undone):
			return err
		}
		if a.random.IntN(3) == 0 {
			return undone
		}
		return nil
	})
	switch {
	case err == nil:
		a.keep(kept...)
	case !errors.Is(err, undone):
		a.judge("task", err)
	}
}

// nestedRows runs statements inside a rows loop.
func (a *actor) nestedRows(ctx context.Context) {
	rows, err := a.db.QueryContext(ctx, a.Rows)
	if err != nil {
		a.judge("query", err)
		return
	}
	defer rows.Close()
	for rows.Next() {
		_ = a.insert(ctx)
		a.pause()
	}
	a.judge("rows", rows.Err())
}

// conn uses a connection of its own.
func (a *actor) conn(ctx context.Context) {
	conn, err := a.db.Conn(ctx)
	if err != nil {
		a.judge("conn", err)
		return
	}
	defer conn.Close()
	id := a.id()
	if _, err = conn.ExecContext(ctx, fmt.Sprintf("INSERT INTO ledger VALUES (%d)", id)); err == nil {
		a.keep(id)
		a.pause()
		_ = a.insert(ctx) // on another connection of the same goroutine
	}
	a.judge("insert on a conn", err)
}

// waitsForAnother waits, in a transaction, for a goroutine that needs the session.
func (a *actor) waitsForAnother(ctx context.Context) {
	tx, err := a.db.BeginTx(ctx, nil)
	if err != nil {
		a.judge("begin", err)
		return
	}
	defer tx.Rollback()
	done, other := make(chan error), a.id()
	go func() {
		_, err := a.db.ExecContext(ctx, fmt.Sprintf("INSERT INTO ledger VALUES (%d)", other))
		if err == nil {
			a.keep(other)
		}
		done <- err
	}()
	err = <-done
	a.judge("insert beside a transaction", err)
	if err == nil {
		a.record(errors.New("a statement of another goroutine has run in a transaction"))
	}
}
