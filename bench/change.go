package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// What a change costs ("make bench-quick"): a few contests between plain database/sql and
// pooldriver, by this tree and, if asked for, by another commit. Each of the two has a
// process of its own, and they take turns round by round, so that whatever else the
// machine does hits both. The table is for a pull request.

const changeTurn = 220 * time.Millisecond // of each contender in a round

// A build is a bench with the pooldriver of one commit.
type build struct {
	commit  string
	program string
}

// changeCases are the contests of the table, how many operations perf counts, and the bound of the
// ratio to plain. A bound is a tenth above what was measured when it was set, because machines
// differ. A change that makes a case faster lowers its bound.
var changeCases = []struct {
	title string
	count int
	most  float64
}{
	{sectionNull + ": " + execName, 50_000, 2.5},
	{sectionNull + ": " + manyRowsName, 500, 470},
	{sectionNull + ": " + queryName, 50_000, 1.7},
	{sectionNull + ": " + transactionName(1), 50_000, 1.9},
	{sectionNull + ": " + taskRowsName, 50_000, 2.1},
	{sectionNull + ": " + coldName, 3000, 1.2},
	{"PostgreSQL: " + queryName, 3000, 1.1},
	{"PostgreSQL: " + transactionName(1), 2000, 1.1},
	{"MariaDB: " + queryName, 3000, 0.55},
	{sectionSQLite + ": " + queryName, 20_000, 0.7},
}

// measureChange writes the table. base names a commit; empty: none.
func measureChange(ctx context.Context, w io.Writer, base, only string, rounds int, servers ...*server) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	now, err := git(ctx, "describe", "--always", "--dirty", "--exclude=*")
	if err != nil {
		return err
	}
	builds := []build{{now, self}}
	if base != "" {
		b, remove, err := buildBase(ctx, base)
		if err != nil {
			return fmt.Errorf("the bench of %s: %w", base, err)
		}
		defer remove()
		builds = append(builds, b)
	}
	t := changeTable{builds: builds, rounds: rounds, unCounted: perfMissing(ctx)}
	for _, c := range changeCases {
		if !strings.Contains(c.title, only) {
			continue
		}
		from := time.Now()
		row := measureCase(ctx, builds, c.title, rounds, servers)
		row.most = c.most
		if t.unCounted == nil && row.err == nil {
			row.err = row.count(ctx, builds, c.count, servers)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted: %w", ctx.Err())
		}
		t.rows = append(t.rows, row)
		fmt.Fprintf(os.Stderr, "%s: %v\n", c.title, time.Since(from).Round(10*time.Millisecond))
	}
	t.write(w)
	return nil
}

// measureCase has the builds take turns.
func measureCase(ctx context.Context, builds []build, title string, rounds int, servers []*server) (row changeRow) {
	row = changeRow{title: title, seen: make([][]measured, len(builds))}
	together, account, err := stage(ctx, title, servers)
	if err != nil {
		row.err = err
		return row
	}
	defer func() { row.err = errors.Join(row.err, together()) }()
	workers := make([]*worker, len(builds))
	for i, b := range builds {
		if workers[i], row.err = startWorker(ctx, b.program, job{Title: title, Account: account}); row.err != nil {
			return row
		}
		defer workers[i].stop()
	}
	for round := range rounds {
		for i := range builds {
			i = (i + round) % len(builds)
			t, err := workers[i].turn(changeTurn)
			if err != nil {
				row.err = fmt.Errorf("%s: %w", builds[i].commit, err)
				return row
			}
			row.seen[i] = append(row.seen[i], t)
		}
	}
	return row
}

// stage starts the server of a contest, if it has one, and gives it processors of its
// own. Processes that are started until together is called have the others.
func stage(ctx context.Context, title string, servers []*server) (together func() error, a *account, err error) {
	for _, s := range servers {
		if !strings.HasPrefix(title, s.name+": ") {
			continue
		}
		of, err := s.start()
		if err != nil {
			return nil, nil, err
		}
		together, err := s.standApart(ctx)
		return together, &account{of.Addr, of.User, of.Password, of.Database}, err
	}
	return func() error { return nil }, nil, nil
}

