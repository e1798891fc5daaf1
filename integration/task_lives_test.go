package integration

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// live is the actor's life, with a way out chosen at random. It returns when the
// task has ended and nothing of it is left.
func (a *actor) live(parent context.Context) {
	begin := func(parent context.Context) (end func()) {
		a.ctx, end = pooldriver.WithTask(parent)
		return end
	}
	cancellable, cancel := context.WithCancel(parent)
	defer cancel()
	switch a.random.IntN(9) {
	case 0:
		a.told("Do", pooldriver.Do(parent, func(ctx context.Context) error { a.ctx = ctx; a.act(); return nil }))
	case 1:
		func() {
			defer func() { _ = recover() }()
			_ = pooldriver.Do(parent, func(ctx context.Context) error { a.ctx = ctx; a.act(); panic("oh") })
		}()
	case 2:
		end := begin(cancellable)
		a.act()
		cancel()
		end()
	case 3:
		late, cancel := context.WithTimeout(parent, time.Duration(a.random.IntN(60))*time.Millisecond)
		defer cancel()
		end := begin(late)
		a.act()
		end()
	case 4:
		end := begin(parent)
		a.act()
		parallel(3, func() error { end(); return nil })
	case 5:
		end := begin(parent)
		a.act()
		a.meanwhile(end, func() {
			for range 5 {
				a.inMidAir(a.ctx)
			}
		})
	case 6:
		end := begin(cancellable)
		a.act()
		a.meanwhile(func() { cancel(); end() }, func() { a.inMidAir(a.ctx) })
	case 7:
		end := begin(parent)
		a.act()
		a.meanwhile(end, func() {
			if len(a.levels) == 1 {
				a.finish()
			}
		})
	default:
		end := begin(parent)
		a.act()
		end()
	}
	a.requireUnlocked()
	for _, level := range a.levels {
		if level.tx != nil && level.tx.Commit() == nil {
			a.T.Errorf("actor %d has ended, and can commit", a.number)
		}
	}
}

// requireUnlocked asks for the actor's lock after its end. The server ends a session that was
// killed, or cut off, in its own time.
func (a *actor) requireUnlocked() {
	if a.name == "sqlite" {
		return
	}
	const pause = 5 * time.Millisecond
	for late := time.Duration(0); ; late += pause { // without the time that looking takes
		_, held, err := a.account.LockHolder(context.Background(), int64(a.number))
		if err == nil && !held {
			return
		}
		if err != nil || late > 10*time.Second {
			a.T.Errorf("actor %d has ended; its lock is held: %t, %v", a.number, held, err)
			return
		}
		time.Sleep(pause)
	}
}

// meanwhile ends the task while the program goes on using it.
func (a *actor) meanwhile(end, use func()) {
	pause := time.Duration(a.random.IntN(3000)) * time.Microsecond
	var both sync.WaitGroup
	both.Go(use)
	both.Go(func() {
		time.Sleep(pause)
		end()
	})
	both.Wait()
}

// inMidAir inserts a row while the task is about to end.
func (a *actor) inMidAir(ctx context.Context) {
	id := a.add(a.diary)
	_, err := a.ExecContext(ctx, insertInto(id))
	switch {
	case len(a.levels) > 0: // It is rolled back in any case.
		a.diary.note("in mid air "+insertInto(id), err)
	case a.told("in mid air "+insertInto(id), err) && !a.adrift:
		a.settle(stored, id)
	default:
		a.settle(unsure, id)
	}
}

// TestManyTasksAtOnceLeaveNothingAndLoseNothing has tasks do things at random,
// kills connections under them, ends them in every way, and closes the pool
// under some. The server says what is left, and which rows there are.
func TestManyTasksAtOnceLeaveNothingAndLoseNothing(t *testing.T) {
	t.Parallel()
	eachStage(t, func(t *testing.T, s stage) {
		random := randomtest.Seeded(t)
		rows := &fates{}
		limit := 4
		if s.name == "sqlite" {
			limit = 1 // It has one writer at a time.
		}
		for round := range randomtest.Rounds(8, 300) {
			p := s.open(t, limit, alarmed)
			p.play(t, rows, random, round%4 == 3)
			require.False(t, t.Failed(), "round %d", round)
		}
		rows.check(t, s.stored(t))
	})
}

func (p stagePool) play(t *testing.T, rows *fates, random *rand.Rand, close bool) {
	t.Helper()
	shared, err := p.PrepareContext(t.Context(), insertWithArgumentOn(p.name))
	require.NoError(t, err)
	defer shared.Close()
	actors := make([]*actor, 12)
	var all sync.WaitGroup
	for i := range actors {
		seed := random.Uint64()
		actors[i] = &actor{T: t, stagePool: p, fates: rows, diary: new(diary), shared: shared, number: i + 1, random: rand.New(rand.NewPCG(seed, seed))}
		all.Go(func() { actors[i].live(t.Context()) })
	}
	if close {
		pause := time.Duration(random.IntN(100)) * time.Millisecond
		all.Go(func() {
			time.Sleep(pause)
			_ = p.Close()
		})
	}
	p.await(t, &all)
	p.requireCutOffEnded(t)
	p.requireNothingLeft(t)
	for _, a := range actors {
		for _, drop := range a.drop {
			_ = drop()
		}
		for _, conn := range a.conns {
			_ = conn.Close()
		}
	}
	if !close {
		p.requireNextBorrowersSeeNothing(t) // and notice what was killed while idle
		p.requireAtRest(t)
		require.NoError(t, p.Close())
	}
	p.requireAtRest(t)
	require.Zero(t, p.connector.Stats().Pool.Count)
}

// await ends the test with everybody's stack if the actors do not come to an end.
func (p stagePool) await(t *testing.T, all *sync.WaitGroup) {
	t.Helper()
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		stacks := make([]byte, 1<<20)
		t.Fatalf("the actors hang: %+v\n%s", p.connector.Stats().Pool, stacks[:runtime.Stack(stacks, true)])
	}
}
