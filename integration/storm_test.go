package integration

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// TestContextsThatEndAtRandomDoNoHarm has programs with and without tasks share a
// few connections, each call with a context that may end at any moment. Answers
// belong to their questions, sessions to their tasks, and transactions are there
// or not.
func TestContextsThatEndAtRandomDoNoHarm(t *testing.T) {
	t.Parallel()
	eachStage(t, func(t *testing.T, s stage) {
		random := randomtest.Seeded(t)
		rows := &fates{}
		for _, lazy := range []bool{false, true} {
			p := s.open(t, 4, alarmed, func(c *pooldriver.Config) { c.LazyBegin = lazy })
			// On a busy machine nearly all contexts of one storm end at its commits.
			for round := 0; round == 0 || round < 60 && !rows.varied(); round++ {
				p.storm(t, rows, random, time.Duration(randomtest.Rounds(1, 25))*time.Second)
			}
			rows.check(t, s.stored(t))
			p.requireNextBorrowersSeeNothing(t)
			p.requireAtRest(t)
			require.NoError(t, p.Close())
		}
	})
}

// storm returns when nothing of it is left.
func (p stagePool) storm(t *testing.T, rows *fates, random *rand.Rand, lasts time.Duration) {
	t.Helper()
	echoes, err := p.Prepare(p.echo())
	require.NoError(t, err)
	defer echoes.Close()
	over, stop := context.WithTimeout(t.Context(), lasts)
	defer stop()
	var all sync.WaitGroup
	for i := range 16 {
		seed := random.Uint64()
		g := &gust{T: t, stagePool: p, fates: rows, echoes: echoes, number: i + 1, random: rand.New(rand.NewPCG(seed, seed))}
		all.Go(func() {
			for over.Err() == nil && !t.Failed() {
				g.blow()
			}
		})
	}
	<-over.Done()
	p.await(t, &all)
	p.requireCutOffEnded(t)
	p.requireNothingLeft(t)
}

// gust is one of the programs.
type gust struct {
	*testing.T
	stagePool
	*fates
	echoes *sql.Stmt // of echo, prepared without a task
	random *rand.Rand
	number int
}

// echo is a query whose answer is its argument.
func (s stage) echo() string {
	return s.say("SELECT CAST("+s.say("$1", "", "")+" AS integer)", "SELECT CAST(? AS SIGNED)", "SELECT CAST(? AS integer)")
}

// brief is a context that may end soon.
func (g *gust) brief(ctx context.Context) (context.Context, context.CancelFunc) {
	if g.random.IntN(3) == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Duration(g.random.IntN(4000))*time.Microsecond)
}

func (g *gust) blow() {
	ctx := context.Background()
	if g.random.IntN(2) == 0 {
		g.step(ctx)
		return
	}
	ctx, cancel := g.brief(ctx)
	defer cancel()
	task, end := pooldriver.WithTask(ctx)
	defer end()
	if g.random.IntN(2) == 0 {
		g.tenant(task)
	}
	for range 1 + g.random.IntN(4) {
		g.step(task)
	}
}

func (g *gust) step(ctx context.Context) {
	ctx, cancel := g.brief(ctx)
	defer cancel()
	switch g.random.IntN(6) {
	case 0:
		g.ask(ctx, g.QueryRowContext)
	case 1:
		g.ask(ctx, func(ctx context.Context, _ string, args ...any) *sql.Row {
			return g.echoes.QueryRowContext(ctx, args...)
		})
	case 2:
		g.read(ctx)
	case 3:
		g.commit(ctx)
	case 4:
		id := g.add(g.diary("alone"))
		if _, err := g.ExecContext(ctx, insertInto(id)); err == nil {
			g.settle(stored, id)
		} else {
			g.settle(unsure, id)
		}
	case 5:
		if conn, err := g.Conn(ctx); err == nil {
			g.ask(ctx, conn.QueryRowContext)
			_ = conn.Close()
		}
	}
}

// ask requires its own answer, or an error.
func (g *gust) ask(ctx context.Context, query func(context.Context, string, ...any) *sql.Row) {
	want := g.random.Int32()
	var got int32
	if err := query(ctx, g.echo(), want).Scan(&got); err == nil && got != want {
		g.Errorf("asked for %d, got %d", want, got)
	}
}

// read reads some rows, or all, and asks in between.
func (g *gust) read(ctx context.Context) {
	rows, err := g.QueryContext(ctx, someRows)
	if err != nil {
		return
	}
	defer rows.Close()
	most := g.random.IntN(600)
	for want := 1; want < most && rows.Next(); want++ {
		var got int
		if err := rows.Scan(&got); err == nil && got != want {
			g.Errorf("row %d is %d", want, got)
		}
		if g.random.IntN(50) == 0 {
			g.ask(ctx, g.QueryRowContext)
		}
	}
}

// commit inserts two rows, which are there both or none.
func (g *gust) commit(ctx context.Context) {
	tx, err := g.BeginTx(ctx, nil)
	if err != nil {
		return
	}
	defer tx.Rollback() // after Commit it does nothing
	ids := []int{g.add(g.diary("of two")), g.add(g.diary("of two"))}
	for _, id := range ids {
		if _, err := tx.ExecContext(ctx, insertInto(id)); err != nil {
			return
		}
	}
	if g.random.IntN(4) == 0 {
		return
	}
	if tx.Commit() == nil {
		g.settle(stored, ids...)
	} else {
		g.allOrNothing(ids)
	}
}

// tenant changes the task's session, which must be fresh before.
func (g *gust) tenant(ctx context.Context) {
	if g.name == "sqlite" {
		return
	}
	var seen sql.NullString
	err := g.QueryRowContext(ctx, g.askTenant()).Scan(&seen)
	if err == nil && seen.Valid {
		g.Errorf("a new task of %d sees what %s has set", g.number, seen.String)
	}
	_, _ = g.ExecContext(ctx, g.setTenant(g.number))
}

func (g *gust) diary(what string) *diary {
	return &diary{lines: []string{fmt.Sprintf("inserted %s by program %d", what, g.number)}}
}
