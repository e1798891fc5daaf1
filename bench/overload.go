package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pooldriver/pooldriver"
)

// The measurement of overload: an open loop. Statements come at random (Poisson, seeded), whatever becomes of
// those before: so more can come than the database serves.

const (
	loadConns    = 4
	loadDeadline = 250 * time.Millisecond
	loadTarget   = 50 * time.Millisecond
	loadText     = "select pg_sleep(0.02)"
	loadSeed     = 50
	// settles is how long an overload takes to begin; the goodput after it is shown, too.
	settles = 2 * time.Second
)

const admissionName = ours + ", pool_queue_target"

// overloadPlan says what is measured: each of loads with each of contenders, one after the other.
type overloadPlan struct {
	lasts      time.Duration // of one measurement
	loads      []float64     // the parts of the capacity that come
	contenders []loaded
}

// lowLoad is a load of which half has PriorityLow; at the others nobody has.
const lowLoad = 1.6

// defaultLoads is the flag -loads.
const defaultLoads = "0.8,1.2,1.6,2,5"

// loadsOf reads the flag -loads.
func loadsOf(text string) (loads []float64, err error) {
	for part := range strings.SplitSeq(text, ",") {
		load, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		if err != nil || load <= 0 || load > 100 {
			return nil, fmt.Errorf("-loads: %q is not a part of the capacity, such as 1.2", part)
		}
		loads = append(loads, load)
	}
	return loads, nil
}

// pauses follows each measurement: connections that were lost are dialled anew.
const pauses = time.Second

// takes is how long the measurements take, without the start of the server.
func (o overloadPlan) takes() time.Duration {
	cells := time.Duration(len(o.loads) * len(o.contenders))
	return capacityRounds*time.Second + cells*(o.lasts+pauses)
}

// capacityRounds is how often the capacity is measured.
const capacityRounds = 6

// loaded is a contender.
type loaded struct {
	name string
	run  func(context.Context) error // one statement
	end  func() error
}

// flood is what became of the statements of one measurement.
type flood struct {
	name     string
	load     float64
	lasts    time.Duration
	capacity float64 // statements in a second

	mu            sync.Mutex // protects following fields
	came, refused [2]int     // by priority
	late, failed  int        // without an answer before the deadline; with another error
	took          []float64  // of those that were served in time
	afterwards    []float64  // of those that came after settles, too
	refusedAfter  []float64
}

func (f *flood) goodput() float64 {
	return float64(len(f.took)) / f.lasts.Seconds() / f.capacity
}

// goodputAfterwards is empty if all was over by then.
func (f *flood) goodputAfterwards() string {
	if f.lasts <= settles {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100*float64(len(f.afterwards))/(f.lasts-settles).Seconds()/f.capacity)
}

func (f *flood) p99Afterwards() string {
	if len(f.afterwards) == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f ms", quantile(f.afterwards, 0.99)/1e6)
}

// part is n of all that came.
func (f *flood) part(n int) float64 { return float64(n) / float64(max(1, f.came[0]+f.came[1])) }

// run sends the statements. low is the part of them that has a low priority.
func (f *flood) run(ctx context.Context, c loaded, low float64) {
	random := rand.New(rand.NewPCG(loadSeed, uint64(f.load*100)))
	atRandom(ctx, random, f.load*f.capacity, f.lasts, func(at time.Duration, due time.Time) func() {
		priority := pooldriver.PriorityNormal
		if random.Float64() < low {
			priority = pooldriver.PriorityLow
		}
		return func() { f.one(ctx, c, priority, due, at > settles) }
	})
}

// atRandom calls next for so many arrivals a second (Poisson), for so long, and runs what it returns, each in a goroutine of its own. next is told
// when the arrival is due, since the beginning and as a time.
func atRandom(ctx context.Context, random *rand.Rand, each float64, lasts time.Duration, next func(at time.Duration, due time.Time) func()) {
	begun := time.Now()
	var all sync.WaitGroup
	for at := time.Duration(0); ctx.Err() == nil; {
		if at += time.Duration(random.ExpFloat64() / each * float64(time.Second)); at > lasts {
			break
		}
		due := begun.Add(at)
		time.Sleep(time.Until(due))
		all.Go(next(at, due))
	}
	all.Wait()
}