// buildBase builds today's bench with the library of another commit, in a work tree that
// remove removes.
func buildBase(ctx context.Context, commit string) (b build, remove func(), err error) {
	dir, err := os.MkdirTemp("", "pooldriver-bench-base-")
	if err != nil {
		return b, nil, err
	}
	tree := filepath.Join(dir, "tree")
	remove = func() {
		_, _ = git(context.WithoutCancel(ctx), "worktree", "remove", "--force", tree)
		_ = os.RemoveAll(dir)
	}
	defer func() {
		if err != nil {
			remove()
		}
	}()
	if b.commit, err = git(ctx, "rev-parse", "--short", commit+"^{commit}"); err != nil {
		return b, nil, err
	}
	if _, err = git(ctx, "worktree", "add", "--detach", tree, b.commit); err != nil {
		return b, nil, err
	}
	root, err := git(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return b, nil, err
	}
	bench := filepath.Join(tree, "bench")
	if err = os.RemoveAll(bench); err != nil {
		return b, nil, err
	}
	if err = os.CopyFS(bench, os.DirFS(filepath.Join(root, "bench"))); err != nil {
		return b, nil, err
	}
	if _, missing := os.Stat(filepath.Join(tree, "dialects/postgres/go.mod")); missing != nil {
		// The dialects were packages of the root then, so today's bench is built by the go.mod of that time.
		if _, err = git(ctx, "-C", tree, "checkout", "--", "bench/go.mod", "bench/go.sum"); err != nil {
			return b, nil, err
		}
	}
	b.program = filepath.Join(dir, "bench")
	_, err = output(exec.CommandContext(ctx, "go", "-C", bench, "build", "-o", b.program, "."))
	return b, remove, err
}

func git(ctx context.Context, args ...string) (string, error) {
	return output(exec.CommandContext(ctx, "git", args...))
}

// output is what a command writes. Its error has what the command says of it.
func output(c *exec.Cmd) (string, error) {
	var said strings.Builder
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(c.Args, " "), err, said.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// changeTable is what was measured.
type changeTable struct {
	builds    []build // this tree, and the base if there is one
	rounds    int
	unCounted error // why instructions are not counted
	rows      []changeRow
}

type changeRow struct {
	title        string
	seen         [][]measured // by build, by round
	instructions []float64    // by build, of an operation; nil: not counted
	most         float64      // the bound of the ratio to plain
	err          error
}

func (t changeTable) write(w io.Writer) {
	fmt.Fprintf(w, "`make bench-quick`: %s", t.builds[0].commit)
	if len(t.builds) > 1 {
		fmt.Fprintf(w, ", beside it %s", t.builds[1].commit)
	}
	fmt.Fprintf(w, "; %s, %d processors; medians of %d rounds, quartiles in brackets.\n", runtime.Version(), runtime.NumCPU(), t.rounds)
	counted := "instructions"
	if t.unCounted != nil {
		counted = "processor time to plain"
		fmt.Fprintf(w, "Instructions: not available (%s).\n", oneLine(t.unCounted))
	}
	head := []string{"", "plain", "pooldriver", "ratio to plain", "bound", "allocations", counted}
	if len(t.builds) > 1 {
		b := t.builds[1].commit
		head = append(head, b+": ratio", "allocations", counted, "ratio : that of "+b, "95 %")
	}
	fmt.Fprintln(w)
	row(w, head)
	fmt.Fprintf(w, "|---|%s\n", strings.Repeat("---:|", len(head)-1))
	for _, r := range t.rows {
		row(w, r.cells())
	}
}

func (r changeRow) cells() []string {
	cells := []string{r.title}
	if r.err != nil {
		return append(cells, unmeasured+": "+oneLine(r.err))
	}
	for i, turns := range r.seen {
		ratios := ratiosOf(turns, nanosOf)
		spread := fmt.Sprintf("%s [%s]", closely(median(ratios)), span(quantile(ratios, 0.25), quantile(ratios, 0.75), closely))
		last, counted := turns[len(turns)-1], closely(median(ratiosOf(turns, cpuOf)))
		if r.instructions != nil {
			counted = whole(r.instructions[i])
		}
		if i == 0 {
			cells = append(cells, nanos(medianOf(turns, func(t measured) float64 { return t.Plain.Nanos })),
				nanos(medianOf(turns, func(t measured) float64 { return t.Ours.Nanos })))
		}
		cells = append(cells, spread)
		if i == 0 {
			cells = append(cells, r.bound(ratios))
		}
		cells = append(cells, fmt.Sprintf("%s (plain %s)", whole(last.Ours.Allocs), whole(last.Plain.Allocs)), counted)
	}
	if len(r.seen) > 1 {
		change := pairwise(ratiosOf(r.seen[1], nanosOf), ratiosOf(r.seen[0], nanosOf), ratio)
		low, high := interval(change)
		cells = append(cells, closely(median(change)), span(low, high, closely))
	}
	return cells
}

// bound is the bound, and whether three quarters of the ratios are over it.
func (r changeRow) bound(ratios []float64) string {
	said := "≤ " + closely(r.most)
	if quantile(ratios, 0.25) > r.most {
		said = "**over** " + said
	}
	return said
}

func nanosOf(c cost) float64 { return c.Nanos }
func cpuOf(c cost) float64   { return c.CPU }

func ratiosOf(turns []measured, of func(cost) float64) []float64 {
	ratios := make([]float64, len(turns))
	for i, t := range turns {
		ratios[i] = of(t.Ours) / of(t.Plain)
	}
	return ratios
}

func medianOf(turns []measured, f func(measured) float64) float64 {
	v := make([]float64, len(turns))
	for i, t := range turns {
		v[i] = f(t)
	}
	return median(v)
}
