package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// A worker is a process that measures one contest for another process (change.go), with
// the pooldriver that it was built with.

// workerJob is the environment variable that makes a process a worker. It has a job.
const workerJob = "POOLDRIVER_BENCH_JOB"

type job struct {
	Title   string
	Account *account // of the server, if it takes one
	Count   int      // run pooldriver's operation so often instead, and end
}

type account struct{ Addr, User, Password, Database string }

// measured is what the two contenders have shown in one round.
type measured struct {
	Plain, Ours cost
	Err         string
}

type cost struct{ Nanos, CPU, Allocs float64 } // of an operation

// Slices of a turn. Plain and pooldriver alternate in it, the shorter the better: what
// interrupts them falls into few slices then, and a median does not see it.
const (
	turnSlices  = 32
	slicesApart = 8 // where an operation takes some hundred microseconds
)

// work does a job: a turn for each line of the input, which has its length.
func work(ctx context.Context, text string, in io.Reader, out io.Writer) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "pooldriver-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c, err := j.contest(dir)
	if err != nil {
		return err
	}
	if j.Count > 0 {
		return c.count(j.Count)
	}
	answers := json.NewEncoder(out)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		length, err := time.ParseDuration(lines.Text())
		if err != nil {
			return err
		}
		if err := answers.Encode(c.turn(ctx, length)); err != nil {
			return err
		}
	}
	return nil
}

// contest is the job's, between plain database/sql and pooldriver alone.
func (j job) contest(dir string) (contest, error) {
	postgres, maria := j.server(postgresServer(false)), j.server(mariaServer(false))
	all := append(nullContests(), taskRows(), coldContest())
	for _, v := range []venue{{name: sectionNull, entrants: nullEntrants(fakedb.NullConnector{Rows: listed}, nullTexts)},
		sqliteVenue(dir), postgresVenues(postgres)[0], mariaVenues(maria)[0]} {
		all = append(all, caseContests(v)...)
	}
	for _, c := range all {
		if c.title() == j.Title {
			c.contenders = slices.DeleteFunc(c.contenders, func(c contender) bool { return c.name != plainName && c.name != ours })
			c.promises, c.more, c.fresh = nil, 0, false
			return c, nil
		}
	}
	return contest{}, fmt.Errorf("there is no contest %q", j.Title)
}

// server lets s be the one that runs already.
func (j job) server(s *server) *server {
	s.start = func() (testbed.Account, error) {
		a := j.Account
		if a == nil {
			return testbed.Account{}, errors.New("the job has no account")
		}
		return testbed.Account{Server: &testbed.Server{Engine: s.engine}, Addr: a.Addr, User: a.User, Password: a.Password, Database: a.Database}, nil
	}
	return s
}

// turn runs one round, with new connections: how fast one is depends on the server's
// process behind it.
func (c contest) turn(ctx context.Context, length time.Duration) (t measured) {
	n := turnSlices
	if c.apart != nil {
		n, c.apart = slicesApart, nil // its caller has seen to that
	}
	o := c.hold(ctx, n, length/time.Duration(n))
	if err := errors.Join(append(o.failed, o.missing)...); err != nil {
		t.Err = err.Error()
		return t
	}
	show := func(f figures) cost {
		return cost{median(f[timeMetric]), median(f[cpuMetric]), median(f[allocsMetric])}
	}
	return measured{Plain: show(o.figures[0]), Ours: show(o.figures[1])}
}

// count runs pooldriver's operation n times.
func (c contest) count(n int) error {
	if err := flag.Set("test.benchtime", fmt.Sprintf("%dx", n)); err != nil {
		return err
	}
	return c.prepared(func() error { return make(figures).measure(c.contenders[1].run) })
}

const taskRowsName = "10 rows in a task"

// nullTexts are as long as those of programs are: reading a text is part of the price.
var nullTexts = texts{
	query:   "select balance from accounts where id = $1",
	exec:    "update accounts set balance = balance + 1 where id = $1",
	list:    listText,
	balance: "select balance from accounts where id = $1",
}

// taskRows is a query of some rows in a task of its own, against one with a context of
// its own.
func taskRows() contest {
	null := fakedb.NullConnector{Rows: listed}
	v := venue{name: sectionNull, entrants: []entrant{
		{plainName, everywhere, func(conns int) (client, error) {
			c, err := openSQL(sql.OpenDB(null), nil, conns, nullTexts)
			return eachIn{c, context.WithCancel}, err
		}},
		{ours, everywhere, func(conns int) (client, error) {
			c, err := openOurs(sql.OpenDB(pooldriver.Wrap(null, func(c *pooldriver.Config) { c.MaxConns = conns })), nullTexts)
			return eachIn{c, withTask}, err
		}},
	}}
	list := func(ctx context.Context, c client, _ int64) error {
		_, err := c.list(ctx)
		return err
	}
	return v.contest(taskRowsName, everywhere, caseConns, warm(list), repeat(list))
}

// eachIn begins a context for each list.
type eachIn struct {
	client
	begin begin
}

func (w eachIn) list(ctx context.Context) ([]int64, error) {
	ctx, end := w.begin(ctx)
	defer end()
	return w.client.list(ctx)
}

// worker is such a process, seen from the other one.
type worker struct {
	process *exec.Cmd
	asks    io.WriteCloser
	answers *json.Decoder
}

func startWorker(ctx context.Context, program string, j job) (*worker, error) {
	c, err := workerCommand(ctx, program, j)
	if err != nil {
		return nil, err
	}
	w := &worker{process: c}
	if w.asks, err = c.StdinPipe(); err != nil {
		return nil, err
	}
	answers, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.answers = json.NewDecoder(answers)
	return w, c.Start()
}

func workerCommand(ctx context.Context, program string, j job) (*exec.Cmd, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, program)
	c.Env = append(os.Environ(), workerJob+"="+string(text))
	c.Stderr = os.Stderr
	return c, nil
}

func (w *worker) turn(length time.Duration) (t measured, err error) {
	if _, err := fmt.Fprintln(w.asks, length); err != nil {
		return t, err
	}
	if err := w.answers.Decode(&t); err != nil {
		return t, fmt.Errorf("the worker has ended: %w", err)
	}
	if t.Err != "" {
		return t, errors.New(t.Err)
	}
	return t, nil
}

func (w *worker) stop() {
	_ = w.asks.Close()
	_ = w.process.Wait()
}