// one sends a statement that was due at a time. If the machine was late, the statement has less time.
func (f *flood) one(ctx context.Context, c loaded, priority pooldriver.Priority, due time.Time, afterwards bool) {
	ctx, cancel := context.WithDeadline(pooldriver.WithPriority(ctx, priority), due.Add(loadDeadline))
	defer cancel()
	err := c.run(ctx)
	took := time.Since(due)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.came[priority]++
	switch {
	case errors.Is(err, pooldriver.ErrOverloaded):
		f.refused[priority]++
		f.refusedAfter = append(f.refusedAfter, float64(took))
	case took > loadDeadline, errors.Is(err, context.DeadlineExceeded):
		f.late++
	case err != nil:
		f.failed++
	default:
		f.took = append(f.took, float64(took))
		if afterwards {
			f.afterwards = append(f.afterwards, float64(took))
		}
	}
}

// loadContenders opens a pool of each kind.
func loadContenders(s *server) ([]loaded, error) {
	a, _, err := s.account(nil)
	if err != nil {
		return nil, err
	}
	plain, err := s.plain(a)
	if err != nil {
		return nil, err
	}
	plain.SetMaxOpenConns(loadConns)
	plain.SetMaxIdleConns(loadConns)
	pgx, err := pgxpool.New(context.Background(), a.URL(poolMaxConns(loadConns)))
	if err != nil {
		return nil, errors.Join(err, plain.Close())
	}
	without := sql.OpenDB(pooldriver.New(a.URL(poolMaxConns(loadConns))))
	with := sql.OpenDB(pooldriver.New(a.URL(poolMaxConns(loadConns), "pool_queue_target="+loadTarget.String())))
	list := []loaded{{plainName, nil, nil}, {pgxpoolName, func(ctx context.Context) error {
		_, err := pgx.Exec(ctx, loadText)
		return err
	}, func() error { pgx.Close(); return nil }}, {ours, nil, nil}, {admissionName, nil, nil}}
	for i, db := range map[int]*sql.DB{0: plain, 2: without, 3: with} {
		if i > 0 {
			db.SetMaxIdleConns(1000) // virtual ones
		}
		list[i].run = func(ctx context.Context) error {
			_, err := db.ExecContext(ctx, loadText)
			return err
		}
		list[i].end = db.Close
	}
	return list, nil
}

// capacityOf measures how many statements the database serves in a second, with so many workers, and how long 99 of 100 take.
func capacityOf(ctx context.Context, workers int, c loaded, lasts time.Duration) (each float64, p99 time.Duration, err error) {
	var mu sync.Mutex
	var took []float64
	end := time.Now().Add(lasts)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for time.Now().Before(end) {
				from := time.Now()
				failed := c.run(ctx)
				mu.Lock()
				took, err = append(took, float64(time.Since(from))), errors.Join(err, failed)
				mu.Unlock()
				if failed != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return float64(len(took)) / lasts.Seconds(), time.Duration(quantile(took, 0.99)), err
}

// measureOverload measures, for so long each, the contenders whose names contain only. It writes a table to w and, if dir is
// given, both and a chart into it. An interrupted run changes no file.
func measureOverload(ctx context.Context, w io.Writer, dir string, lasts time.Duration, loads []float64, only string, s *server) error {
	all, err := loadContenders(s)
	if err != nil {
		return err
	}
	defer func() {
		for _, c := range all {
			_ = c.end()
		}
	}()
	p := overloadPlan{lasts, loads, slices.DeleteFunc(slices.Clone(all), func(c loaded) bool { return !strings.Contains(c.name, only) })}
	if len(p.contenders) == 0 {
		return fmt.Errorf("-only: no contender's name contains %q", only)
	}
	fmt.Fprintf(os.Stderr, "%d measurements of %v each: until %s, in %v\n", len(p.loads)*len(p.contenders), lasts,
		time.Now().Add(p.takes()).Format(time.TimeOnly), p.takes().Round(time.Second))
	capacity, service, err := bestCapacity(ctx, all[slices.IndexFunc(all, func(c loaded) bool { return c.name == ours })])
	if err != nil {
		return err
	}
	var table strings.Builder
	if err := p.measure(ctx, io.MultiWriter(w, &table), capacity, service); err != nil || dir == "" {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, chartDir), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, overloadFile), []byte(table.String()), 0o644); err != nil {
		return err
	}
	return drawOverload(dir)
}

// bestCapacity is the best of several: nothing else was at work then.
func bestCapacity(ctx context.Context, c loaded) (capacity float64, service time.Duration, err error) {
	for range capacityRounds {
		each, p99, err := capacityOf(ctx, loadConns, c, time.Second)
		if err != nil {
			return 0, 0, err
		}
		if each > capacity {
			capacity, service = each, p99
		}
	}
	return capacity, service, nil
}

func (o overloadPlan) measure(ctx context.Context, w io.Writer, capacity float64, service time.Duration) error {
	var all []*flood
	fmt.Fprintf(w, "# Overload\n\n%d connections, `%s`, deadlines %v, an open loop with Poisson arrivals (seed %d), %v each. The capacity is %.0f statements\nin a second, and a statement alone takes %.1f ms (p99). At %.1f half of the statements have `PriorityLow`.\n\n",
		loadConns, loadText, loadDeadline, loadSeed, o.lasts, capacity, service.Seconds()*1000, lowLoad)
	fmt.Fprintln(w, "| load | contender | goodput | after 2 s | p99 of the served | after 2 s | refused | refused after (median) | too late | other errors |\n|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|")
	for _, load := range o.loads {
		for _, c := range o.contenders {
			low := 0.0
			if load == lowLoad {
				low = 0.5
			}
			f := &flood{name: c.name, load: load, lasts: o.lasts, capacity: capacity}
			f.run(ctx, c, low)
			time.Sleep(pauses)
			if ctx.Err() != nil {
				return fmt.Errorf("interrupted, no file was written: %w", ctx.Err())
			}
			all = append(all, f)
			fmt.Fprintf(w, "| %.1f | %s | %.1f %% | %s | %.0f ms | %s | %.2f %% | %s | %.2f %% | %d |\n", f.load, f.name, 100*f.goodput(), f.goodputAfterwards(),
				quantile(f.took, 0.99)/1e6, f.p99Afterwards(), 100*f.part(f.refused[0]+f.refused[1]), spent(f.refusedAfter), 100*f.part(f.late), f.failed)
		}
	}
	for _, f := range all {
		if f.came[1] > 0 && f.refused[0]+f.refused[1] > 0 {
			fmt.Fprintf(w, "\nAt %.1f, %s: of the statements with `PriorityLow` %.1f %% were refused, of the others %.2f %% (%d of %d).\n", f.load, f.name,
				100*float64(f.refused[1])/float64(f.came[1]), 100*float64(f.refused[0])/float64(max(1, f.came[0])), f.refused[0], f.came[0])
		}
	}
	return nil
}

func spent(v []float64) string {
	if len(v) == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f ms", median(v)/1e6)
}

// overloadFile is the table of overload, in the directory of results.
const overloadFile = "overload.md"

// drawOverload draws the goodput that the table in a directory says, if there is one.
func drawOverload(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, overloadFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	p := picture{title: "Overload: more queries come than the database can serve",
		unit: fmt.Sprintf("answers within %d ms, in %% of what the database can serve (longer is better)", loadDeadline.Milliseconds())}
	for line := range strings.Lines(string(text)) {
		cells := cellsOf(strings.TrimSpace(line))
		if len(cells) < 3 {
			continue
		}
		goodput, ok := parseFigure(cells[2])
		if !ok {
			continue
		}
		title := cells[0] + " times as many queries as it can serve"
		if last := len(p.panels) - 1; last < 0 || p.panels[last].title != title {
			p.panels = append(p.panels, panel{title: title})
		}
		at := &p.panels[len(p.panels)-1].bars
		*at = append(*at, bar{name: cells[1], value: goodput, low: goodput, high: goodput, text: cells[2]})
	}
	return p.save(filepath.Join(dir, chartDir, "overload.svg"))
}
